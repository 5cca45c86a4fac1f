//! Convolutions of planes with a handful of pixels, for training: for every pair of pixels that meet at a tap a matrix
//! product over channels, whose rows are samples. Where a window is mostly padding, columns would be mostly zeros: of
//! the 36 pairs that columns of 2 x 2 pixels and 3 x 3 taps hold, 16 exist.
//!
//! Rows are the samples of a batch, so that inference, which has few of them, does without.
#![expect(unsafe_code, reason = "calls panels, whose pointers are checked here")]

use super::buffer::{Planes, by_channel, in_pieces, with_scratch};
use super::interleaved::{LANES, as_lanes, interleave, separate};
use super::panel::{Panel, Panels};
use super::prefetch::prefetch;
use super::shape::{ConvShape, Window};
use super::tasks::share_pieces;

/// More pixels have no need of it.
const MOST_PIXELS: usize = 16;

/// Fewer samples are too short a matrix.
const FEWEST_SAMPLES: usize = 16;

/// Filters that are asked for ahead of time: they lie too far apart for the CPU to guess.
const AHEAD: usize = 2;

/// A convolution pixel by pixel.
pub(crate) struct Pixelwise {
    panels: &'static Panels,
    shape: ConvShape,
    /// For every pixel of the output: taps, and the pixels of the input that they read.
    reads: Vec<Vec<Meeting>>,
    /// For every pixel of the input: taps, and the pixels of the output that read it by them.
    readers: Vec<Vec<Meeting>>,
}

/// A tap and the pixel on its other side.
#[derive(Clone, Copy)]
struct Meeting {
    tap: usize,
    pixel: usize,
}

/// One side of a convolution, channels last: `[samples, pixels, channels]`.
#[derive(Clone, Copy)]
struct Side<'a> {
    values: &'a [f32],
    pixels: usize,
    channels: usize,
}

/// One side and what the pixels of the other one meet of it.
#[derive(Clone, Copy)]
struct Met<'a> {
    source: Side<'a>,
    meetings: &'a [Vec<Meeting>],
}

impl Pixelwise {
    /// The convolution, if there are panels for it and it has few pixels.
    pub(crate) fn new(shape: &ConvShape) -> Option<Self> {
        Panels::all().next().and_then(|panels| Self::with(panels, shape))
    }

    fn with(panels: &'static Panels, shape: &ConvShape) -> Option<Self> {
        let fill = |channels: usize| channels > 0 && channels.is_multiple_of(LANES);
        let few = shape.is_valid() && (1..=MOST_PIXELS).contains(&shape.pixels_out());
        let there = shape.batch >= FEWEST_SAMPLES && !shape.size.contains(&0);
        let serves = few && there && shape.groups == 1;
        if !(serves && fill(shape.channels_in) && fill(shape.channels_out)) {
            return None;
        }
        let [width, columns] = [shape.size[1], shape.out()[1]];
        let [down, along] = [0, 1].map(|axis| Window::of_conv(shape, axis));
        let mut reads = vec![Vec::new(); shape.pixels_out()];
        let mut readers = vec![Vec::new(); shape.size[0] * width];
        for (out, reads) in reads.iter_mut().enumerate() {
            for tap in 0..shape.kernel[0] * shape.kernel[1] {
                let row = down.at(out / columns, tap / shape.kernel[1]);
                let column = along.at(out % columns, tap % shape.kernel[1]);
                if let (Some(row), Some(column)) = (row, column) {
                    let pixel = row * width + column;
                    reads.push(Meeting { tap, pixel });
                    readers[pixel].push(Meeting { tap, pixel: out });
                }
            }
        }
        Some(Self { panels, shape: *shape, reads, readers })
    }

    fn window(&self) -> usize {
        self.shape.kernel[0] * self.shape.kernel[1]
    }

    /// Vectors of the groups that so many channels are cut into.
    fn vectors(&self, channels: usize) -> usize {
        let fits = |vectors: &usize| (channels / LANES).is_multiple_of(*vectors);
        [4, 2].into_iter().filter(fits).map(|most| self.panels.vectors(most)).max().unwrap_or(1)
    }

    /// The convolution of a batch.
    pub(crate) fn forward(&self, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let (channels, taps) = (self.shape.channels_in, self.shape.taps());
        let pack = |first: usize, to: &mut [f32], width: usize| {
            with_scratch(taps * LANES, |packed| {
                let packed = as_lanes(packed);
                for vector in (0..width).step_by(LANES) {
                    interleave(&weight[(first + vector) * taps..][..LANES * taps], taps, packed);
                    for (channel, packed) in packed.chunks_exact(self.window()).enumerate() {
                        for (tap, values) in packed.iter().enumerate() {
                            let place = (tap * channels + channel) * width + vector;
                            to[place..][..LANES].copy_from_slice(values);
                        }
                    }
                }
            });
        };
        with_scratch(input.len(), |scratch| {
            let source = channels_last(input, self.readers.len(), channels, scratch);
            self.sums(Met { source, meetings: &self.reads }, self.shape.channels_out, bias, pack)
        })
    }

