//! Depthwise convolution: each channel by a filter of its own (MobileNet, <https://arxiv.org/abs/1704.04861>).
//!
//! Matrix products would have one row here. Instead each line of the output is the sum of shifted lines of the input,
//! one for each tap, which the widest instructions of the machine add up.

use std::ops::Range;

use super::rows::wide;
use super::shape::{ConvShape, Window};

/// Sums that run side by side in a product of two lines.
const LANES: usize = 16;

/// A convolution of one sample, channel by channel.
pub(super) struct Depthwise<'a> {
    shape: &'a ConvShape,
    /// For each tap of a line: the places of the output that it serves, and where it reads for the first of them.
    across: Vec<(Range<usize>, usize)>,
}

impl<'a> Depthwise<'a> {
    /// Nothing unless each channel has a filter of its own, and only one.
    pub(super) fn new(shape: &'a ConvShape) -> Option<Self> {
        let ConvShape { channels_in, channels_out, groups, .. } = *shape;
        if groups == 1 || channels_in != groups || channels_out != groups {
            return None;
        }
        let (window, [_, columns]) = (Window::of_conv(shape, 1), shape.out());
        let across = (0..shape.kernel[1]).map(|tap| window.inside(tap, columns)).collect();
        Some(Self { shape, across })
    }

    /// Adds the convolution of a sample to `out`.
    pub(super) fn forward(&self, sample: &[f32], weight: &[f32], out: &mut [f32]) {
        let (plane_in, plane_out) = (self.plane_in(), self.shape.pixels_out());
        let planes = sample.chunks_exact(plane_in).zip(out.chunks_exact_mut(plane_out));
        for ((input, out), filter) in planes.zip(weight.chunks_exact(self.shape.taps())) {
            wide(
                #[inline(always)]
                || {
                    self.lines(|line, at, tap, inside, first| {
                        let target = &mut out[line..][inside];
                        add_line(target, &input[at..][first..], self.shape.stride[1], filter[tap]);
                    });
                },
            );
        }
    }

    /// Adds the gradient of a sample's input to `target`.
    pub(super) fn input_gradient(&self, gradient: &[f32], weight: &[f32], target: &mut [f32]) {
        let (plane_in, plane_out) = (self.plane_in(), self.shape.pixels_out());
        let planes = gradient.chunks_exact(plane_out).zip(target.chunks_exact_mut(plane_in));
        for ((gradient, target), filter) in planes.zip(weight.chunks_exact(self.shape.taps())) {
            wide(
                #[inline(always)]
                || {
                    self.lines(|line, at, tap, inside, first| {
                        let target = &mut target[at..][first..];
                        spread_line(
                            target,
                            self.shape.stride[1],
                            &gradient[line..][inside],
                            filter[tap],
                        );
                    });
                },
            );
        }
    }

    /// Adds the gradient of the weights by one sample to `target`.
    pub(super) fn weight_gradient(&self, sample: &[f32], gradient: &[f32], target: &mut [f32]) {
        let (plane_in, plane_out) = (self.plane_in(), self.shape.pixels_out());
        let planes = sample.chunks_exact(plane_in).zip(gradient.chunks_exact(plane_out));
        for ((input, gradient), filter) in planes.zip(target.chunks_exact_mut(self.shape.taps())) {
            wide(
                #[inline(always)]
                || {
                    self.lines(|line, at, tap, inside, first| {
                        let (read, by) = (&input[at..][first..], &gradient[line..][inside]);
                        filter[tap] += product_of_lines(read, self.shape.stride[1], by);
                    });
                },
            );
        }
    }

    fn plane_in(&self) -> usize {
        (self.shape.size[0] * self.shape.size[1]).max(1)
    }

    /// Calls `each` for every line of the output and every tap that reads inside: where the line begins, where the line
    /// that it reads begins, the tap, the places that it serves and where it reads for the first of them.
    #[inline(always)]
    fn lines(&self, mut each: impl FnMut(usize, usize, usize, Range<usize>, usize)) {
        let ([rows, columns], width) = (self.shape.out(), self.shape.size[1]);
        let down = Window::of_conv(self.shape, 0);
        for row in 0..rows {
            for above in 0..self.shape.kernel[0] {
                let Some(at) = down.at(row, above) else { continue };
                for (beside, (inside, first)) in self.across.iter().enumerate() {
                    if inside.is_empty() {
                        continue;
                    }
                    let tap = above * self.shape.kernel[1] + beside;
                    each(row * columns, at * width, tap, inside.clone(), *first);
                }
            }
        }
    }
}

#[inline(always)]
fn add_line(target: &mut [f32], read: &[f32], stride: usize, weight: f32) {
    if stride == 1 {
        for (target, value) in target.iter_mut().zip(read) {
            *target += weight * value;
        }
        return;
    }
    for (target, value) in target.iter_mut().zip(read.iter().step_by(stride)) {
        *target += weight * value;
    }
}

#[inline(always)]
fn spread_line(target: &mut [f32], stride: usize, gradient: &[f32], weight: f32) {
    if stride == 1 {
        for (target, gradient) in target.iter_mut().zip(gradient) {
            *target += weight * gradient;
        }
        return;
    }
    for (target, gradient) in target.iter_mut().step_by(stride).zip(gradient) {
        *target += weight * gradient;
    }
}

/// The sum of the products of two lines, in an order that depends on the length alone.
#[inline(always)]
fn product_of_lines(read: &[f32], stride: usize, by: &[f32]) -> f32 {
    if stride != 1 {
        return read.iter().step_by(stride).zip(by).map(|(a, b)| a * b).sum();
    }
    let mut lanes = [0f32; LANES];
    let whole = by.len() / LANES * LANES;
    for (read, by) in read.chunks_exact(LANES).zip(by.chunks_exact(LANES)) {
        for (lane, (a, b)) in lanes.iter_mut().zip(read.iter().zip(by)) {
            *lane += a * b;
        }
    }
    let rest: f32 = read[whole..].iter().zip(&by[whole..]).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}
