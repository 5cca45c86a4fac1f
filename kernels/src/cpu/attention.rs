//! Scaled dot-product attention with several heads (<https://arxiv.org/abs/1706.03762>), forward and backward.
//!
//! Queries, keys and values stay as the linear layers in front write them, `[batch, places, heads * width]`: a head is
//! a block of columns. Scores are never stored; the backward pass computes them again, some queries at a time
//! (<https://arxiv.org/abs/2205.14135>).

use std::sync::Arc;

use super::buffer::{in_pieces, with_scratch};
use super::dropout::{Mask, apply_from};
use super::product::{Matrix, ProductOutput, product, product_into};
use super::rows::{dot, exponentials, largest, wide};
use super::several::in_pieces_of;

/// Queries that are looked at together: their scores stay in a core's cache.
const QUERIES: usize = 128;

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Independent sequences.
    pub batch: usize,
    /// Independent blocks of columns.
    pub heads: usize,
    /// Places that ask.
    pub queries: usize,
    /// Places that are asked.
    pub keys: usize,
    /// Columns of one head.
    pub width: usize,
}

impl AttentionShape {
    pub(super) fn columns(&self) -> usize {
        self.heads * self.width
    }

    fn scale(&self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }
}

/// Which scores do not count, and what they are replaced by. `true` is masked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Masks {
    /// Per sequence and key.
    pub pad: Option<Arc<[bool]>>,
    /// Per sequence, query and key.
    pub attention: Option<Arc<[bool]>>,
    /// The score of a masked pair.
    pub fill: f32,
}

impl Masks {
    /// The rows of masks that a query has.
    fn of(&self, shape: &AttentionShape, sequence: usize, query: usize) -> [Option<&[bool]>; 2] {
        let keys = shape.keys;
        let pad = self.pad.as_ref().map(|mask| &mask[sequence * keys..][..keys]);
        let at = (sequence * shape.queries + query) * keys;
        [pad, self.attention.as_ref().map(|mask| &mask[at..][..keys])]
    }
}

/// How scores become weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weighing {
    /// What does not count.
    pub masks: Masks,
    /// Whether a place looks at itself and those before it only.
    pub causal: bool,
    /// Weights that are dropped after the softmax.
    pub dropout: Option<Mask>,
}

/// The score of a pair that causal attention leaves out: its weight is exactly zero.
const NEVER: f32 = -1e9;

/// The three inputs.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[batch, queries, heads * width]`
    pub query: &'a [f32],
    /// `[batch, keys, heads * width]`
    pub key: &'a [f32],
    /// `[batch, keys, heads * width]`
    pub value: &'a [f32],
}

/// One head of one sequence, some of its queries.
struct QueryBlock<'a> {
    shape: &'a AttentionShape,
    sequence: usize,
    head: usize,
    first: usize,
    count: usize,
    /// Where the weights of all sequences of this call begin among those that a dropout's mask counts.
    base: usize,
}

impl QueryBlock<'_> {
    fn columns<'b>(&self, values: &'b [f32], places: usize) -> Matrix<'b> {
        let columns = self.shape.columns();
        let all = Matrix::new(&values[self.sequence * places * columns..], places, columns);
        all.columns(self.head * self.shape.width, self.shape.width)
    }

    fn queries<'b>(&self, values: &'b [f32]) -> Matrix<'b> {
        self.columns(values, self.shape.queries).rows(self.first, self.count)
    }

    fn keys<'b>(&self, values: &'b [f32]) -> Matrix<'b> {
        self.columns(values, self.shape.keys)
    }

    /// Where this block begins among one number per sequence, head and query.
    fn place(&self) -> usize {
        (self.sequence * self.shape.heads + self.head) * self.shape.queries + self.first
    }

    /// Where it begins in a piece of one sequence.
    fn offset(&self) -> usize {
        self.first * self.shape.columns() + self.head * self.shape.width
    }

    /// Scaled and masked scores.
    fn scores(&self, inputs: Inputs<'_>, weighing: &Weighing, scores: &mut [f32]) {
        let (keys, masks) = (self.shape.keys, &weighing.masks);
        let transposed = self.keys(inputs.key).transposed();
        product(ProductOutput::Replace, scores, self.queries(inputs.query), transposed);
        let scale = self.shape.scale();
        wide(
            #[inline(always)]
            || scores.iter_mut().for_each(|score| *score *= scale),
        );
        for (at, row) in scores.chunks_mut(keys).enumerate() {
            let masks_of_row = masks.of(self.shape, self.sequence, self.first + at);
            masks_of_row.into_iter().flatten().for_each(|mask| fill(row, mask, masks.fill));
            if weighing.causal {
                row[keys.min(self.first + at + 1)..].fill(NEVER);
            }
        }
    }

    fn drop_out(&self, dropout: Option<Mask>, weights: &mut [f32]) {
        if let Some(mask) = dropout {
            apply_from(mask, self.base + self.place() * self.shape.keys, weights);
        }
    }
}

fn fill(row: &mut [f32], mask: &[bool], value: f32) {
    for (score, masked) in row.iter_mut().zip(mask) {
        *score = if *masked { value } else { *score };
    }
}

/// One sequence of those that a call is given.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'a> {
    pub(super) shape: &'a AttentionShape,
    pub(super) number: usize,
    /// See [`QueryBlock::base`].
    pub(super) base: usize,
}