    /// The gradients of the input and of the weights, where wanted.
    pub(crate) fn backward(
        &self,
        [input, weight, gradient]: [&[f32]; 3],
        [of_input, of_weight]: [bool; 2],
    ) -> [Option<Vec<f32>>; 2] {
        let (channels, filters) = (self.shape.channels_in, self.shape.channels_out);
        let inputs = if of_weight { input.len() } else { 0 };
        with_scratch(gradient.len() + inputs, |scratch| {
            let (scratch, inputs) = scratch.split_at_mut(gradient.len());
            let gradient = channels_last(gradient, self.reads.len(), filters, scratch);
            let of_weight = of_weight.then(|| {
                self.weights(channels_last(input, self.readers.len(), channels, inputs), gradient)
            });
            [of_input.then(|| self.input_gradient(gradient, weight)), of_weight]
        })
    }

    fn input_gradient(&self, gradient: Side<'_>, weight: &[f32]) -> Vec<f32> {
        let (window, taps, filters) = (self.window(), self.shape.taps(), self.shape.channels_out);
        let pack = |first: usize, to: &mut [f32], width: usize| {
            with_scratch(window * LANES, |packed| {
                let packed = as_lanes(packed);
                let part = |filter: usize| (filter * taps + first * window, width * window);
                for filter in 0..filters {
                    let (next, len) = part(filter + AHEAD);
                    prefetch(weight.get(next..next + len));
                    let (start, len) = part(filter);
                    let blocks = weight[start..][..len].chunks_exact(LANES * window);
                    for (vector, weight) in blocks.enumerate() {
                        match window {
                            1 => packed[0].copy_from_slice(weight),
                            _ => interleave(weight, window, packed),
                        }
                        for (tap, values) in packed.iter().enumerate() {
                            let place = (tap * filters + filter) * width + vector * LANES;
                            to[place..][..LANES].copy_from_slice(values);
                        }
                    }
                }
            });
        };
        let met = Met { source: gradient, meetings: &self.readers };
        self.sums(met, self.shape.channels_in, None, pack)
    }

    /// For every pixel the sum over what it meets. `pack(channel, weights, width)` writes the weights for so many
    /// channels from this one on, `[taps, source's channels, width]`.
    fn sums(
        &self,
        met: Met<'_>,
        channels: usize,
        bias: Option<&[f32]>,
        pack: impl Fn(usize, &mut [f32], usize) + Sync,
    ) -> Vec<f32> {
        let (pixels, vectors, batch) =
            (met.meetings.len(), self.vectors(channels), self.shape.batch);
        let width = vectors * LANES;
        let weights_len = self.window() * met.source.channels * width;
        let dims = [batch, channels / width, width * pixels];
        let ([output], _) = by_channel(dims, |group, [planes]: &mut [Planes; 1]| {
            with_scratch(weights_len + (batch * width + LANES) * pixels, |scratch| {
                let (weights, rest) = scratch.split_at_mut(weights_len);
                let (sums, plain) = rest.split_at_mut(batch * width * pixels);
                pack(group * width, weights, width);
                self.multiply(met, weights, vectors, sums);
                let plain = as_lanes(plain);
                for (sums, planes) in sums.chunks_exact(width * pixels).zip(planes) {
                    let planes = planes.zeroed().chunks_exact_mut(LANES * pixels);
                    for (vector, planes) in planes.enumerate() {
                        let mut start = [0.0; LANES];
                        if let Some(bias) = bias {
                            let first = group * width + vector * LANES;
                            start.copy_from_slice(&bias[first..][..LANES]);
                        }
                        for (plain, sums) in plain.iter_mut().zip(sums.chunks_exact(width)) {
                            let sums = &sums[vector * LANES..][..LANES];
                            *plain = std::array::from_fn(|lane| sums[lane] + start[lane]);
                        }
                        separate(plain, pixels, planes);
                    }
                }
            });
        });
        output
    }

