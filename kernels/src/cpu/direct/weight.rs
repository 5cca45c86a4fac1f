//! The gradient of a convolution's weights: every tap's sum over pixels and samples stays in a vector's lane.
#![expect(
    unsafe_code,
    reason = "calls the kernels, whose pointers are checked here once per sample"
)]

use super::product::pack_into;
use super::tile::{Kernels, Runs};
use super::{LANES, PaddedPlane, TileChannels, kernels_for};
use crate::cpu::buffer::with_scratch;
use crate::cpu::shape::ConvShape;

/// Values of samples that are added together: they stay in the second cache.
const TOGETHER: usize = 1 << 16;

/// Runs of a tile at most.
const MOST_RUNS: usize = 8;

/// The weights' gradient of a convolution.
pub(crate) struct WeightGradient {
    kernels: &'static Kernels,
    shape: ConvShape,
    frame: PaddedPlane,
    /// Where the first tap of each run is: one run for every channel and row of the kernel.
    runs: Vec<usize>,
}

impl WeightGradient {
    /// The gradient, if the direct kernel serves it.
    pub(crate) fn new(shape: &ConvShape) -> Option<Self> {
        // With a handful of pixels and one tap sums are fetched more often than they are added to.
        let serves = !shape.is_pointwise() || shape.pixels_out() >= LANES;
        let kernels = kernels_for(shape, shape.channels_out).filter(|_| serves)?;
        kernels.runs(1, shape.stride[1], shape.kernel[1])?;
        Some(Self::with(kernels, shape))
    }

    pub(super) fn with(kernels: &'static Kernels, shape: &ConvShape) -> Self {
        let frame = PaddedPlane::of_input(shape);
        let [height, width] = frame.whole();
        let run = |at: usize| (at / shape.kernel[0] * height + at % shape.kernel[0]) * width;
        let runs = (0..shape.channels_in * shape.kernel[0]).map(run).collect();
        Self { kernels, shape: *shape, frame, runs }
    }

    /// Sums in the order of the kernels, all zero; [`Self::finish`] gives the weights' own order.
    pub(crate) fn sums(&self) -> Vec<f32> {
        let len = |group: TileChannels| self.runs_of(group) * self.shape.kernel[1] * group.width();
        vec![0.0; self.groups().map(len).sum()]
    }

    /// Adds some samples.
    pub(crate) fn add(&self, samples: &[f32], gradients: &[f32], sums: &mut [f32]) {
        let (sample, gradient) = (self.shape.sample_in(), self.shape.sample_out());
        let packed = self.shape.channels_out.next_multiple_of(LANES) * self.shape.pixels_out();
        // The sums of small pictures take longer to fetch than to add to: several pictures are added at once.
        let count = (TOGETHER / (packed + self.frame.len())).clamp(1, samples.len() / sample);
        with_scratch(count * (packed + self.frame.scratch()), |scratch| {
            let (packs, pads) = scratch.split_at_mut(count * packed);
            let parts = samples.chunks(count * sample).zip(gradients.chunks(count * gradient));
            for (samples, gradients) in parts {
                let packs = &mut packs[..samples.len() / sample * packed];
                for (pack, gradient) in
                    packs.chunks_exact_mut(packed).zip(gradients.chunks(gradient))
                {
                    let (filters, pixels) = (self.shape.channels_out, self.shape.pixels_out());
                    pack_into(self.kernels, gradient, filters, pixels, pack);
                }
                self.add_packed(self.frame.pad(samples, pads), packs, sums);
            }
        });
    }

    /// Adds padded samples and packed gradients.
    fn add_packed(&self, samples: &[f32], packs: &[f32], mut sums: &mut [f32]) {
        let ([rows, columns], [_, width]) = (self.shape.out(), self.frame.whole());
        let (stride, kernel) = (self.shape.stride, self.shape.kernel[1]);
        let last = (rows - 1) * stride[0] * width + (columns - 1) * stride[1] + kernel;
        let furthest = self.runs.iter().max().map_or(0, |run| run + last);
        let (sample, packed) =
            (self.frame.len(), self.shape.channels_out.next_multiple_of(LANES) * rows * columns);
        assert!(furthest <= sample, "a run is outside of the sample");
        for group in self.groups() {
            let (count, function) = self.kernel(group);
            for first in (0..self.runs.len()).step_by(count) {
                // A tile beyond the last run repeats that one, into sums that nobody reads.
                let run = |at: usize| self.runs[(first + at).min(self.runs.len() - 1)];
                let mut runs = [0; MOST_RUNS];
                (0..count).for_each(|at| runs[at] = run(at));
                let (tile, rest) = sums.split_at_mut(count * kernel * group.width());
                sums = rest;
                for (sample, pack) in samples.chunks_exact(sample).zip(packs.chunks_exact(packed)) {
                    let gradient =
                        &pack[group.first * rows * columns..][..group.width() * rows * columns];
                    let job = Runs {
                        input: sample.as_ptr(),
                        runs: &runs[..count],
                        gradient: gradient.as_ptr(),
                        out: [rows, columns],
                        row: stride[0] * width,
                        sums: tile.as_mut_ptr(),
                    };
                    // SAFETY: the last pixel of the furthest run was checked above; gradient and sums are slices of
                    // the sizes that the function takes; the kernels are those of this CPU.
                    unsafe { function(&job) };
                }
            }
        }
    }

    /// The weights' gradient from the sums.
    pub(crate) fn finish(&self, sums: &[f32]) -> Vec<f32> {
        let (taps, width) = (self.shape.taps(), self.shape.kernel[1]);
        let mut weight = vec![0.0; self.shape.weights()];
        let mut start = 0;
        for group in self.groups() {
            let filters = weight[group.first * taps..].chunks_exact_mut(taps).take(group.width());
            for (lane, filter) in filters.enumerate() {
                for (tap, value) in filter.iter_mut().enumerate() {
                    *value = sums[start + tap * group.width() + lane];
                }
            }
            start += self.runs_of(group) * width * group.width();
        }
        weight
    }

    fn groups(&self) -> impl Iterator<Item = TileChannels> + use<> {
        TileChannels::all(self.shape.channels_out, self.kernels.vectors)
    }

    fn kernel(&self, group: TileChannels) -> (usize, super::tile::RunsFn) {
        let found = self.kernels.runs(group.vectors, self.shape.stride[1], self.shape.kernel[1]);
        found.expect("checked when this was made")
    }

    /// The runs of whole tiles.
    fn runs_of(&self, group: TileChannels) -> usize {
        self.runs.len().next_multiple_of(self.kernel(group).0)
    }
}
