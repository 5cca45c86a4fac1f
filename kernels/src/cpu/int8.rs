//! The linear layer in eight bits: weights with a scale per output, inputs with a scale per row, found when they come.
//!
//! Sums are of integers, so their order changes nothing: a row has the same bits whatever is computed beside it, by any
//! number of threads, with whichever instructions the machine has for this.

use super::buffer::in_pieces;
use super::gelu::gelu_piece;
use super::linear::LinearShape;
use super::rows::wide;

/// Outputs that are computed together: as many sums as a register has.
const TILE: usize = 16;
/// Inputs that one instruction multiplies and adds up for each output.
const GROUP: usize = 4;
/// Rows that one task computes.
const ROWS: usize = 12;
/// Rows whose sums are in registers at the same time.
const TOGETHER: usize = 6;
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
    /// What takes the offset of inputs away again, for each output.
    starts: Vec<i32>,
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
        let (mut scales, mut starts) = (vec![0.0; tiles * TILE], vec![0; tiles * TILE]);
        let mut column = Vec::with_capacity(inputs);
        for output in 0..outputs {
            column.clear();
            column.extend((0..inputs).map(|input| weight[input * outputs + output]));
            let scale = RowScale::of(&column);
            let (tile, lane) = (output / TILE, output % TILE);
            for (input, value) in column.iter().enumerate() {
                let number = scale.number(*value);
                let place = (tile * groups + input / GROUP) * TILE * GROUP + lane * GROUP;
                values[place + input % GROUP] = number;
                starts[output] -= OFFSET * i32::from(number);
            }
            scales[output] = scale.one;
        }
        Self { inputs, outputs, values, scales, starts }
    }

    fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }
}

/// How the values of a row become whole numbers, the largest of them the largest number.
#[derive(Clone, Copy, Debug)]
struct RowScale {
    /// What one of a number is worth; not a number where a value is none.
    one: f32,
    /// Numbers that a value of one has.
    inverse: f32,
}

impl RowScale {
    #[inline(always)]
    fn of(values: &[f32]) -> Self {
        // Without their signs floats have the order of their bits, and what is no number is above all others.
        let most = values.iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff));
        let most = f32::from_bits(most);
        if !most.is_finite() {
            return Self { one: f32::NAN, inverse: 0.0 };
        }
        let inverse = MOST / most;
        // Of what is this small nothing is left.
        match inverse.is_finite() {
            true => Self { one: most / MOST, inverse },
            false => Self { one: 0.0, inverse: 0.0 },
        }
    }

    /// To the nearest, ties to even. It is within the bounds: the factor is off by less than half of what rounding
    /// takes away.
    #[inline(always)]
    fn number(self, value: f32) -> i8 {
        // Adding this number rounds to a whole one, whose bits are then the lowest of the sum.
        const ROUND: f32 = 12_582_912.0;
        (value * self.inverse + ROUND).to_bits() as i8
    }
}

/// `x W + b` in eight bits.
///
/// # Panics
/// If the sizes do not fit.
pub fn forward(rows: usize, input: &[f32], weight: &Int8Weights, bias: Option<&[f32]>) -> Vec<f32> {
    forward_then(rows, input, weight, bias, |_| {})
}

/// GELU of `x W + b` in eight bits.
///
/// # Panics
/// If the sizes do not fit.
pub fn forward_gelu(
    rows: usize,
    input: &[f32],
    weight: &Int8Weights,
    bias: Option<&[f32]>,
) -> Vec<f32> {
    forward_then(rows, input, weight, bias, gelu_piece)
}

/// `finish` is called with each part of the output while it is in cache.
fn forward_then(
    rows: usize,
    input: &[f32],
    weight: &Int8Weights,
    bias: Option<&[f32]>,
    finish: impl Fn(&mut [f32]) + Sync,
) -> Vec<f32> {
    let shape = LinearShape { rows, inputs: weight.inputs, outputs: weight.outputs };
    assert_eq!(input.len(), rows * shape.inputs, "{rows} rows are due");
    assert!(bias.is_none_or(|bias| bias.len() == shape.outputs), "a bias for each output is due");
    let steps = steps();
    let count = rows.div_ceil(ROWS);
    let (output, _) =
        in_pieces(rows * shape.outputs, ROWS * shape.outputs, count, |piece, output| {
            let output = output.zeroed();
            let first = piece * ROWS;
            let rows = ROWS.min(rows - first);
            let input = &input[first * shape.inputs..][..rows * shape.inputs];
            some_rows(steps, input, weight, bias, output);
            finish(output);
        });
    output
}

