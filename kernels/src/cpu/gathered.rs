//! Convolutions with few pixels, several samples at once: the weights of a wide layer are then read once for all of
//! them, where a product for each sample would read them for a handful of columns.
//!
//! Samples are rows of the product, and rows have the same bits whatever is beside them: a sample alone gives what it
//! gives among others.

use super::buffer::with_scratch;
use super::elementwise::relu_piece;
use super::im2col::{col2im, im2col};
use super::product::{Matrix, ProductOutput, product};
use super::shape::ConvShape;

/// With more pixels each sample has enough of them for a product of its own.
const MOST_PIXELS: usize = 64;

/// Pixels that are multiplied together.
const ROWS: usize = 256;

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
        let rows = self.count(samples) * self.pixels;
        with_scratch((taps + channels) * rows, |scratch| {
            let (columns, found) = scratch.split_at_mut(taps * rows);
            let columns = self.columns(samples, columns);
            let filters = Matrix::new(weight, channels, taps).transposed();
            product(ProductOutput::Replace, found, columns.transposed(), filters);
            let parts = found.chunks_exact(self.pixels * channels);
            for (part, out) in parts.zip(out.chunks_exact_mut(self.shape.sample_out())) {
                for (channel, plane) in out.chunks_exact_mut(self.pixels).enumerate() {
                    let bias = then.bias.map_or(0.0, |bias| bias[channel]);
                    let column = part.iter().skip(channel).step_by(channels);
                    plane.iter_mut().zip(column).for_each(|(out, value)| *out = *value + bias);
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
            let planes = self.planes(gradient, planes);
            product(ProductOutput::Add, target, planes, columns.transposed());
        });
    }

    /// Adds the gradient of samples to `target`.
    pub(super) fn input_gradient(&self, gradient: &[f32], weight: &[f32], target: &mut [f32]) {
        let (taps, channels) = (self.shape.taps(), self.shape.channels_out);
        let rows = self.count(target) * self.pixels;
        with_scratch((taps + channels) * rows, |scratch| {
            let (columns, planes) = scratch.split_at_mut(taps * rows);
            let planes = self.planes(gradient, planes);
            let filters = Matrix::new(weight, channels, taps).transposed();
            product(ProductOutput::Replace, columns, filters, planes);
            for (at, sample) in target.chunks_exact_mut(self.shape.sample_in()).enumerate() {
                let columns = &columns[at * self.pixels..];
                col2im(self.shape, self.shape.channels_in, columns, rows, sample);
            }
        });
    }

    /// The windows of all samples as columns, `[taps, samples * pixels]`.
    fn columns<'b>(&self, samples: &[f32], scratch: &'b mut [f32]) -> Matrix<'b> {
        let rows = self.count(samples) * self.pixels;
        if self.shape.padding != [(0, 0); 2] {
            scratch.fill(0.0);
        }
        for (at, sample) in samples.chunks_exact(self.shape.sample_in()).enumerate() {
            let columns = &mut scratch[at * self.pixels..];
            im2col(self.shape, self.shape.channels_in, sample, columns, rows);
        }
        Matrix::new(scratch, self.shape.taps(), rows)
    }

    /// The planes of all samples beside each other, `[channels, samples * pixels]`.
    fn planes<'b>(&self, gradient: &[f32], scratch: &'b mut [f32]) -> Matrix<'b> {
        let (channels, pixels) = (self.shape.channels_out, self.pixels);
        let samples = gradient.chunks_exact(self.shape.sample_out());
        let rows = samples.len() * pixels;
        for (at, sample) in samples.enumerate() {
            for (channel, plane) in sample.chunks_exact(pixels).enumerate() {
                scratch[channel * rows + at * pixels..][..pixels].copy_from_slice(plane);
            }
        }
        Matrix::new(scratch, channels, rows)
    }
}
