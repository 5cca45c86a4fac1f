//! The gradient of a convolution's input: for each phase of the stride, sums over the taps that reach it.
#![expect(unsafe_code, reason = "promises that new memory is written")]

use std::mem::MaybeUninit;

use super::product::Product;
use super::tile::Kernels;
use super::{LANES, PaddedPlane, TileChannels, kernels_for};
use crate::cpu::buffer::{Fresh, as_fresh, with_scratch};
use crate::cpu::shape::ConvShape;

/// The input's gradient of a convolution.
pub(crate) struct InputGradient {
    frame: PaddedPlane,
    phases: Vec<StridePhase>,
    size: [usize; 2],
    stride: [usize; 2],
    channels: usize,
}

/// The pixels of the input at the same place between two windows; with a stride of one, all of them.
struct StridePhase {
    /// The first row and column of these pixels.
    first: [usize; 2],
    product: Product,
}

/// Where the taps of one axis read the output's gradient for the pixels of one phase: tap and offset.
fn offsets(shape: &ConvShape, axis: usize, phase: usize) -> Vec<(usize, isize)> {
    let (stride, before) = (shape.stride[axis] as isize, shape.padding[axis].0 as isize);
    let distance = |tap: usize| phase as isize + before - tap as isize;
    (0..shape.kernel[axis])
        .filter(|tap| distance(*tap) % stride == 0)
        .map(|tap| (tap, distance(tap) / stride))
        .collect()
}

impl InputGradient {
    /// The gradient, if the direct kernel serves it.
    pub(crate) fn new(shape: &ConvShape, weight: &[f32]) -> Option<Self> {
        let kernels = kernels_for(shape, shape.channels_in).filter(|_| !shape.is_pointwise())?;
        Some(Self::with(kernels, shape, weight))
    }

    pub(super) fn with(kernels: &'static Kernels, shape: &ConvShape, weight: &[f32]) -> Self {
        let frame = frame(shape);
        let phases = (0..shape.stride[0] * shape.stride[1])
            .map(|at| [at / shape.stride[1], at % shape.stride[1]])
            .filter(|first| first[0] < shape.size[0] && first[1] < shape.size[1])
            .map(|first| StridePhase {
                first,
                product: product(kernels, shape, weight, &frame, first),
            })
            .collect();
        let (size, stride, channels) = (shape.size, shape.stride, shape.channels_in);
        Self { frame, phases, size, stride, channels }
    }

    /// Computes one sample from the gradient of its output.
    pub(crate) fn run(&self, gradient: &[f32], target: Fresh) {
        assert_eq!(target.len(), self.channels * self.size[0] * self.size[1], "wrong size");
        // SAFETY: the pixels of all phases together are all that there is.
        unsafe { target.written(|target| self.write(gradient, target)) };
    }

    /// Writes every pixel of the target.
    fn write(&self, gradient: &[f32], target: &mut [MaybeUninit<f32>]) {
        let plane = self.size[0] * self.size[1];
        let apart = if self.stride == [1, 1] { 0 } else { self.channels * plane };
        with_scratch(self.frame.scratch() + apart, |scratch| {
            let (scratch, part) = scratch.split_at_mut(self.frame.scratch());
            let gradient = self.frame.pad(gradient, scratch);
            for phase in &self.phases {
                if apart == 0 {
                    phase.product.run(gradient, false, target, plane);
                } else {
                    let pixels = phase.product.out[0] * phase.product.out[1];
                    // SAFETY: the product writes sums.
                    let fresh = unsafe { as_fresh(part) };
                    phase.product.run(gradient, false, fresh, pixels);
                    self.spread(phase, part, target);
                }
            }
        });
    }

    /// Puts the pixels of a phase into their places.
    fn spread(&self, phase: &StridePhase, part: &[f32], target: &mut [MaybeUninit<f32>]) {
        let [rows, columns] = phase.product.out;
        let planes = target.chunks_exact_mut(self.size[0] * self.size[1]);
        for (plane, part) in planes.zip(part.chunks_exact(rows * columns)) {
            for (row, part) in part.chunks_exact(columns).enumerate() {
                let start = (row * self.stride[0] + phase.first[0]) * self.size[1] + phase.first[1];
                let places = plane[start..].iter_mut().step_by(self.stride[1]);
                places.zip(part).for_each(|(place, value)| {
                    place.write(*value);
                });
            }
        }
    }
}

/// How much the output's gradient has to be padded for the taps of all phases.
fn frame(shape: &ConvShape) -> PaddedPlane {
    let out = shape.out();
    let padding = [0, 1].map(|axis| {
        let (mut before, mut after) = (0, 0);
        for phase in 0..shape.stride[axis].min(shape.size[axis]) {
            let pixels = (shape.size[axis] - phase).div_ceil(shape.stride[axis]);
            for (_, offset) in offsets(shape, axis, phase) {
                before = before.max(-offset);
                after = after.max(pixels as isize + offset - out[axis] as isize);
            }
        }
        (before as usize, after as usize)
    });
    PaddedPlane { planes: shape.channels_out, size: out, padding }
}

fn product(
    kernels: &'static Kernels,
    shape: &ConvShape,
    weight: &[f32],
    frame: &PaddedPlane,
    first: [usize; 2],
) -> Product {
    let [height, width] = frame.whole();
    let place = |axis: usize, offset: isize| (frame.padding[axis].0 as isize + offset) as usize;
    let (mut taps, mut sources) = (Vec::new(), Vec::new());
    let window = shape.kernel[0] * shape.kernel[1];
    for filter in 0..shape.channels_out {
        for (ky, y) in offsets(shape, 0, first[0]) {
            for (kx, x) in offsets(shape, 1, first[1]) {
                taps.push((filter * height + place(0, y)) * width + place(1, x));
                sources.push(filter * shape.taps() + ky * shape.kernel[1] + kx);
            }
        }
    }
    let channels = shape.channels_in;
    let mut weights = Vec::with_capacity(channels.next_multiple_of(LANES) * taps.len());
    for group in TileChannels::all(channels, kernels.vectors) {
        for source in &sources {
            let value = |channel: usize| match channel < channels {
                true => weight[source + channel * window],
                false => 0.0,
            };
            weights.extend((group.first..group.first + group.width()).map(value));
        }
    }
    let out = [0, 1].map(|axis| (shape.size[axis] - first[axis]).div_ceil(shape.stride[axis]));
    let bias = vec![0.0; channels.next_multiple_of(LANES)];
    Product { kernels, taps, weights, bias, channels, out, stride: [1, 1], width }
}
