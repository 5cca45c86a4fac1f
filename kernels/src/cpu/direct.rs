//! Convolution without columns, where it is faster than a matrix product over them: no groups, no dilation, strides
//! of one and two, and channels that fill vectors. A filter of one tap is a matrix product as it is, but for the
//! gradient of its weights.
//!
//! Windows are not copied and nothing is packed but the weights, once per call: a sum over taps reads the pixels
//! where they are (or, if there is padding, in one padded copy of the sample that stays in cache).

mod input;
mod interleave;
pub(super) mod lanes;
mod product;
#[cfg(test)]
mod tests;
mod tile;
mod weight;
#[cfg(target_arch = "x86_64")]
pub(super) mod x86;

pub(crate) use input::InputGradient;
pub(crate) use interleave::Interleave;
pub(crate) use product::Forward;
pub(crate) use weight::WeightGradient;

use super::shape::ConvShape;
use lanes::LANES;
use tile::Kernels;

/// Taps whose weights are streamed from the second cache without waiting; above, the blocks of a matrix product win.
const MOST_TAPS: usize = 4096;

/// The kernels of this CPU, if they serve a convolution whose output has `channels` channels.
fn kernels_for(shape: &ConvShape, channels: usize) -> Option<&'static Kernels> {
    let fills = channels.next_multiple_of(LANES) * 3 <= channels * 4;
    let plain = shape.groups == 1 && shape.dilation == [1, 1];
    let strides = (1..=2).contains(&shape.stride[1]);
    let small =
        shape.taps().max(shape.channels_out * shape.kernel[0] * shape.kernel[1]) <= MOST_TAPS;
    let sizes = [shape.batch, shape.channels_in, channels, shape.size[0], shape.size[1]];
    let there = !sizes.contains(&0) && shape.pixels_out() > 0;
    let serves = fills && plain && strides && small && there;
    serves.then(|| Kernels::all().next()).flatten()
}

/// Channels that one tile computes together.
#[derive(Clone, Copy, Debug)]
struct TileChannels {
    first: usize,
    vectors: usize,
}

impl TileChannels {
    /// All groups of so many channels, with at most so many vectors each.
    fn all(channels: usize, vectors: usize) -> impl Iterator<Item = Self> {
        let blocks = channels.div_ceil(LANES);
        (0..blocks)
            .step_by(vectors)
            .map(move |block| Self { first: block * LANES, vectors: vectors.min(blocks - block) })
    }

    /// Values in its vectors.
    fn width(&self) -> usize {
        self.vectors * LANES
    }
}

/// How a sample's planes lie inside of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PaddedPlane {
    planes: usize,
    size: [usize; 2],
    /// Zeros before and after, per axis.
    padding: [(usize, usize); 2],
}

impl PaddedPlane {
    /// The input of a convolution.
    fn of_input(shape: &ConvShape) -> Self {
        Self { planes: shape.channels_in, size: shape.size, padding: shape.padding }
    }

    /// Height and width with the padding.
    fn whole(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.size[axis] + self.padding[axis].0 + self.padding[axis].1)
    }

    /// Values of a padded sample.
    fn len(&self) -> usize {
        self.planes * self.whole().iter().product::<usize>()
    }

    /// Values of scratch that [`Self::pad`] needs.
    fn scratch(&self) -> usize {
        if self.padding == [(0, 0); 2] { 0 } else { self.len() }
    }

    /// Padded samples: themselves, or copies in `scratch`.
    fn pad<'a>(&self, samples: &'a [f32], scratch: &'a mut [f32]) -> &'a [f32] {
        if self.scratch() == 0 {
            return samples;
        }
        let (width, whole) = (self.size[1], self.whole());
        let planes = samples.chunks_exact(self.size[0] * width);
        for (plane, target) in planes.zip(scratch.chunks_exact_mut(whole[0] * whole[1])) {
            let (before, rest) = target.split_at_mut(self.padding[0].0 * whole[1]);
            let (rows, after) = rest.split_at_mut(self.size[0] * whole[1]);
            before.fill(0.0);
            after.fill(0.0);
            for (row, target) in plane.chunks_exact(width).zip(rows.chunks_exact_mut(whole[1])) {
                let (left, rest) = target.split_at_mut(self.padding[1].0);
                let (middle, right) = rest.split_at_mut(width);
                clear(left);
                copy(row, middle);
                clear(right);
            }
        }
        scratch
    }
}

/// Sets a few values to zero, most often one, for which a call of the system's function takes long.
#[inline(always)]
fn clear(values: &mut [f32]) {
    match values {
        [] => {}
        [value] => *value = 0.0,
        values => values.fill(0.0),
    }
}

/// Copies a short row in blocks of a fixed size, which become moves instead of a call.
#[inline(always)]
pub(crate) fn copy(from: &[f32], to: &mut [f32]) {
    const BLOCK: usize = 4;
    let ((blocks, rest), (targets, target_rest)) =
        (from.as_chunks::<BLOCK>(), to.as_chunks_mut::<BLOCK>());
    for (block, target) in blocks.iter().zip(targets) {
        *target = *block;
    }
    for (value, target) in rest.iter().zip(target_rest) {
        *target = *value;
    }
}
