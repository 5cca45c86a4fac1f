//! The linear layer in eight bits: weights with a scale per output, inputs with a scale per row, found when they come.
//!
//! Sums are of integers, so their order changes nothing: a row has the same bits whatever is computed beside it, by any
//! number of threads, with or without instructions for this.

use super::buffer::in_pieces;
use super::linear::LinearShape;

/// Outputs that are computed together: as many sums as a register has.
const TILE: usize = 16;
/// Inputs that one instruction multiplies and adds up for each output.
const GROUP: usize = 4;
/// Rows that one task computes.
const ROWS: usize = 32;
/// Rows whose sums are in registers at the same time.
const TOGETHER: usize = 8;
/// The largest whole number of a value.
const MOST: f32 = 127.0;
/// What makes an input's number positive, as the instruction wants it.
const OFFSET: i32 = 128;

/// Weights as whole numbers: tiles of outputs, in each groups of inputs, in each the outputs one after the other.
#[derive(Clone, Debug)]
pub struct Int8Weights {
    inputs: usize,
    outputs: usize,
    values: Vec<i8>,
    /// What one of a number is worth, for each output.
    scales: Vec<f32>,
    /// What the offset of inputs adds to each output.
    offsets: Vec<i32>,
}

impl Int8Weights {
    /// From weights row by row, a row for each input.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn new(weight: &[f32], inputs: usize, outputs: usize) -> Self {
        assert_eq!(weight.len(), inputs * outputs, "{inputs}x{outputs} weights are due");
        let (groups, tiles) = (inputs.div_ceil(GROUP), outputs.div_ceil(TILE));
        let mut values = vec![0; tiles * groups * TILE * GROUP];
        let (mut scales, mut offsets) = (vec![0.0; tiles * TILE], vec![0; tiles * TILE]);
        for output in 0..outputs {
            let column = || (0..inputs).map(|input| weight[input * outputs + output]);
            let scale = scale_of(column());
            let (tile, lane) = (output / TILE, output % TILE);
            for (input, value) in column().enumerate() {
                let number = number(value, scale);
                let place = (tile * groups + input / GROUP) * TILE * GROUP + lane * GROUP;
                values[place + input % GROUP] = number as i8;
                offsets[output] += OFFSET * number;
            }
            scales[output] = scale;
        }
        Self { inputs, outputs, values, scales, offsets }
    }

    fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }
}

/// What one of a whole number is worth where the largest value is the largest number; not a number where a value is
/// none.
fn scale_of(values: impl Iterator<Item = f32>) -> f32 {
    let (mut largest, mut finite) = (0.0f32, true);
    for value in values {
        finite &= value.is_finite();
        largest = largest.max(value.abs());
    }
    if finite { largest / MOST } else { f32::NAN }
}

fn number(value: f32, scale: f32) -> i32 {
    match scale > 0.0 {
        true => (value / scale).round_ties_even().clamp(-MOST, MOST) as i32,
        false => 0,
    }
}

/// `x W + b` in eight bits.
///
/// # Panics
/// If the sizes do not fit.
pub fn forward(rows: usize, input: &[f32], weight: &Int8Weights, bias: Option<&[f32]>) -> Vec<f32> {
    let shape = LinearShape { rows, inputs: weight.inputs, outputs: weight.outputs };
    assert_eq!(input.len(), rows * shape.inputs, "{rows} rows are due");
    assert!(bias.is_none_or(|bias| bias.len() == shape.outputs), "a bias for each output is due");
    let kernel = steps();
    let count = rows.div_ceil(ROWS);
    let (output, _) =
        in_pieces(rows * shape.outputs, ROWS * shape.outputs, count, |piece, output| {
            let output = output.zeroed();
            let first = piece * ROWS;
            let rows = ROWS.min(rows - first);
            let input = &input[first * shape.inputs..][..rows * shape.inputs];
            some_rows(kernel, input, weight, bias, output);
        });
    output
}

/// Rows of bytes, whose length is a whole number of groups, and what one of each is worth.
struct Int8Rows {
    values: Vec<u8>,
    scales: Vec<f32>,
}

