//! Convolutions of one tap: matrix products on planes as they lie, without columns. Vectors are neighbouring pixels,
//! and what a product reads of them is first laid side by side: planes are often at powers of two, where they push
//! each other out of the cache.
#![expect(unsafe_code, reason = "calls panels, whose pointers are checked here")]

use std::mem::MaybeUninit;

use super::buffer::{Fresh, with_scratch};
use super::interleaved::{LANES, as_lanes, interleave};
use super::panel::{Panel, Panels};
use super::shape::ConvShape;

/// With fewer pixels the samples of a batch are better multiplied together.
const FEWEST_PIXELS: usize = 64;

/// Pixels that a sum over pixels takes at once.
const SUMMED: usize = 64;

/// A convolution of one tap.
pub(crate) struct Pointwise {
    panels: &'static Panels,
    channels: usize,
    filters: usize,
    pixels: usize,
}

/// A matrix of weights: rows, and how far rows and the values of a row are from each other.
#[derive(Clone, Copy)]
struct Mix<'a> {
    weight: &'a [f32],
    rows: usize,
    inner: usize,
    row: usize,
    step: usize,
}

impl Pointwise {
    /// The convolution, if there are panels for it and it is one.
    pub(crate) fn new(shape: &ConvShape) -> Option<Self> {
        Panels::all().next().and_then(|panels| Self::with(panels, shape))
    }

    fn with(panels: &'static Panels, shape: &ConvShape) -> Option<Self> {
        let pixels = shape.pixels_out();
        let serves = shape.is_pointwise() && shape.groups == 1 && pixels >= FEWEST_PIXELS;
        let there = shape.channels_in > 0 && shape.channels_out > 0;
        let (channels, filters) = (shape.channels_in, shape.channels_out);
        (serves && there).then_some(Self { panels, channels, filters, pixels })
    }