/// Rows of bytes, whose length is a whole number of groups, and what one of each is worth.
struct Int8Rows {
    values: Vec<u8>,
    scales: Vec<f32>,
}

impl Int8Rows {
    fn of(input: &[f32], weight: &Int8Weights) -> Self {
        let (inputs, length) = (weight.inputs.max(1), weight.groups().max(1) * GROUP);
        let count = input.len() / inputs;
        // What is behind the last input meets weights that are zero.
        let mut rows = Self { values: vec![OFFSET as u8; count * length], scales: Vec::new() };
        for (row, numbers) in input.chunks(inputs).zip(rows.values.chunks_mut(length)) {
            rows.scales.push(numbers_of(row, &mut numbers[..row.len()]));
        }
        rows
    }
}

fn some_rows(
    steps: Int8Steps,
    input: &[f32],
    weight: &Int8Weights,
    bias: Option<&[f32]>,
    output: &mut [f32],
) {
    let (length, outputs) = (weight.groups().max(1) * GROUP, weight.outputs.max(1));
    let rows = Int8Rows::of(input, weight);
    let width = weight.starts.len();
    let mut sums = vec![0; TOGETHER * width];
    let blocks = rows.values.chunks(TOGETHER * length).zip(rows.scales.chunks(TOGETHER));
    for ((block, scales), output) in blocks.zip(output.chunks_mut(TOGETHER * outputs)) {
        let sums = &mut sums[..scales.len() * width];
        let (weights, starts) = (&weight.values, &weight.starts);
        (steps.sums)(&Int8Product { rows: block, length, weights, starts }, sums);
        wide(
            #[inline(always)]
            || {
                let rows = sums.chunks(width).zip(output.chunks_mut(outputs)).zip(scales);
                rows.for_each(|((sums, output), scale)| {
                    floats(sums, (*scale, &weight.scales), bias, output)
                });
            },
        );
    }
}

/// Outputs from the sums of a row, whose numbers are worth so much, as those of each output's weights are.
#[inline(always)]
fn floats(sums: &[i32], (own, scales): (f32, &[f32]), bias: Option<&[f32]>, output: &mut [f32]) {
    let count = output.len();
    let (sums, scales) = (&sums[..count], &scales[..count]);
    let value = |at: usize| sums[at] as f32 * (own * scales[at]);
    match bias.map(|bias| &bias[..count]) {
        Some(bias) => (0..count).for_each(|at| output[at] = bias[at] + value(at)),
        None => (0..count).for_each(|at| output[at] = value(at)),
    }
}

/// Some rows of bytes, and some tiles of weights to multiply them with.
pub(super) struct Int8Product<'a> {
    /// One after the other, each value with an offset of 128 and none of them zero.
    pub(super) rows: &'a [u8],
    /// Bytes of a row, a multiple of four.
    pub(super) length: usize,
    /// No value is -128.
    pub(super) weights: &'a [i8],
    /// What the sums of rows with the offset begin with, to be those of rows without it.
    pub(super) starts: &'a [i32],
}

impl Int8Product<'_> {
    /// Rows, and sums of each.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub(super) fn size(&self, sums: &[i32]) -> (usize, usize) {
        let (count, width) = (self.rows.len() / self.length, self.weights.len() / self.length);
        assert!(
            self.length.is_multiple_of(GROUP)
                && width.is_multiple_of(TILE)
                && self.rows.len() == count * self.length
                && self.weights.len() == width * self.length
                && self.starts.len() == width
                && sums.len() == count * width,
            "the sizes do not fit"
        );
        (count, width)
    }
}

