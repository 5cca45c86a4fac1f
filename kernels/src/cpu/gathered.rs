//! Convolutions with few pixels, several samples at once: the weights of a wide layer are then read once for all of
//! them, where a product for each sample would read them for a handful of columns.
//!
//! Pixels are columns of the product, and columns have the same bits whatever is beside them: a sample alone gives what
//! it gives among others.

use super::buffer::{in_pieces, with_scratch};
use super::direct::copy;
use super::elementwise::{mask_piece, relu_piece};
use super::im2col::{col2im, im2col};
use super::product::{Matrix, ProductOutput, product};
use super::shape::ConvShape;
use super::tasks::share_pieces;

/// With more pixels each sample has enough of them for a product of its own.
const MOST_PIXELS: usize = 64;

/// Pixels that are multiplied together.
const ROWS: usize = 256;

/// Weights from which on threads share filters.
const MANY_WEIGHTS: usize = 1 << 16;

/// Pixels whose products with the gradient are added up at once.
const SUMMED: usize = 512;

/// Parts that threads share, a matter of the shape alone.
const MOST_PIECES: usize = 16;

/// Filters whose gradient a thread sums at once, at least.
const LEAST_FILTERS: usize = 32;

/// A convolution of several samples.
pub(super) struct Gathered<'a> {
    shape: &'a ConvShape,
    /// Pixels of a sample's output.
    pixels: usize,
    /// Samples that are multiplied together.
    pub(super) samples: usize,
}

/// What comes after the product, while its output is in the cache.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a> {
    /// Added to each channel.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) relu: bool,
}

impl<'a> Gathered<'a> {
    /// Nothing for groups of channels, and where samples have pixels enough.
    pub(super) fn new(shape: &'a ConvShape) -> Option<Self> {
        let pixels = shape.pixels_out();
        let serves = shape.groups == 1 && (1..=MOST_PIXELS).contains(&pixels) && shape.taps() > 0;
        // At least two parts of a batch, so that two threads have work.
        let samples = || ROWS.div_ceil(pixels).min(shape.batch.div_ceil(2)).max(1);
        serves.then(|| Self { shape, pixels, samples: samples() })
    }

    fn count(&self, samples: &[f32]) -> usize {
        samples.len() / self.shape.sample_in()
    }

    /// The convolution of samples, with bias and ReLU if asked for.
    pub(super) fn forward(
        &self,
        samples: &[f32],
        weight: &[f32],
        then: Epilogue<'_>,
        out: &mut [f32],
    ) {
        let (taps, channels) = (self.shape.taps(), self.shape.channels_out);
        let rows = self.columns_of(samples);
        with_scratch((taps + channels) * rows, |scratch| {
            let (columns, found) = scratch.split_at_mut(taps * rows);
            let columns = self.columns(samples, columns);
            product(ProductOutput::Replace, found, Matrix::new(weight, channels, taps), columns);
            for (at, out) in out.chunks_exact_mut(self.shape.sample_out()).enumerate() {
                for (channel, plane) in out.chunks_exact_mut(self.pixels).enumerate() {
                    let bias = then.bias.map_or(0.0, |bias| bias[channel]);
                    let found = &found[channel * rows + at * self.pixels..];
                    plane.iter_mut().zip(found).for_each(|(out, value)| *out = *value + bias);
                }
            }
        });
        if then.relu {
            relu_piece(out);
        }
    }

    /// Adds the gradient of the weights by these samples to `target`.
    pub(super) fn weight_gradient(&self, samples: &[f32], gradient: &[f32], target: &mut [f32]) {
        let (taps, channels) = (self.shape.taps(), self.shape.channels_out);
        let rows = self.count(samples) * self.pixels;
        with_scratch((taps + channels) * rows, |scratch| {
            let (columns, planes) = scratch.split_at_mut(taps * rows);
            let columns = self.columns(samples, columns);
            let planes = self.planes(gradient, None, planes);
            product(ProductOutput::Add, target, planes, columns.transposed());
        });
    }

    /// Whether threads share filters rather than samples for the weights' gradient ([`Self::weights`]): were it
    /// samples, each thread would have large weights of its own to write and to add up.
    pub(super) fn has_many_weights(&self) -> bool {
        self.shape.weights() >= MANY_WEIGHTS
    }