    /// The sums of a group of channels, `[samples, pixels, channels]`.
    fn multiply(
        &self,
        Met { source, meetings }: Met<'_>,
        weights: &[f32],
        vectors: usize,
        sums: &mut [f32],
    ) {
        let (width, inner) = (vectors * LANES, source.channels);
        let row = source.pixels * inner;
        assert!(source.values.len() >= self.shape.batch * row, "fewer values than samples");
        assert!(sums.len() >= self.shape.batch * meetings.len() * width, "too little room");
        for (pixel, met) in meetings.iter().enumerate() {
            if met.is_empty() {
                let pixels = sums.chunks_exact_mut(width).skip(pixel).step_by(meetings.len());
                pixels.for_each(|pixel| pixel.fill(0.0));
            }
            for (at, met) in met.iter().enumerate() {
                let panel = Panel {
                    left: source.values[met.pixel * inner..].as_ptr(),
                    row,
                    step: 1,
                    right: weights[met.tap * inner * width..][..inner * width].as_ptr(),
                    right_step: width,
                    inner,
                    out: sums[pixel * width..].as_mut_ptr(),
                    out_row: meetings.len() * width,
                    add: at > 0,
                };
                // SAFETY: a row for each sample, whose pixels are inside of the slices checked above; the weights are a
                // slice of this size; the panels are those of this CPU.
                unsafe { self.panels.multiply(self.shape.batch, vectors, panel) };
            }
        }
    }

    fn weights(&self, input: Side<'_>, gradient: Side<'_>) -> Vec<f32> {
        let (window, taps) = (self.window(), self.shape.taps());
        let (channels, filters) = (input.channels, gradient.channels);
        let vectors = self.vectors(filters);
        let width = vectors * LANES;
        let mut pairs = vec![Vec::new(); window];
        for (out, reads) in self.reads.iter().enumerate() {
            reads.iter().for_each(|met| pairs[met.tap].push((out, met.pixel)));
        }
        let count = filters / width;
        let (weight, _) = in_pieces(filters * taps, width * taps, count, |group, out| {
            with_scratch(taps * (width + LANES), |scratch| {
                let (sums, packed) = scratch.split_at_mut(taps * width);
                let packed = as_lanes(packed);
                for (pairs, sums) in pairs.iter().zip(sums.chunks_exact_mut(channels * width)) {
                    self.add_pairs([input, gradient], group, pairs, sums);
                }
                let out = out.zeroed().chunks_exact_mut(LANES * taps);
                for (vector, out) in out.enumerate() {
                    for (at, packed) in packed.iter_mut().enumerate() {
                        let place = (at % window * channels + at / window) * width;
                        packed.copy_from_slice(&sums[place + vector * LANES..][..LANES]);
                    }
                    separate(packed, taps, out);
                }
            });
        });
        weight
    }

    /// One tap's gradient for a group of filters, `[channels, filters]`.
    fn add_pairs(
        &self,
        [input, gradient]: [Side<'_>; 2],
        group: usize,
        pairs: &[(usize, usize)],
        sums: &mut [f32],
    ) {
        let vectors = self.vectors(gradient.channels);
        let width = vectors * LANES;
        assert!(sums.len() >= input.channels * width, "too little room for the sums");
        let rows =
            |side: Side<'_>| side.values.len() >= self.shape.batch * side.pixels * side.channels;
        assert!(rows(input) && rows(gradient), "fewer values than samples");
        if pairs.is_empty() {
            sums.fill(0.0);
        }
        for (at, (out, read)) in pairs.iter().enumerate() {
            let panel = Panel {
                left: input.values[read * input.channels..].as_ptr(),
                row: 1,
                step: input.pixels * input.channels,
                right: gradient.values[out * gradient.channels + group * width..].as_ptr(),
                right_step: gradient.pixels * gradient.channels,
                inner: self.shape.batch,
                out: sums.as_mut_ptr(),
                out_row: width,
                add: at > 0,
            };
            // SAFETY: a row for each channel and a product for each sample, inside of the slices checked above; the
            // panels are those of this CPU.
            unsafe { self.panels.multiply(input.channels, vectors, panel) };
        }
    }
}

/// Planes of samples with their channels side by side.
fn channels_last<'a>(
    values: &[f32],
    pixels: usize,
    channels: usize,
    to: &'a mut [f32],
) -> Side<'a> {
    let len = pixels * channels;
    share_pieces(to, len, |sample, to| {
        with_scratch(pixels * LANES, |plain| {
            let plain = as_lanes(plain);
            let blocks = values[sample * len..][..len].chunks_exact(LANES * pixels);
            for (block, planes) in blocks.enumerate() {
                interleave(planes, pixels, plain);
                for (vector, to) in plain.iter().zip(to.chunks_exact_mut(channels)) {
                    to[block * LANES..][..LANES].copy_from_slice(vector);
                }
            }
        });
    });
    Side { values: to, pixels, channels }
}

#[cfg(test)]
mod tests;
