//! Depthwise convolution of the usual filters: three or five taps a side, steps of one or two. Planes lie in frames of
//! zeros, so that every pixel meets all taps, and a filter's weights, or their sums, stay in registers.
#![expect(unsafe_code, reason = "calls the kernels, whose pointers are checked here")]

use super::super::buffer::with_scratch;
use super::super::frame::Frame;
use super::super::interleaved::{LANES, Lanes, as_lanes, interleave, separate};
use super::super::prefetch::prefetch_many;
use super::super::shape::ConvShape;
use super::taps::{Kernels, Taps};

/// A depthwise convolution in frames.
pub(super) struct Framed {
    kernels: &'static Kernels,
    /// Taps of a filter.
    taps: usize,
    stride: usize,
    /// Height and width of the output.
    out: [usize; 2],
    input: Frame,
    /// The output's gradient, for steps of one: a convolution of it by reversed filters is the input's gradient.
    gradient: Frame,
}

/// What is computed on the way back.
pub(super) struct Wanted<'a> {
    /// The weights' gradient, to be added to.
    pub(super) sums: Option<&'a mut [Lanes]>,
    /// The input's gradient.
    pub(super) target: Option<&'a mut [f32]>,
}

impl Framed {
    /// Nothing unless there are kernels for these filters.
    pub(super) fn new(shape: &ConvShape) -> Option<Self> {
        Kernels::all().find_map(|kernels| Self::with(kernels, shape))
    }

    pub(super) fn with(kernels: &'static [Kernels], shape: &ConvShape) -> Option<Self> {
        let ([side, other], [stride, across]) = (shape.kernel, shape.stride);
        let padded = shape.padding.iter().all(|(before, after)| (*before).max(*after) < side);
        let plain = shape.dilation == [1, 1] && side == other && stride == across && padded;
        let serves = |found: &&Kernels| found.side == side && found.stride == stride;
        let kernels = kernels.iter().find(serves).filter(|_| plain)?;
        let (out, size) = (shape.out(), shape.size);
        let before = shape.padding.map(|(before, _)| before);
        let reached = [0, 1].map(|axis| (out[axis] - 1) * stride + side);
        let input = Frame {
            size,
            before,
            whole: [0, 1].map(|axis| reached[axis].max(before[axis] + size[axis])),
        };
        let gradient = match stride {
            1 => Frame {
                size: out,
                before: before.map(|before| side - 1 - before),
                whole: size.map(|size| size + side - 1),
            },
            _ => Frame { size: out, before: [0; 2], whole: out },
        };
        Some(Self { kernels, taps: side * side, stride, out, input, gradient })
    }

    fn taps_of(&self, frame: &[Lanes], whole: [usize; 2], stride: usize, size: [usize; 2]) -> Taps {
        let reached = |axis: usize| (size[axis] - 1) * stride + self.kernels.side;
        assert!(reached(0) <= whole[0] && reached(1) <= whole[1], "windows leave their frame");
        assert!(frame.len() >= whole[0] * whole[1], "the frame has too few pixels");
        Taps {
            frame: frame.as_ptr().cast_mut().cast(),
            frame_row: whole[1] * LANES,
            pixels: std::ptr::null_mut(),
            row: size[1] * LANES,
            size,
            weights: std::ptr::null_mut(),
            start: std::ptr::null(),
        }
    }

