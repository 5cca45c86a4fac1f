//! Planes that are narrower than a vector: the planes of several channels, which lie side by side, are one line, whose
//! places are summed over the samples and then over the pixels of a channel.

use super::{
    Affine, InputGradient, NormGradients, NormShape, Normal, Rectified, Saved, Statistics, masked,
    mean_and_variance, normalise,
};
use crate::cpu::buffer::{Planes, by_channel, with_scratch};
use crate::cpu::rows::wide;

/// Planes of so many pixels fill vectors by themselves.
const WIDE: usize = 128;

/// Values of the shortest line that is worth it, and about those of the longest: its sums stay in the first cache.
const LINE: [usize; 2] = [32, 1024];

/// Channels of a line at most, so that threads have lines to share.
const MOST_CHANNELS: usize = 64;

/// Places that are added up together.
const BLOCK: usize = 32;

/// Samples whose sums may be taken in f32.
const EXACT: usize = 1 << 12;

/// A batch whose channels are taken several at once.
#[derive(Clone, Copy)]
pub(super) struct Narrow {
    shape: NormShape,
    /// Channels of a line.
    channels: usize,
}

impl Narrow {
    /// Nothing where planes are wide, or where channels cannot be cut into equal lines.
    pub(super) fn new(shape: NormShape) -> Option<Self> {
        let most = (LINE[1] / shape.pixels.max(1)).min(MOST_CHANNELS);
        let channels = (2..=most).rev().find(|count| shape.channels.is_multiple_of(*count))?;
        let long = channels * shape.pixels >= LINE[0];
        (shape.pixels < WIDE && long).then_some(Self { shape, channels })
    }

    /// Samples, lines and values of a line.
    fn dims(&self) -> [usize; 3] {
        let Self { shape, channels } = *self;
        [shape.batch, shape.channels / channels, channels * shape.pixels]
    }

    /// The lines of all samples with this number.
    fn lines<'a>(&self, values: &'a [f32], number: usize) -> impl Iterator<Item = &'a [f32]> {
        let [_, lines, len] = self.dims();
        values.chunks_exact(len).skip(number).step_by(lines)
    }

    /// A value of each channel of a line, for each of its places.
    fn spread(&self, number: usize, value: impl Fn(usize) -> f32) -> Vec<f32> {
        let first = number * self.channels;
        (0..self.channels)
            .flat_map(|at| std::iter::repeat_n(value(first + at), self.shape.pixels))
            .collect()
    }

    fn normals(&self, number: usize, normal: impl Fn(usize) -> Normal) -> Normals {
        Normals {
            mean: self.spread(number, |channel| normal(channel).mean),
            factor: self.spread(number, |channel| normal(channel).factor),
            beta: self.spread(number, |channel| normal(channel).beta),
        }
    }

    /// [`super::forward`]
    pub(super) fn forward(
        &self,
        input: &[f32],
        affine: Affine,
        residual: Option<&[f32]>,
        relu: Option<f32>,
    ) -> (Vec<f32>, Statistics) {
        let ([output], found) = by_channel(self.dims(), |number, [output]: &mut [Planes; 1]| {
            let found = self.moments(input, number);
            let first = number * self.channels;
            let normals = self.normals(number, |channel| {
                let (mean, variance) = found[channel - first];
                affine.of(channel, mean, variance)
            });
            let mut residuals = residual.map(|values| self.lines(values, number));
            wide(
                #[inline(always)]
                || {
                    for (target, values) in output.by_ref().zip(self.lines(input, number)) {
                        let residual = residuals.as_mut().and_then(Iterator::next);
                        let normals = normals.first(target.len());
                        normalise(target, values, |i| normals.at(i), residual, relu);
                    }
                },
            );
            found
        });
        let (mean, variance) = found.into_iter().flatten().unzip();
        (output, Statistics { mean, variance })
    }

    /// Mean and variance of the channels of a line, in one pass around one value of each.
    fn moments(&self, input: &[f32], number: usize) -> Vec<(f32, f32)> {
        let pivots = self.spread(number, |channel| input[channel * self.shape.pixels]);
        let lines = self.lines(input, number).map(|line| [line]);
        let sums = self.sums(lines, [&pivots], |[pivot], [value]| {
            let centred = value - pivot;
            (centred * centred, centred)
        });
        let pivots = pivots.iter().step_by(self.shape.pixels);
        let count = self.shape.batch * self.shape.pixels;
        sums.into_iter()
            .zip(pivots)
            .map(|(sums, pivot)| mean_and_variance(*pivot, sums, count))
            .collect()
    }

    /// Two sums for each channel of a line, of what `terms` makes of each place: of the values that belong to the
    /// place, and of those of a sample's lines.
    ///
    /// A line is read from its start to its end, so that the CPU sees what comes next; its sums stay in the first
    /// cache.
    #[inline(always)]
    fn sums<'a, const M: usize, const N: usize>(
        &self,
        lines: impl Iterator<Item = [&'a [f32]; N]>,
        places: [&[f32]; M],
        terms: impl Fn([f32; M], [f32; N]) -> (f32, f32),
    ) -> Vec<(f64, f64)> {
        let [_, _, len] = self.dims();
        let mut totals = vec![(0.0, 0.0); self.channels];
        let mut lines = lines.peekable();
        let whole = len / BLOCK * BLOCK;
        with_scratch(2 * len, |sums| {
            let (first, second) = sums.split_at_mut(len);
            while lines.peek().is_some() {
                first.fill(0.0);
                second.fill(0.0);
                wide(
                    #[inline(always)]
                    || {
                        for line in lines.by_ref().take(EXACT) {
                            for start in (0..whole).step_by(BLOCK) {
                                let places = places.map(|values| block(values, start));
                                let line = line.map(|line| block(line, start));
                                let sums = [&mut *first, &mut *second];
                                let [first, second] = sums.map(|sums| block_mut(sums, start));
                                // Copies, because nothing that is read changes by writing to them.
                                let (mut firsts, mut seconds) = (*first, *second);
                                for i in 0..BLOCK {
                                    let (a, b) =
                                        terms(places.map(|v| v[i]), line.map(|line| line[i]));
                                    firsts[i] += a;
                                    seconds[i] += b;
                                }
                                (*first, *second) = (firsts, seconds);
                            }
                            for i in whole..len {
                                let (a, b) = terms(places.map(|v| v[i]), line.map(|line| line[i]));
                                first[i] += a;
                                second[i] += b;
                            }
                        }
                    },
                );
                for (place, (first, second)) in first.iter().zip(second.iter()).enumerate() {
                    let total: &mut (f64, f64) = &mut totals[place / self.shape.pixels];
                    total.0 += f64::from(*first);
                    total.1 += f64::from(*second);
                }
            }
        });
        totals
    }

    /// [`super::backward`]
    pub(super) fn backward(
        &self,
        saved: Saved,
        affine: Affine,
        gradient: &[f32],
        residual: bool,
    ) -> NormGradients {
        let output = match saved.relu {
            Rectified::ByOutput(output) => output,
            Rectified::Not | Rectified::ByInput => gradient,
        };
        let work = Back { narrow: *self, saved, affine, gradient, output };
        let (input, of_residual, sums) = if residual {
            let ([input, residual], sums) = by_channel(self.dims(), |number, [input, residual]| {
                work.line(number, input, Some(residual))
            });
            (input, Some(residual), sums)
        } else {
            let ([input], sums) = by_channel(self.dims(), |number, [input]: &mut [Planes; 1]| {
                work.line(number, input, None)
            });
            (input, None, sums)
        };
        let (gamma, beta) = sums.into_iter().flatten().unzip();
        NormGradients { input, residual: of_residual, gamma, beta }
    }
}