    /// The gradient of the weights by all samples; pixels whose `relu_output` is not above zero do not count.
    pub(super) fn weights(
        &self,
        input: &[f32],
        gradient: &[f32],
        relu_output: Option<&[f32]>,
    ) -> Vec<f32> {
        let (taps, channels) = (self.shape.taps(), self.shape.channels_out);
        let (sample_in, sample_out) = (self.shape.sample_in(), self.shape.sample_out());
        let samples = SUMMED.div_ceil(self.pixels).min(self.shape.batch.max(1));
        let filters = channels.div_ceil(MOST_PIECES).max(LEAST_FILTERS);
        let mut weights = Vec::new();
        for first in (0..self.shape.batch).step_by(samples) {
            let count = samples.min(self.shape.batch - first);
            let rows = count * self.pixels;
            with_scratch((taps + channels) * rows, |scratch| {
                let (columns, planes) = scratch.split_at_mut(taps * rows);
                self.share_columns(&input[first * sample_in..][..count * sample_in], columns);
                let part = first * sample_out..(first + count) * sample_out;
                let planes =
                    self.planes(&gradient[part.clone()], relu_output.map(|all| &all[part]), planes);
                let columns = Matrix::new(columns, taps, rows).transposed();
                let sum = |mode, at: usize, out: &mut [f32]| {
                    let own = planes.rows(at * filters, out.len() / taps);
                    product(mode, out, own, columns);
                };
                if first > 0 {
                    share_pieces(&mut weights, filters * taps, |at, out| {
                        sum(ProductOutput::Add, at, out);
                    });
                    return;
                }
                let pieces = channels.div_ceil(filters);
                (weights, _) = in_pieces(channels * taps, filters * taps, pieces, |at, out| {
                    sum(ProductOutput::Replace, at, out.zeroed());
                });
            });
        }
        weights
    }

    /// Adds the gradient of samples to `target`.
    pub(super) fn input_gradient(&self, gradient: &[f32], weight: &[f32], target: &mut [f32]) {
        let (taps, channels) = (self.shape.taps(), self.shape.channels_out);
        let rows = self.count(target) * self.pixels;
        with_scratch((taps + channels) * rows, |scratch| {
            let (columns, planes) = scratch.split_at_mut(taps * rows);
            let planes = self.planes(gradient, None, planes);
            let filters = Matrix::new(weight, channels, taps).transposed();
            product(ProductOutput::Replace, columns, filters, planes);
            for (at, sample) in target.chunks_exact_mut(self.shape.sample_in()).enumerate() {
                let columns = &columns[at * self.pixels..];
                if self.shape.is_pointwise() {
                    for (plane, row) in
                        sample.chunks_exact_mut(self.pixels).zip(columns.chunks(rows))
                    {
                        copy(&row[..self.pixels], plane);
                    }
                } else {
                    col2im(self.shape, self.shape.channels_in, columns, rows, sample);
                }
            }
        });
    }

    /// Columns that samples have: one for each pixel, and one of zeros beside a single one, which would be summed in
    /// another order.
    fn columns_of(&self, samples: &[f32]) -> usize {
        (self.count(samples) * self.pixels).max(2)
    }