    /// The convolution of a block of channels of a sample after the other.
    pub(super) fn forward(
        &self,
        sample: &[f32],
        weights: &[Lanes],
        bias: Option<&[f32]>,
        out: &mut [f32],
    ) {
        let (size, len) = (LANES * self.input.pixels(), self.out[0] * self.out[1]);
        with_scratch((self.input.pixels().max(len) + self.input.len()) * LANES, |scratch| {
            let (plain, frame) = as_lanes(scratch).split_at_mut(self.input.pixels().max(len));
            frame.fill([0.0; LANES]);
            let blocks = out.chunks_mut(LANES * len).zip(weights.chunks_exact(self.taps));
            for (block, (out, weights)) in blocks.enumerate() {
                prefetch_many(sample.get((block + 1) * size..(block + 2) * size));
                let planes = &sample[block * size..sample.len().min((block + 1) * size)];
                self.input.put(planes, plain, frame);
                let mut start = [0.0; LANES];
                let bias = bias.map_or(&[][..], |bias| &bias[block * LANES..]);
                start.iter_mut().zip(bias).for_each(|(start, bias)| *start = *bias);
                let job = Taps {
                    pixels: plain.as_mut_ptr().cast(),
                    weights: weights.as_ptr().cast_mut().cast(),
                    start: start.as_ptr(),
                    ..self.taps_of(frame, self.input.whole, self.stride, self.out)
                };
                // SAFETY: the frame has all windows, as was checked; there is a vector for every pixel of the output
                // and for every tap; the kernels are those of this CPU.
                unsafe { (self.kernels.sums)(&job) };
                separate(plain, len, out);
            }
        });
    }

    /// Both gradients of a block of channels, by its filters and by the same with their taps reversed.
    pub(super) fn backward(
        &self,
        [planes, gradient]: [&[f32]; 2],
        [weights, reversed]: [&[Lanes]; 2],
        wanted: Wanted<'_>,
    ) {
        let most = self.input.pixels().max(self.gradient.pixels());
        let frames = [self.input.len(), self.gradient.len()];
        with_scratch((most + frames[0] + frames[1]) * LANES, |scratch| {
            let (plain, rest) = as_lanes(scratch).split_at_mut(most);
            let (frame, gradients) = rest.split_at_mut(frames[0]);
            frame.fill([0.0; LANES]);
            if self.stride == 1 {
                gradients.fill([0.0; LANES]);
            }
            self.gradient.put(gradient, plain, gradients);
            let [down, along] = self.gradient.before;
            let first = (down * self.gradient.whole[1] + along) * LANES;
            if let Some(sums) = wanted.sums {
                self.input.put(planes, plain, frame);
                assert!(sums.len() >= self.taps, "a sum for every tap");
                let job = Taps {
                    pixels: gradients.as_mut_ptr().cast::<f32>().wrapping_add(first),
                    row: self.gradient.whole[1] * LANES,
                    weights: sums.as_mut_ptr().cast(),
                    ..self.taps_of(frame, self.input.whole, self.stride, self.out)
                };
                // SAFETY: as above; the gradient's pixels are inside of their frame.
                unsafe { (self.kernels.products)(&job) };
            }
            let Some(target) = wanted.target else { return };
            assert!(plain.len() >= self.input.pixels(), "a vector for every pixel");
            if self.stride == 1 {
                let job = Taps {
                    pixels: plain.as_mut_ptr().cast(),
                    weights: reversed.as_ptr().cast_mut().cast(),
                    start: [0.0; LANES].as_ptr(),
                    ..self.taps_of(gradients, self.gradient.whole, 1, self.input.size)
                };
                // SAFETY: as above.
                unsafe { (self.kernels.sums)(&job) };
                return separate(plain, self.input.pixels(), target);
            }
            frame.fill([0.0; LANES]);
            let job = Taps {
                pixels: gradients.as_mut_ptr().cast(),
                weights: weights.as_ptr().cast_mut().cast(),
                ..self.taps_of(frame, self.input.whole, self.stride, self.out)
            };
            // SAFETY: as above; the frame is borrowed exclusively.
            unsafe { (self.kernels.scatter)(&job) };
            separate(self.input.take(frame, plain), self.input.pixels(), target);
        });
    }
}

/// The filters of a block of channels with their taps in reversed order.
pub(super) fn reversed(weights: &[Lanes], taps: usize) -> Vec<Lanes> {
    weights.chunks_exact(taps).flat_map(|filters| filters.iter().rev().copied()).collect()
}

/// Filters of sixteen channels side by side, block after block.
pub(super) fn packed(weight: &[f32], channels: usize, taps: usize) -> Vec<Lanes> {
    let mut weights = vec![[0.0; LANES]; channels.div_ceil(LANES) * taps];
    for (filters, to) in weight.chunks(LANES * taps).zip(weights.chunks_exact_mut(taps)) {
        interleave(filters, taps, to);
    }
    weights
}