    /// The convolution of a sample.
    pub(crate) fn forward<'a>(
        &self,
        sample: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: Fresh<'a>,
    ) -> &'a mut [f32] {
        let (rows, inner) = (self.filters, self.channels);
        // Most have none, which reaches this as zeros.
        let bias = bias.filter(|bias| bias.iter().any(|value| *value != 0.0));
        self.mix(Mix { weight, rows, inner, row: inner, step: 1 }, sample, bias, out)
    }

    /// The gradient of a sample's input.
    pub(crate) fn input_gradient(&self, gradient: &[f32], weight: &[f32], target: Fresh) {
        let (rows, inner) = (self.channels, self.filters);
        self.mix(Mix { weight, rows, inner, row: 1, step: rows }, gradient, None, target);
    }

    fn mix<'a>(
        &self,
        mix: Mix<'_>,
        planes: &[f32],
        bias: Option<&[f32]>,
        out: Fresh<'a>,
    ) -> &'a mut [f32] {
        assert!(mix.weight.len() >= mix.rows * mix.inner, "fewer weights than products");
        assert!(planes.len() >= mix.inner * self.pixels, "fewer planes than weights");
        assert_eq!(out.len(), mix.rows * self.pixels, "wrong size of the output");
        // SAFETY: the blocks cover all pixels, and a panel writes all rows of a block.
        unsafe { out.written(|out| self.write(mix, planes, bias, out)) }
    }

    /// Writes all pixels of all rows.
    fn write(
        &self,
        mix: Mix<'_>,
        planes: &[f32],
        bias: Option<&[f32]>,
        out: &mut [MaybeUninit<f32>],
    ) {
        let most = self.panels.vectors(4) * LANES;
        with_scratch(mix.inner * most, |block| {
            for (first, vectors) in self.blocks() {
                let width = vectors * LANES;
                let rows = planes.chunks_exact(self.pixels).zip(block.chunks_exact_mut(width));
                rows.take(mix.inner).for_each(|(plane, row)| {
                    row.copy_from_slice(&plane[first..][..width]);
                });
                if let Some(bias) = bias {
                    for (plane, bias) in out.chunks_exact_mut(self.pixels).zip(bias) {
                        plane[first..][..width].fill(MaybeUninit::new(*bias));
                    }
                }
                let panel = Panel {
                    left: mix.weight.as_ptr(),
                    row: mix.row,
                    step: mix.step,
                    right: block.as_ptr(),
                    right_step: width,
                    inner: mix.inner,
                    out: out[first..].as_mut_ptr().cast(),
                    out_row: self.pixels,
                    add: bias.is_some(),
                };
                // SAFETY: the sizes were checked by the caller, and the block is inside of the pixels; sums that are
                // added to were just written; the panels are those of this CPU.
                unsafe { self.panels.multiply(mix.rows, vectors, panel) };
            }
        });
    }

    /// The first pixel and the vectors of each block. A rest that fills no vector is computed once more, with pixels
    /// before it.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (panels, pixels) = (self.panels, self.pixels);
        let mut first = 0;
        std::iter::from_fn(move || {
            let left = pixels.checked_sub(first).filter(|left| *left > 0)?;
            let vectors = panels.vectors((left / LANES).max(1));
            let start = first.min(pixels - vectors * LANES);
            first = start + vectors * LANES;
            Some((start, vectors))
        })
    }

    /// Whether filters are the shorter side of the weights, whose gradient is then summed with rows and columns
    /// exchanged.
    fn across(&self) -> bool {
        self.filters < self.channels
    }

    /// Channels of the longer side, and of the shorter one in whole vectors.
    fn sizes(&self) -> [usize; 2] {
        let (long, short) = match self.across() {
            true => (self.channels, self.filters),
            false => (self.filters, self.channels),
        };
        [long, short.next_multiple_of(LANES)]
    }

    /// Sums for the weights' gradient in the order of this kernel, all zero; [`Self::finish`] gives the weights' own.
    pub(crate) fn gradient_sums(&self) -> Vec<f32> {
        vec![0.0; self.sizes().iter().product()]
    }

    /// Adds a sample to the gradient of the weights.
    pub(crate) fn add_weight_gradient(&self, sample: &[f32], gradient: &[f32], sums: &mut [f32]) {
        let [long, width] = self.sizes();
        let pixels = self.pixels;
        let (rows, columns) = if self.across() { (sample, gradient) } else { (gradient, sample) };
        assert!(rows.len() >= long * pixels && sums.len() >= long * width, "wrong sizes");
        with_scratch(pixels * width + long * SUMMED, |scratch| {
            let (vectors, block) = scratch.split_at_mut(pixels * width);
            self.side_by_side(columns, width, vectors);
            for first in (0..pixels).step_by(SUMMED) {
                let count = SUMMED.min(pixels - first);
                let planes = rows.chunks_exact(pixels).zip(block.chunks_exact_mut(SUMMED));
                planes.for_each(|(plane, row)| {
                    row[..count].copy_from_slice(&plane[first..][..count]);
                });
                let mut column = 0;
                while column < width {
                    let group = self.panels.vectors((width - column) / LANES);
                    let panel = Panel {
                        left: block.as_ptr(),
                        row: SUMMED,
                        step: 1,
                        right: vectors[first * width + column..].as_ptr(),
                        right_step: width,
                        inner: count,
                        out: sums[column..].as_mut_ptr(),
                        out_row: width,
                        add: true,
                    };
                    // SAFETY: the sums have so many rows and columns, and the block and the vectors so many pixels; the
                    // panels are those of this CPU.
                    unsafe { self.panels.multiply(long, group, panel) };
                    column += group * LANES;
                }
            }
        });
    }

    /// Planes as vectors of channels, `[pixels, channels]`, with zeros behind the last channel.
    fn side_by_side(&self, planes: &[f32], width: usize, to: &mut [f32]) {
        with_scratch(self.pixels * LANES, |plain| {
            let plain = as_lanes(plain);
            for (block, planes) in planes.chunks(LANES * self.pixels).enumerate() {
                interleave(planes, self.pixels, plain);
                for (vector, to) in plain.iter().zip(to.chunks_exact_mut(width)) {
                    to[block * LANES..][..LANES].copy_from_slice(vector);
                }
            }
        });
    }

    /// The weights' gradient from its sums.
    pub(crate) fn finish(&self, sums: &[f32]) -> Vec<f32> {
        let [_, width] = self.sizes();
        let place = |filter: usize, channel: usize| match self.across() {
            true => channel * width + filter,
            false => filter * width + channel,
        };
        let filters = 0..self.filters;
        filters
            .flat_map(|filter| (0..self.channels).map(move |channel| (filter, channel)))
            .map(|(filter, channel)| sums[place(filter, channel)])
            .collect()
    }
}

#[cfg(test)]
mod tests;