impl Sequence<'_> {
    /// Calls `work` for every block.
    fn blocks(&self, mut work: impl FnMut(QueryBlock<'_>)) {
        let Sequence { shape, number: sequence, base } = *self;
        for head in 0..shape.heads {
            for first in (0..shape.queries).step_by(QUERIES) {
                let count = QUERIES.min(shape.queries - first);
                work(QueryBlock { shape, sequence, head, first, count, base });
            }
        }
    }

    /// What every query gets; `output` is zeros.
    pub(super) fn forward(&self, inputs: Inputs<'_>, weighing: &Weighing, output: &mut [f32]) {
        let (keys, columns) = (self.shape.keys, self.shape.columns());
        self.blocks(|block| {
            with_scratch(block.count * keys, |scores| {
                block.scores(inputs, weighing, scores);
                scores.chunks_mut(keys).for_each(softmax);
                block.drop_out(weighing.dropout, scores);
                let weights = Matrix::new(scores, block.count, keys);
                let output = &mut output[block.offset()..];
                product_into(
                    ProductOutput::Replace,
                    output,
                    columns,
                    weights,
                    block.keys(inputs.value),
                );
            });
        });
    }

    /// The gradients of query, key and value; `outputs` are zeros.
    pub(super) fn backward(
        &self,
        inputs: Inputs<'_>,
        weighing: &Weighing,
        gradient: &[f32],
        outputs: &mut [&mut [f32]; 3],
    ) {
        self.blocks(|block| {
            let len = block.count * self.shape.keys;
            with_scratch(2 * len, |scratch| {
                let (weights, slopes) = scratch.split_at_mut(len);
                let given = Given { inputs, weighing, gradient };
                given.back_through(&block, weights, slopes, outputs);
            });
        });
    }
}

/// What every query gets, `[batch, queries, heads * width]`.
pub fn forward(shape: &AttentionShape, inputs: Inputs<'_>, weighing: &Weighing) -> Vec<f32> {
    let piece = shape.queries * shape.columns();
    let (output, _) = in_pieces(shape.batch * piece, piece, shape.batch, |number, output| {
        Sequence { shape, number, base: 0 }.forward(inputs, weighing, output.zeroed());
    });
    output
}

/// The softmax of a row in place.
fn softmax(row: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            let shift = largest(row);
            let sum = exponentials(row, shift);
            let factor = 1.0 / sum;
            row.iter_mut().for_each(|value| *value *= factor);
        },
    );
}

/// The gradients of query, key and value.
pub fn backward(
    shape: &AttentionShape,
    inputs: Inputs<'_>,
    weighing: &Weighing,
    gradient: &[f32],
) -> [Vec<f32>; 3] {
    let columns = shape.columns();
    let pieces = [shape.queries, shape.keys, shape.keys].map(|places| places * columns);
    in_pieces_of(pieces, shape.batch, |number, mut outputs| {
        let sequence = Sequence { shape, number, base: 0 };
        sequence.backward(inputs, weighing, gradient, &mut outputs);
    })
}

/// What the backward pass is given.
#[derive(Clone, Copy)]
struct Given<'a> {
    inputs: Inputs<'a>,
    weighing: &'a Weighing,
    gradient: &'a [f32],
}

impl Given<'_> {
    /// Adds one block's part to the gradients of its sequence.
    fn back_through(
        &self,
        block: &QueryBlock<'_>,
        weights: &mut [f32],
        slopes: &mut [f32],
        [of_query, of_key, of_value]: &mut [&mut [f32]; 3],
    ) {
        let (keys, columns) = (block.shape.keys, block.shape.columns());
        let head = block.head * block.shape.width;
        let dropout = self.weighing.dropout;
        let gradient = block.queries(self.gradient);
        block.scores(self.inputs, self.weighing, weights);
        // Not from a logarithm that the forward pass kept: next to a masked score of -1e9 it would be lost in rounding.
        weights.chunks_mut(keys).for_each(softmax);
        // The value's gradient is of the weights that were left by the dropout, the scores' of all.
        slopes.copy_from_slice(weights);
        block.drop_out(dropout, slopes);
        let transposed = Matrix::new(slopes, block.count, keys).transposed();
        product_into(ProductOutput::Add, &mut of_value[head..], columns, transposed, gradient);
        let value = block.keys(self.inputs.value).transposed();
        product(ProductOutput::Replace, slopes, gradient, value);
        block.drop_out(dropout, slopes);
        self.through_softmax(block, weights, slopes);
        let slopes = Matrix::new(slopes, block.count, keys);
        let of_query = &mut of_query[block.offset()..];
        product_into(
            ProductOutput::Replace,
            of_query,
            columns,
            slopes,
            block.keys(self.inputs.key),
        );
        let (slopes, query) = (slopes.transposed(), block.queries(self.inputs.query));
        product_into(ProductOutput::Add, &mut of_key[head..], columns, slopes, query);
    }

    /// From the gradient of weights to that of scores, in place.
    fn through_softmax(&self, block: &QueryBlock<'_>, weights: &[f32], slopes: &mut [f32]) {
        let (keys, scale) = (block.shape.keys, block.shape.scale());
        for (at, (row, weights)) in slopes.chunks_mut(keys).zip(weights.chunks(keys)).enumerate() {
            wide(
                #[inline(always)]
                || {
                    let along = dot(row, weights);
                    for (slope, weight) in row.iter_mut().zip(weights) {
                        *slope = weight * (*slope - along) * scale;
                    }
                },
            );
            let masks = self.weighing.masks.of(block.shape, block.sequence, block.first + at);
            masks.into_iter().flatten().for_each(|mask| fill(row, mask, 0.0));
        }
    }
}