/// A whole block of a line.
#[inline(always)]
fn block(values: &[f32], start: usize) -> &[f32; BLOCK] {
    values[start..].first_chunk().expect("a whole block is left")
}

#[inline(always)]
fn block_mut(values: &mut [f32], start: usize) -> &mut [f32; BLOCK] {
    values[start..].first_chunk_mut().expect("a whole block is left")
}

/// What normalises each place of a line.
struct Normals {
    mean: Vec<f32>,
    factor: Vec<f32>,
    beta: Vec<f32>,
}

/// The first places of [`Normals`].
#[derive(Clone, Copy)]
struct FirstNormals<'a> {
    mean: &'a [f32],
    factor: &'a [f32],
    beta: &'a [f32],
}

impl Normals {
    #[inline(always)]
    fn first(&self, count: usize) -> FirstNormals<'_> {
        let Self { mean, factor, beta } = self;
        FirstNormals { mean: &mean[..count], factor: &factor[..count], beta: &beta[..count] }
    }
}

impl FirstNormals<'_> {
    #[inline(always)]
    fn at(self, place: usize) -> Normal {
        Normal { mean: self.mean[place], factor: self.factor[place], beta: self.beta[place] }
    }
}

/// What of a gradient came through a ReLU. A trait rather than closures, which would be called for every value unless
/// all of them are inlined.
trait Behind: Copy {
    /// By the place's normal, and the gradient, the input and the output there.
    fn passed(self, normal: Normal, values: [f32; 3]) -> f32;
}

/// Where there was no ReLU.
#[derive(Clone, Copy)]
struct All;

/// By the input, normalised again.
#[derive(Clone, Copy)]
struct ByInput {
    high: f32,
}

/// By the output.
#[derive(Clone, Copy)]
struct ByOutput {
    high: f32,
}

impl Behind for All {
    #[inline(always)]
    fn passed(self, _: Normal, [gradient, ..]: [f32; 3]) -> f32 {
        gradient
    }
}

impl Behind for ByInput {
    #[inline(always)]
    fn passed(self, normal: Normal, [gradient, input, _]: [f32; 3]) -> f32 {
        masked(gradient, normal.of(input), self.high)
    }
}