    /// The windows of all samples as columns, `[taps, samples * pixels]`.
    fn columns<'b>(&self, samples: &[f32], scratch: &'b mut [f32]) -> Matrix<'b> {
        let pixels = self.count(samples) * self.pixels;
        let rows = scratch.len() / self.shape.taps();
        if self.shape.padding != [(0, 0); 2] || pixels < rows {
            scratch.fill(0.0);
        }
        for (at, sample) in samples.chunks_exact(self.shape.sample_in()).enumerate() {
            let columns = &mut scratch[at * self.pixels..];
            self.windows(self.shape.channels_in, sample, columns, rows);
        }
        Matrix::new(scratch, self.shape.taps(), rows)
    }

    /// [`Self::columns`] by all threads, each for some channels.
    fn share_columns(&self, samples: &[f32], columns: &mut [f32]) {
        let rows = self.count(samples) * self.pixels;
        let window = self.shape.kernel[0] * self.shape.kernel[1];
        let plane = self.shape.size[0] * self.shape.size[1];
        let channels = self.shape.channels_in.div_ceil(MOST_PIECES).max(1);
        share_pieces(columns, channels * window * rows, |piece, columns| {
            if self.shape.padding != [(0, 0); 2] {
                columns.fill(0.0);
            }
            let own = columns.len() / (window * rows);
            for (at, sample) in samples.chunks_exact(self.shape.sample_in()).enumerate() {
                let sample = &sample[piece * channels * plane..][..own * plane];
                self.windows(own, sample, &mut columns[at * self.pixels..], rows);
            }
        });
    }

    /// The windows of `channels` channels of a sample, in rows that begin `row` values apart; zeros stay as they are.
    fn windows(&self, channels: usize, sample: &[f32], columns: &mut [f32], row: usize) {
        if !self.shape.is_pointwise() {
            return im2col(self.shape, channels, sample, columns, row);
        }
        for (plane, row) in sample.chunks_exact(self.pixels).zip(columns.chunks_mut(row)) {
            copy(plane, &mut row[..self.pixels]);
        }
    }

    /// The planes of all samples beside each other, `[channels, samples * pixels]`, with zeros where `relu_output` has
    /// them.
    fn planes<'b>(
        &self,
        gradient: &[f32],
        relu_output: Option<&[f32]>,
        scratch: &'b mut [f32],
    ) -> Matrix<'b> {
        let (channels, pixels) = (self.shape.channels_out, self.pixels);
        let samples = gradient.chunks_exact(self.shape.sample_out());
        let rows = samples.len() * pixels;
        for (at, sample) in samples.enumerate() {
            for (channel, plane) in sample.chunks_exact(pixels).enumerate() {
                let target = &mut scratch[channel * rows + at * pixels..][..pixels];
                copy(plane, target);
                if let Some(output) = relu_output {
                    mask_piece(target, &output[at * sample.len() + channel * pixels..][..pixels]);
                }
            }
        }
        Matrix::new(scratch, channels, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::conv::{Saved, WantedGradients, backward};
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let value = |at: usize| (at as u32 ^ seed).wrapping_mul(2_654_435_761) >> 8;
        (0..count).map(|at| value(at) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn many_weights_are_summed_by_filters_to_the_same_bits_on_any_threads() {
        // More samples than are summed at once, and a number of filters that pieces do not divide.
        let shape = ConvShape {
            batch: 130,
            channels_in: 520,
            channels_out: 130,
            size: [2, 2],
            kernel: [3, 3],
            stride: [1, 1],
            padding: [(1, 1); 2],
            dilation: [1, 1],
            groups: 1,
        };
        assert!(Gathered::new(&shape).is_some_and(|found| found.has_many_weights()));
        let (input, weight) =
            (values(shape.batch * shape.sample_in(), 1), values(shape.weights(), 2));
        let gradient = values(shape.batch * shape.sample_out(), 3);
        let output = values(gradient.len(), 4);
        let saved = Saved { input: &input, weight: &weight, relu_output: Some(&output) };
        let wanted = WantedGradients { input: false, weight: true, bias: false };
        let sum = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let work = || backward(&shape, saved, &gradient, wanted).weight;
            pool.expect("threads start").install(work).expect("it was wanted")
        };
        let found = sum(1);
        assert_eq!(bits(&found), bits(&sum(3)));
        // One weight, by hand: filter 129, channel 519, the tap in the middle, which meets every pixel.
        let pixels = shape.pixels_out();
        let sums = (0..shape.batch).flat_map(|sample| (0..pixels).map(move |at| (sample, at)));
        let expected: f64 = sums
            .map(|(sample, at)| {
                let out = sample * shape.sample_out() + 129 * pixels + at;
                let kept = if output[out] > 0.0 { gradient[out] } else { 0.0 };
                f64::from(kept) * f64::from(input[sample * shape.sample_in() + 519 * pixels + at])
            })
            .sum();
        let found = f64::from(found[129 * shape.taps() + 519 * 9 + 4]);
        assert!((found - expected).abs() < 1e-3, "{found} is not {expected}");
    }
}