fn some_rows(
    steps: Int8Steps,
    input: &[f32],
    weight: &Int8Weights,
    bias: Option<&[f32]>,
    output: &mut [f32],
) {
    let (inputs, outputs) = (weight.inputs.max(1), weight.outputs.max(1));
    let length = weight.groups() * GROUP;
    let count = input.len() / inputs;
    // What is behind the last input meets weights that are zero.
    let mut rows = Int8Rows { values: vec![OFFSET as u8; count * length], scales: Vec::new() };
    for (row, numbers) in input.chunks(inputs).zip(rows.values.chunks_mut(length.max(1))) {
        rows.scales.push((steps.numbers)(row, &mut numbers[..row.len()]));
    }
    let mut sums = [0i32; TOGETHER * TILE];
    for (first, block) in rows.values.chunks(TOGETHER * length).enumerate() {
        let count = block.len() / length.max(1);
        for (tile, own) in weight.values.chunks(length * TILE).enumerate() {
            (steps.sums)(block, length, own, &mut sums[..count * TILE]);
            let all = tile * TILE..(tile + 1) * TILE;
            let columns = all.start..outputs.min(all.end);
            let tile = Int8Tile {
                offsets: &weight.offsets[all.clone()],
                scales: &weight.scales[all],
                bias: bias.map(|bias| &bias[columns.clone()]),
            };
            for (place, sums) in sums.chunks(TILE).take(count).enumerate() {
                let row = first * TOGETHER + place;
                let output = &mut output[row * outputs..][columns.clone()];
                (steps.floats)(sums, &tile, rows.scales[row], output);
            }
        }
    }
}

/// What the sums of a tile of outputs become floats with: offset, scale and, where there is one, bias of each.
pub(super) struct Int8Tile<'a> {
    pub(super) offsets: &'a [i32],
    pub(super) scales: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
}