/// The step that machines have instructions for: a row of sums for each row.
#[derive(Clone, Copy)]
pub(super) struct Int8Steps {
    pub(super) sums: fn(&Int8Product<'_>, &mut [i32]),
}

/// The fastest that this machine has.
fn steps() -> Int8Steps {
    all_steps().next().unwrap_or(Int8Steps { sums: plain })
}

/// All that this machine has, the fastest first.
fn all_steps() -> impl Iterator<Item = Int8Steps> {
    #[cfg(target_arch = "x86_64")]
    let special = [super::int8_x86::steps(), super::int8_avx::vnni(), super::int8_avx::steps()];
    #[cfg(not(target_arch = "x86_64"))]
    let special: [Option<Int8Steps>; 0] = [];
    special.into_iter().flatten().chain([Int8Steps { sums: plain }])
}

/// Writes a row's bytes and returns what one of them is worth.
fn numbers_of(row: &[f32], bytes: &mut [u8]) -> f32 {
    wide(
        #[inline(always)]
        || {
            let scale = RowScale::of(row);
            for (value, byte) in row.iter().zip(bytes.iter_mut()) {
                *byte = (scale.number(*value) as u8).wrapping_add(OFFSET as u8);
            }
            scale.one
        },
    )
}

/// The sums in plain Rust.
fn plain(product: &Int8Product<'_>, sums: &mut [i32]) {
    let (_, width) = product.size(sums);
    for (row, sums) in product.rows.chunks(product.length).zip(sums.chunks_mut(width)) {
        let tiles = product.weights.chunks(product.length * TILE);
        for (weight, sums) in tiles.zip(sums.chunks_mut(TILE)) {
            sums.fill(0);
            for (group, weights) in row.chunks(GROUP).zip(weight.chunks(TILE * GROUP)) {
                for (sum, weights) in sums.iter_mut().zip(weights.chunks(GROUP)) {
                    let products = group
                        .iter()
                        .zip(weights)
                        .map(|(a, b)| (i32::from(*a) - OFFSET) * i32::from(*b));
                    *sum += products.sum::<i32>();
                }
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
        fn bytes_are_the_nearest_whole_numbers(
            count in 1..100usize, seed in any::<u64>(), odd in 0..8usize,
        ) {
            let mut row = values(count, seed);
            let special = [0.0, -0.0, f32::NAN, f32::INFINITY, 1e-42, f32::MAX, -3.0];
            if let Some(value) = special.get(odd) {
                row[0] = *value;
            }
            let mut bytes = vec![0; count];
            let one = numbers_of(&row, &mut bytes);
            prop_assert_eq!(one.is_nan(), row.iter().any(|value| !value.is_finite()));
            for (value, byte) in row.iter().zip(&bytes) {
                let number = f64::from(*byte) - f64::from(OFFSET);
                prop_assert!(number.abs() <= 127.0);
                let far = (f64::from(*value) - number * f64::from(one)).abs();
                prop_assert!(one.is_nan() || far <= f64::from(one) * 0.500_01 + 1e-36, "{} {}", value, byte);
            }
        }

        #[test]
        fn instructions_for_it_sum_as_plain_rust_does(
            rows in 1..=TOGETHER, groups in 1..60usize, tiles in 1..10usize, seed in any::<u64>(),
        ) {
            let length = groups * GROUP;
            let bytes = |count: usize, seed| {
                let values = values(count, seed);
                values.iter().map(|v| (v * 1e4) as i64 as u8).collect::<Vec<u8>>()
            };
            let input = bytes(rows * length, seed);
            let input: Vec<u8> = input.iter().map(|byte| (*byte).max(1)).collect();
            let weight = bytes(length * TILE * tiles, !seed);
            let weight: Vec<i8> = weight.iter().map(|byte| (*byte as i8).max(-127)).collect();
            same_sums(&input, length, &weight);
        }
    }

    /// All ways to sum give the same as plain Rust.
    fn same_sums(rows: &[u8], length: usize, weight: &[i8]) {
        let width = weight.len() / length;
        let start = |column: usize| {
            let of = |row: usize| {
                let group = (column / TILE * length + row / GROUP * GROUP) * TILE;
                i32::from(weight[group + column % TILE * GROUP + row % GROUP])
            };
            -OFFSET * (0..length).map(of).sum::<i32>()
        };
        let starts: Vec<i32> = (0..width).map(start).collect();
        let product = Int8Product { rows, length, weights: weight, starts: &starts };
        let mut expected = vec![0; rows.len() / length * width];
        plain(&product, &mut expected);
        for steps in all_steps() {
            let mut found = vec![1; expected.len()];
            (steps.sums)(&product, &mut found);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_largest_numbers_overflow_nothing() {
        let length = 60 * GROUP;
        for (byte, weight) in [(255, 127), (255, -127), (1, 127), (1, -127)] {
            same_sums(&vec![byte; TOGETHER * length], length, &vec![weight; length * TILE * 5]);
        }
    }

    #[test]
    fn gelu_behind_it_is_gelu_of_it() {
        let (input, weight, bias) = (values(20 * 40, 1), values(40 * 50, 2), values(50, 3));
        let packed = Int8Weights::new(&weight, 40, 50);
        let mut expected = forward(20, &input, &packed, Some(&bias));
        gelu_piece(&mut expected);
        assert_eq!(forward_gelu(20, &input, &packed, Some(&bias)), expected);
    }
}