impl Behind for ByOutput {
    #[inline(always)]
    fn passed(self, _: Normal, [gradient, _, output]: [f32; 3]) -> f32 {
        masked(gradient, output, self.high)
    }
}

/// The way back.
struct Back<'a> {
    narrow: Narrow,
    saved: Saved<'a>,
    affine: Affine<'a>,
    gradient: &'a [f32],
    /// What tells what a ReLU let through, where the input does not; any values otherwise.
    output: &'a [f32],
}

impl Back<'_> {
    /// Writes the gradients of a line, and returns those of the factors and summands of its channels.
    fn line(
        &self,
        number: usize,
        input: &mut Planes,
        residual: Option<&mut Planes>,
    ) -> Vec<(f32, f32)> {
        let high = self.saved.ceiling;
        match self.saved.relu {
            Rectified::Not => self.behind(All, number, input, residual),
            Rectified::ByInput => self.behind(ByInput { high }, number, input, residual),
            Rectified::ByOutput(_) => self.behind(ByOutput { high }, number, input, residual),
        }
    }

    /// The same behind a kind of ReLU.
    #[inline(always)]
    fn behind(
        &self,
        relu: impl Behind,
        number: usize,
        input: &mut Planes,
        mut residual: Option<&mut Planes>,
    ) -> Vec<(f32, f32)> {
        let (narrow, statistics) = (self.narrow, self.saved.statistics);
        let normals = narrow.normals(number, |channel| {
            self.affine.of(channel, statistics.mean[channel], statistics.variance[channel])
        });
        let lines = || {
            let gradients = narrow.lines(self.gradient, number);
            let both = gradients.zip(narrow.lines(self.saved.input, number));
            both.zip(narrow.lines(self.output, number))
                .map(|((gradient, input), output)| [gradient, input, output])
        };
        let places = [&normals.mean[..], &normals.factor[..], &normals.beta[..]];
        let sums = narrow.sums(
            lines(),
            places,
            #[inline(always)]
            |[mean, factor, beta], values| {
                let gradient = relu.passed(Normal { mean, factor, beta }, values);
                (gradient * (values[1] - mean), gradient)
            },
        );
        let first = number * narrow.channels;
        let inverse = |channel: usize| self.affine.inverse(statistics.variance[channel]);
        let count = narrow.shape.batch * narrow.shape.pixels;
        let found: Vec<InputGradient> = (0..narrow.channels)
            .map(|at| {
                let normal = normals.first(normals.mean.len()).at(at * narrow.shape.pixels);
                InputGradient::new(normal, inverse(first + at), sums[at], count)
            })
            .collect();
        let slopes = narrow.spread(number, |channel| found[channel - first].slope);
        let offsets = narrow.spread(number, |channel| found[channel - first].offset);
        let passed = |line: [&[f32]; 3], i: usize| {
            let normal =
                Normal { mean: normals.mean[i], factor: normals.factor[i], beta: normals.beta[i] };
            relu.passed(normal, line.map(|values| values[i]))
        };
        let of_input = |line: [&[f32]; 3], i: usize| {
            let centred = line[1][i] - normals.mean[i];
            passed(line, i) * normals.factor[i] + (centred * slopes[i] + offsets[i])
        };
        wide(
            #[inline(always)]
            || {
                for (target, line) in input.by_ref().zip(lines()) {
                    if let Some(residual) = residual.as_mut().and_then(|planes| planes.next()) {
                        residual.fill_blocks(
                            #[inline(always)]
                            |start| {
                                let places = places.map(|values| block(values, start));
                                let line = line.map(|line| block(line, start));
                                let mut found = [0.0; BLOCK];
                                for i in 0..BLOCK {
                                    let [mean, factor, beta] = places.map(|values| values[i]);
                                    let normal = Normal { mean, factor, beta };
                                    found[i] = relu.passed(normal, line.map(|line| line[i]));
                                }
                                found
                            },
                            #[inline(always)]
                            |i| passed(line, i),
                        );
                    }
                    target.fill_blocks(
                        #[inline(always)]
                        |start| {
                            let places = places.map(|values| block(values, start));
                            let line = line.map(|line| block(line, start));
                            let (slopes, offsets) = (block(&slopes, start), block(&offsets, start));
                            let mut found = [0.0; BLOCK];
                            for i in 0..BLOCK {
                                let [mean, factor, beta] = places.map(|values| values[i]);
                                let normal = Normal { mean, factor, beta };
                                let passed = relu.passed(normal, line.map(|line| line[i]));
                                let centred = line[1][i] - mean;
                                found[i] = passed * factor + (centred * slopes[i] + offsets[i]);
                            }
                            found
                        },
                        #[inline(always)]
                        |i| of_input(line, i),
                    );
                }
            },
        );
        let gradients = sums.iter().enumerate();
        let gamma = |at: usize, sum: f64| (sum * f64::from(inverse(first + at))) as f32;
        gradients.map(|(at, sums)| (gamma(at, sums.0), sums.1 as f32)).collect()
    }
}