/// The three steps of a row: whole numbers of it, their sums with weights, and floats again.
#[derive(Clone, Copy)]
pub(super) struct Int8Steps {
    /// Writes a row's bytes and returns what one of them is worth.
    pub(super) numbers: fn(&[f32], &mut [u8]) -> f32,
    /// Sums of the products of some rows of bytes with a tile of weights, a row of sums for each.
    pub(super) sums: fn(&[u8], usize, &[i8], &mut [i32]),
    /// The outputs of a tile from the sums of a row, whose numbers are worth so much.
    pub(super) floats: fn(&[i32], &Int8Tile<'_>, f32, &mut [f32]),
}

fn steps() -> Int8Steps {
    #[cfg(target_arch = "x86_64")]
    if let Some(steps) = super::int8_x86::steps() {
        return steps;
    }
    Int8Steps { numbers: plain_numbers, sums: plain, floats: plain_floats }
}

/// A row's bytes in plain Rust.
pub(super) fn plain_numbers(row: &[f32], bytes: &mut [u8]) -> f32 {
    let scale = scale_of(row.iter().copied());
    for (value, byte) in row.iter().zip(bytes) {
        *byte = (number(*value, scale) + OFFSET) as u8;
    }
    scale
}

/// A tile's outputs in plain Rust.
pub(super) fn plain_floats(sums: &[i32], tile: &Int8Tile<'_>, scale: f32, output: &mut [f32]) {
    for (column, (output, sum)) in output.iter_mut().zip(sums).enumerate() {
        let whole = (sum - tile.offsets[column]) as f32;
        let bias = tile.bias.map_or(0.0, |bias| bias[column]);
        *output = bias + whole * (scale * tile.scales[column]);
    }
}

/// The sums in plain Rust.
pub(super) fn plain(rows: &[u8], length: usize, weight: &[i8], sums: &mut [i32]) {
    for (row, sums) in rows.chunks(length).zip(sums.chunks_mut(TILE)) {
        sums.fill(0);
        for (group, weights) in row.chunks(GROUP).zip(weight.chunks(TILE * GROUP)) {
            for (sum, weights) in sums.iter_mut().zip(weights.chunks(GROUP)) {
                let products =
                    group.iter().zip(weights).map(|(a, b)| i32::from(*a) * i32::from(*b));
                *sum += products.sum::<i32>();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 4.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn it_is_near_the_product_of_floats() {
        for (rows, inputs, outputs) in [(1, 1, 1), (3, 5, 17), (33, 384, 96), (70, 130, 31)] {
            let (input, weight) = (values(rows * inputs, 1), values(inputs * outputs, 2));
            let bias = values(outputs, 3);
            let packed = Int8Weights::new(&weight, inputs, outputs);
            let found = forward(rows, &input, &packed, Some(&bias));
            for row in 0..rows {
                for column in 0..outputs {
                    let products = (0..inputs)
                        .map(|at| input[row * inputs + at] * weight[at * outputs + column]);
                    let exact: f32 = bias[column] + products.sum::<f32>();
                    let far = (found[row * outputs + column] - exact).abs();
                    // Half a step of each factor, at random signs.
                    let allowed = 0.05 + 0.04 * (inputs as f32).sqrt();
                    assert!(far < allowed, "{rows}x{inputs}x{outputs}: {far} from {exact}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let packed = Int8Weights::new(&values(8 * 16, 1), 8, 16);
        let mut input = values(16, 2);
        input[3] = f32::NAN;
        let found = forward(2, &input, &packed, None);
        assert!(found[..16].iter().all(|value| value.is_nan()));
        assert!(found[16..].iter().all(|value| value.is_finite()));
        let zeros = forward(1, &[0.0; 8], &packed, None);
        assert_eq!(zeros, [0.0; 16]);
    }

    proptest! {
        #[test]
        fn a_row_has_the_same_bits_alone_and_beside_others(
            rows in 1..80usize, inputs in 1..70usize, outputs in 1..40usize, seed in any::<u64>(),
        ) {
            let (input, weight) = (values(rows * inputs, seed), values(inputs * outputs, !seed));
            let packed = Int8Weights::new(&weight, inputs, outputs);
            let together = forward(rows, &input, &packed, None);
            for (row, expected) in input.chunks(inputs).zip(together.chunks(outputs)) {
                let alone = forward(1, row, &packed, None);
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&alone), bits(expected));
            }
        }

        #[test]
        fn instructions_for_it_round_as_plain_rust_does(
            count in 0..100usize, seed in any::<u64>(), odd in 0..8usize, columns in 1..=TILE,
        ) {
            let mut row = values(count, seed);
            let special = [0.0, -0.0, f32::NAN, f32::INFINITY, 1e-42, f32::MAX, -3.0];
            if let (Some(first), Some(value)) = (row.first_mut(), special.get(odd)) {
                *first = *value;
            }
            let (mut expected, mut found) = (vec![0; count], vec![1; count]);
            let scale = plain_numbers(&row, &mut expected);
            prop_assert_eq!((steps().numbers)(&row, &mut found).to_bits(), scale.to_bits());
            prop_assert_eq!(found, expected);
            let sums: Vec<i32> = values(TILE, seed).iter().map(|v| (v * 1e6) as i32).collect();
            let offsets: Vec<i32> = values(TILE, !seed).iter().map(|v| (v * 1e6) as i32).collect();
            let (scales, bias) = (values(TILE, seed / 2), values(columns, seed / 3));
            for bias in [None, Some(bias.as_slice())] {
                let tile = Int8Tile { offsets: &offsets, scales: &scales, bias };
                let (mut expected, mut found) = (vec![0.0; columns], vec![1.0; columns]);
                plain_floats(&sums, &tile, 0.37, &mut expected);
                (steps().floats)(&sums, &tile, 0.37, &mut found);
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&found), bits(&expected));
            }
        }

        #[test]
        fn instructions_for_it_sum_as_plain_rust_does(
            rows in 1..=TOGETHER, groups in 1..60usize, seed in any::<u64>(),
        ) {
            let length = groups * GROUP;
            let bytes = |count: usize, seed| {
                let values = values(count, seed);
                values.iter().map(|v| (v * 1e4) as i64 as u8).collect::<Vec<u8>>()
            };
            let (input, weight) = (bytes(rows * length, seed), bytes(length * TILE, !seed));
            let weight: Vec<i8> = weight.iter().map(|byte| (*byte as i8).max(-127)).collect();
            let (mut expected, mut found) = (vec![0; rows * TILE], vec![1; rows * TILE]);
            plain(&input, length, &weight, &mut expected);
            (steps().sums)(&input, length, &weight, &mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
