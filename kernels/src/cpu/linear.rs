//! The linear layer `y = x W + b`, forward and backward, cut so that each core packs its own part of the weights.

use super::buffer::in_pieces;
use super::columns::{ColumnBlock, in_columns};
use super::elementwise::{add, add_all, relu_piece};
use super::gelu::{gelu_piece, gelu_piece_with_slope};
use super::product::{Matrix, ProductOutput, product};
use super::several::in_pieces_of;

/// Products of fewer multiplications are not worth a second thread, and smaller blocks pack the same values too often.
const WORTH_A_TASK: usize = 1 << 22;

/// With this many rows at least and this many values at most the input's gradient is computed transposed: the weights
/// are then read along their rows, which takes two thirds of the time as long as the result stays in cache.
const WORTH_TRANSPOSING: (usize, usize) = (32, 1 << 15);

/// From this many rows on, the input and the gradient are cut into blocks of rows ([`ROWS`], [`ROWS_OF_A_SUM`]):
/// packing
/// them is then the larger part of what a block of columns would do again.
const TALL: usize = 2048;

/// Rows of an output that one task computes.
const ROWS: usize = 1024;

/// Rows whose products are summed by one task for the gradient of the weights.
const ROWS_OF_A_SUM: usize = 2048;

/// Weights with more values are cut by their rows instead: the sums of the tasks would take too much memory.
const WORTH_PARTIAL_SUMS: usize = 1 << 19;

/// Rows that are multiplied at once, so that what is packed of them stays in a core's cache.
const DEPTH: usize = 256;

/// The sizes of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Rows of the input.
    pub rows: usize,
    /// Columns of the input.
    pub inputs: usize,
    /// Columns of the output.
    pub outputs: usize,
}

impl LinearShape {
    /// How many columns (or rows) of `all` one task computes.
    fn block(&self, all: usize) -> usize {
        let work = self.rows * self.inputs * self.outputs;
        let tasks = (work / WORTH_A_TASK).clamp(1, 32);
        all.div_ceil(tasks).next_multiple_of(64)
    }
}

/// The values of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearValues<'a> {
    /// `[rows, inputs]`
    pub input: &'a [f32],
    /// `[inputs, outputs]`
    pub weight: &'a [f32],
    /// `[outputs]`
    pub bias: Option<&'a [f32]>,
}

/// `x W + b`, with ReLU if asked for.
pub fn forward(shape: LinearShape, values: LinearValues<'_>, relu: bool) -> Vec<f32> {
    let [output] = products(shape, values, |[output]| {
        if relu {
            relu_piece(output);
        }
    });
    output
}

/// GELU of `x W + b`, computed by each task on its part of the product.
pub fn forward_gelu(shape: LinearShape, values: LinearValues<'_>) -> Vec<f32> {
    let [output] = products(shape, values, |[output]| gelu_piece(output));
    output
}

/// The same, and beside it GELU's slope at each value, which the backward pass multiplies by.
pub fn forward_gelu_with_slope(
    shape: LinearShape,
    values: LinearValues<'_>,
) -> (Vec<f32>, Vec<f32>) {
    let [output, slope] =
        products(shape, values, |[output, slope]| gelu_piece_with_slope(output, slope));
    (output, slope)
}

/// `x W + b` in the first of `N` buffers. `finish` is called with parts of rows of all of them, of which it alone has
/// those, while they are in cache; the others are zeros before.
fn products<const N: usize>(
    shape: LinearShape,
    LinearValues { input, weight, bias }: LinearValues<'_>,
    finish: impl Fn([&mut [f32]; N]) + Sync,
) -> [Vec<f32>; N] {
    let LinearShape { rows, inputs, outputs } = shape;
    let (left, right) = (Matrix::new(input, rows, inputs), Matrix::new(weight, inputs, outputs));
    if rows >= TALL {
        return by_rows(rows, outputs, |first, count, parts: [&mut [f32]; N]| {
            let output = &mut *parts[0];
            if let Some(bias) = bias {
                output.chunks_mut(outputs).for_each(|row| row.copy_from_slice(bias));
            }
            product(ProductOutput::Add, output, left.rows(first, count), right);
            finish(parts);
        });
    }
    in_columns([rows, outputs], shape.block(outputs), |mut parts: [ColumnBlock<'_>; N]| {
        let (first, count) = (parts[0].first, parts[0].count);
        if let Some(bias) = bias {
            parts[0].for_each_row(|row| row.copy_from_slice(&bias[first..first + count]));
        }
        parts[0].product(ProductOutput::Add, left, right.columns(first, count));
        (0..rows).for_each(|row| finish(parts.each_mut().map(|part| part.row(row))));
    })
}

/// `N` outputs of blocks of rows, filled by `fill`, which gets the first row and the number of rows of a block and that
/// block of each, all zeros.
fn by_rows<const N: usize>(
    rows: usize,
    columns: usize,
    fill: impl Fn(usize, usize, [&mut [f32]; N]) + Sync,
) -> [Vec<f32>; N] {
    let count = rows.div_ceil(ROWS);
    let outputs = in_pieces_of([ROWS * columns; N], count, |piece, outputs| {
        let first = piece * ROWS;
        let count = ROWS.min(rows - first);
        fill(first, count, outputs.map(|output| &mut output[..count * columns]));
    });
    outputs.map(|mut output| {
        output.truncate(rows * columns);
        output
    })
}

/// The gradient of the input.
pub fn input_gradient(shape: LinearShape, weight: &[f32], gradient: &[f32]) -> Vec<f32> {
    let LinearShape { rows, inputs, outputs } = shape;
    let (weight, block) = (Matrix::new(weight, inputs, outputs), shape.block(inputs));
    if rows >= TALL {
        let left = Matrix::new(gradient, rows, outputs);
        let [input] = by_rows(rows, inputs, |first, count, [input]| {
            product(ProductOutput::Replace, input, left.rows(first, count), weight.transposed());
        });
        return input;
    }
    if rows < WORTH_TRANSPOSING.0 || rows * inputs > WORTH_TRANSPOSING.1 {
        let left = Matrix::new(gradient, rows, outputs);
        let [input] = in_columns([rows, inputs], block, |[mut input]| {
            let right = weight.transposed().columns(input.first, input.count);
            input.product(ProductOutput::Replace, left, right);
        });
        return input;
    }
    let gradient = transpose(gradient, rows, outputs);
    let right = Matrix::new(&gradient, outputs, rows);
    let count = inputs.div_ceil(block);
    let (input, _) = in_pieces(inputs * rows, block * rows, count, |piece, input| {
        let input = input.zeroed();
        let first = piece * block;
        product(
            ProductOutput::Replace,
            input,
            weight.rows(first, block.min(inputs - first)),
            right,
        );
    });
    transpose(&input, inputs, rows)
}

/// The values of a matrix with rows and columns exchanged.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    // In tiles, so that both sides stay in the nearest cache.
    const TILE: usize = 16;
    let count = columns.div_ceil(TILE);
    let (transposed, _) = in_pieces(rows * columns, TILE * rows, count, |piece, target| {
        let target = target.zeroed();
        let first = piece * TILE;
        let width = TILE.min(columns - first);
        for start in (0..rows).step_by(TILE) {
            for row in start..rows.min(start + TILE) {
                let source = &values[row * columns + first..][..width];
                for (column, value) in source.iter().enumerate() {
                    target[column * rows + row] = *value;
                }
            }
        }
    });
    transposed
}

/// The gradient of the weights.
pub fn weight_gradient(shape: LinearShape, input: &[f32], gradient: &[f32]) -> Vec<f32> {
    let LinearShape { rows, inputs, outputs } = shape;
    let left = Matrix::new(input, rows, inputs).transposed();
    let right = Matrix::new(gradient, rows, outputs);
    if rows >= TALL && inputs * outputs <= WORTH_PARTIAL_SUMS {
        return sum_by_rows(shape, left, right);
    }
    let block = shape.block(inputs);
    let count = inputs.div_ceil(block);
    let (weight, _) = in_pieces(inputs * outputs, block * outputs, count, |piece, weight| {
        let weight = weight.zeroed();
        let first = piece * block;
        let left = left.rows(first, block.min(inputs - first));
        product(ProductOutput::Replace, weight, left, right);
    });
    weight
}

/// The product of a wide and a tall matrix: sums over blocks of the inner size first, then over the blocks in their
/// order.
fn sum_by_rows(shape: LinearShape, left: Matrix, right: Matrix) -> Vec<f32> {
    let LinearShape { rows, inputs, outputs } = shape;
    let (size, count) = (inputs * outputs, rows.div_ceil(ROWS_OF_A_SUM));
    let (mut sums, _) = in_pieces(count * size, size, count, |piece, sum| {
        let sum = sum.zeroed();
        let last = rows.min((piece + 1) * ROWS_OF_A_SUM);
        for first in (piece * ROWS_OF_A_SUM..last).step_by(DEPTH) {
            let depth = DEPTH.min(last - first);
            product(ProductOutput::Add, sum, left.columns(first, depth), right.rows(first, depth));
        }
    });
    let (all, others) = sums.split_at_mut(size);
    add_all(all, others);
    sums.truncate(size);
    sums.shrink_to_fit();
    sums
}

/// The gradient of the bias.
pub fn bias_gradient(shape: LinearShape, gradient: &[f32]) -> Vec<f32> {
    let outputs = shape.outputs.max(1);
    let count = shape.rows.div_ceil(ROWS_OF_A_SUM);
    let (mut sums, _) = in_pieces(count * shape.outputs, shape.outputs, count, |piece, sum| {
        let sum = sum.zeroed();
        let rows = gradient.chunks(outputs).skip(piece * ROWS_OF_A_SUM).take(ROWS_OF_A_SUM);
        rows.for_each(|row| add(sum, row));
    });
    let one = shape.outputs.min(sums.len());
    let (all, others) = sums.split_at_mut(one);
    add_all(all, others);
    sums.resize(shape.outputs, 0.0);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_twice_gives_the_same() {
        for (rows, columns) in [(1, 1), (3, 50), (40, 17), (64, 64)] {
            let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let turned = transpose(&values, rows, columns);
            assert_eq!(turned[rows - 1], values[(rows - 1) * columns]);
            assert_eq!(transpose(&turned, columns, rows), values);
        }
    }
}
