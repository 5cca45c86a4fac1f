//! Batch normalisation in training, forward and backward, with a residual added and a ReLU (or ReLU6) in the same pass.
//! (Ioffe, Szegedy: <https://arxiv.org/abs/1502.03167>.)
//!
//! A task is a channel: what its statistics have just read is still in the core's cache when it is normalised.

mod narrow;

use super::buffer::{Fresh, Planes, by_channel};
use super::prefetch::prefetch;
use super::rows::wide;
use super::sums::Sums;
use narrow::Narrow;

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormShape {
    /// Samples.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Pixels of a channel of a sample.
    pub pixels: usize,
}

impl NormShape {
    /// Values of the batch.
    pub fn len(&self) -> usize {
        self.batch * self.channels * self.pixels
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The planes of a channel. Each asks for the next one ahead of time: they lie too far apart for the CPU to guess.
    #[inline(always)]
    fn planes<'a>(&self, values: &'a [f32], channel: usize) -> impl Iterator<Item = &'a [f32]> {
        let pixels = self.pixels;
        let step = self.channels * pixels;
        (0..self.batch).map(move |sample| {
            let place = sample * step + channel * pixels;
            prefetch(values.get(place + step..).and_then(|next| next.get(..pixels)));
            &values[place..][..pixels]
        })
    }

    fn dims(&self) -> [usize; 3] {
        [self.batch, self.channels, self.pixels]
    }
}

/// Mean and variance of each channel over the batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Means.
    pub mean: Vec<f32>,
    /// Variances, divided by the number of values.
    pub variance: Vec<f32>,
}

/// The parameters of a normalisation.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// Factors.
    pub gamma: &'a [f32],
    /// Summands.
    pub beta: &'a [f32],
    /// Added to variances.
    pub epsilon: f64,
}

impl Affine<'_> {
    /// What normalises a channel with these statistics.
    fn of(&self, channel: usize, mean: f32, variance: f32) -> Normal {
        let factor = self.gamma[channel] * self.inverse(variance);
        Normal { mean, factor, beta: self.beta[channel] }
    }

    /// One over the deviation.
    fn inverse(&self, variance: f32) -> f32 {
        (1.0 / (f64::from(variance) + self.epsilon).sqrt()) as f32
    }
}

/// What normalises a channel.
#[derive(Clone, Copy)]
struct Normal {
    mean: f32,
    factor: f32,
    beta: f32,
}

impl Normal {
    /// The mean is taken off first: means may be far larger than deviations.
    #[inline(always)]
    fn of(self, value: f32) -> f32 {
        (value - self.mean) * self.factor + self.beta
    }
}

/// Where a plain ReLU ends.
pub const NO_CEILING: f32 = f32::INFINITY;

/// Normalises with the batch's own statistics, adds `residual`, and applies a ReLU if asked for, which ends at `relu`:
/// [`NO_CEILING`], or 6.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn forward(
    shape: NormShape,
    input: &[f32],
    affine: Affine,
    residual: Option<&[f32]>,
    relu: Option<f32>,
) -> (Vec<f32>, Statistics) {
    assert!(input.len() == shape.len() && !shape.is_empty(), "wrong size of the input");
    assert!(
        residual.is_none_or(|values| values.len() == shape.len()),
        "wrong size of the residual"
    );
    if let Some(narrow) = Narrow::new(shape) {
        return narrow.forward(input, affine, residual, relu);
    }
    let ([output], found) = by_channel(shape.dims(), |channel, [output]: &mut [Planes; 1]| {
        let (mean, variance) = moments(&shape, input, channel);
        let normal = affine.of(channel, mean, variance);
        let mut residuals = residual.map(|values| shape.planes(values, channel));
        wide(
            #[inline(always)]
            || {
                for (target, values) in output.by_ref().zip(shape.planes(input, channel)) {
                    let residual = residuals.as_mut().and_then(Iterator::next);
                    normalise(target, values, |_| normal, residual, relu);
                }
            },
        );
        (mean, variance)
    });
    let (mean, variance) = found.into_iter().unzip();
    (output, Statistics { mean, variance })
}

#[inline(always)]
fn normalise(
    target: Fresh,
    values: &[f32],
    normal: impl Fn(usize) -> Normal,
    residual: Option<&[f32]>,
    relu: Option<f32>,
) {
    let (low, high) = relu.map_or((f32::NEG_INFINITY, f32::INFINITY), |ceiling| (0.0, ceiling));
    // In this order, a value that is not a number stays one.
    let clip = |value: f32| {
        let value = if value < low { low } else { value };
        if value > high { high } else { value }
    };
    let values = &values[..target.len()];
    match residual {
        None => target.fill_with(|i| clip(normal(i).of(values[i]))),
        Some(residual) => {
            let residual = &residual[..target.len()];
            target.fill_with(|i| clip(normal(i).of(values[i]) + residual[i]))
        }
    };
}

/// What [`backward`] needs to know of the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The input.
    pub input: &'a [f32],
    /// Its statistics.
    pub statistics: &'a Statistics,
    /// What a ReLU let through.
    pub relu: Rectified<'a>,
    /// Where that ReLU ends.
    pub ceiling: f32,
}

/// How to tell what a ReLU let through.
#[derive(Clone, Copy, Debug)]
pub enum Rectified<'a> {
    /// There was none.
    Not,
    /// By the input, normalised again: less is read than with the output. There must be no residual.
    ByInput,
    /// By the output.
    ByOutput(&'a [f32]),
}

/// The gradients of a batch normalisation.
#[derive(Clone, Debug, PartialEq)]
pub struct NormGradients {
    /// Of the input.
    pub input: Vec<f32>,
    /// Of the residual, if wanted.
    pub residual: Option<Vec<f32>>,
    /// Of the factors.
    pub gamma: Vec<f32>,
    /// Of the summands.
    pub beta: Vec<f32>,
}

/// The gradients from that of the output; that of a residual too if it is wanted.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn backward(
    shape: NormShape,
    saved: Saved,
    affine: Affine,
    gradient: &[f32],
    residual: bool,
) -> NormGradients {
    assert!(gradient.len() == shape.len() && !shape.is_empty(), "wrong size of the gradient");
    assert_eq!(saved.input.len(), shape.len(), "wrong size of the input");
    let by_input = matches!(saved.relu, Rectified::ByInput);
    assert!(!(residual && by_input), "the input does not tell what came with a residual");
    if let Some(narrow) = Narrow::new(shape) {
        return narrow.backward(saved, affine, gradient, residual);
    }
    let channel = |channel: usize| Channel::new(shape, saved, affine, gradient, channel);
    let (input, of_residual, sums) = if residual {
        let ([input, residual], sums) = by_channel(shape.dims(), |at, [input, residual]| {
            channel(at).spread(input, Some(residual))
        });
        (input, Some(residual), sums)
    } else {
        let ([input], sums) = by_channel(shape.dims(), |at, [input]: &mut [Planes; 1]| {
            channel(at).spread(input, None)
        });
        (input, None, sums)
    };
    let (gamma, beta) = sums.into_iter().unzip();
    NormGradients { input, residual: of_residual, gamma, beta }
}

/// One channel on the way back.
struct Channel<'a> {
    shape: NormShape,
    saved: Saved<'a>,
    gradient: &'a [f32],
    index: usize,
    /// One over the deviation.
    inverse: f32,
    /// As on the way forward.
    normal: Normal,
}

impl<'a> Channel<'a> {
    fn new(
        shape: NormShape,
        saved: Saved<'a>,
        affine: Affine,
        gradient: &'a [f32],
        index: usize,
    ) -> Self {
        let (mean, variance) = (saved.statistics.mean[index], saved.statistics.variance[index]);
        let inverse = affine.inverse(variance);
        let normal = affine.of(index, mean, variance);
        Self { shape, saved, gradient, index, inverse, normal }
    }

    /// Writes the gradients and returns those of the factor and of the summand.
    fn spread(&self, input: &mut Planes, mut residual: Option<&mut Planes>) -> (f32, f32) {
        let (sums, normal) = (self.sums(), self.normal);
        let count = self.shape.batch * self.shape.pixels;
        let line = InputGradient::new(normal, self.inverse, sums, count);
        let high = self.saved.ceiling;
        wide(
            #[inline(always)]
            || {
                for (target, plane) in input.by_ref().zip(self.planes()) {
                    let (gradient, pixels) = (plane.gradient, plane.input.len());
                    let input = plane.input;
                    match (residual.as_mut().and_then(|planes| planes.next()), plane.relu) {
                        (Some(residual), _) => {
                            let gradient = &*plane.masked(residual, high);
                            line.write(target, input, |i| gradient[i]);
                        }
                        (None, Rectified::Not) => {
                            line.write(target, input, |i| gradient[..pixels][i])
                        }
                        (None, Rectified::ByInput) => line.write(target, input, |i| {
                            masked(gradient[..pixels][i], normal.of(input[..pixels][i]), high)
                        }),
                        (None, Rectified::ByOutput(output)) => line.write(target, input, |i| {
                            masked(gradient[..pixels][i], output[..pixels][i], high)
                        }),
                    }
                }
            },
        );
        ((sums.0 * f64::from(self.inverse)) as f32, sums.1 as f32)
    }

    /// Sums of the gradient times the centred input, and of the gradient.
    fn sums(&self) -> (f64, f64) {
        let (mut sums, normal, high) = (Sums::default(), self.normal, self.saved.ceiling);
        wide(
            #[inline(always)]
            || {
                for Plane { gradient, input, relu } in self.planes() {
                    let term =
                        |gradient: f32, value: f32| (gradient * (value - normal.mean), gradient);
                    match relu {
                        Rectified::Not => sums.add([gradient, input], |[g, x]| term(g, x)),
                        Rectified::ByInput => {
                            sums.add([gradient, input], |[g, x]| {
                                term(masked(g, normal.of(x), high), x)
                            });
                        }
                        Rectified::ByOutput(output) => {
                            sums.add([gradient, input, output], |[g, x, y]| {
                                term(masked(g, y, high), x)
                            });
                        }
                    }
                }
            },
        );
        sums.total()
    }

    fn planes(&self) -> impl Iterator<Item = Plane<'a>> {
        let gradients = self.shape.planes(self.gradient, self.index);
        let inputs = self.shape.planes(self.saved.input, self.index);
        let (relu, NormShape { channels, pixels, .. }) = (self.saved.relu, self.shape);
        let index = self.index;
        gradients.zip(inputs).enumerate().map(move |(sample, (gradient, input))| {
            let place = (sample * channels + index) * pixels;
            let relu = match relu {
                Rectified::ByOutput(output) => Rectified::ByOutput(&output[place..][..pixels]),
                other => other,
            };
            Plane { gradient, input, relu }
        })
    }
}

/// One plane on the way back.
#[derive(Clone, Copy)]
struct Plane<'a> {
    gradient: &'a [f32],
    input: &'a [f32],
    /// What a ReLU let through of it.
    relu: Rectified<'a>,
}

impl Plane<'_> {
    /// The gradient behind the ReLU, written to new memory.
    #[inline(always)]
    fn masked<'b>(&self, target: Fresh<'b>, high: f32) -> &'b mut [f32] {
        let gradient = &self.gradient[..target.len()];
        match self.relu {
            Rectified::ByOutput(output) => {
                let output = &output[..target.len()];
                target.fill_with(|i| masked(gradient[i], output[i], high))
            }
            _ => target.fill_with(|i| gradient[i]),
        }
    }
}

/// A gradient behind a ReLU that ends at `high`: bits instead of a branch, because signs cannot be predicted.
#[inline(always)]
fn masked(gradient: f32, output: f32, high: f32) -> f32 {
    let passed = u32::from(output > 0.0) & u32::from(output < high);
    f32::from_bits(gradient.to_bits() & passed.wrapping_neg())
}

/// How the input's gradient follows from the output's and from the input.
#[derive(Clone, Copy)]
struct InputGradient {
    mean: f32,
    slope: f32,
    offset: f32,
    factor: f32,
}

impl InputGradient {
    /// The gradient less what moves the mean and what moves the deviation, by the sums of the gradient times the
    /// centred input, and of the gradient.
    fn new(normal: Normal, inverse: f32, sums: (f64, f64), count: usize) -> Self {
        let (factor, inverse, count) = (f64::from(normal.factor), f64::from(inverse), count as f64);
        Self {
            mean: normal.mean,
            slope: (-factor * inverse * (sums.0 * inverse) / count) as f32,
            offset: (-factor * sums.1 / count) as f32,
            factor: normal.factor,
        }
    }

    #[inline(always)]
    fn write(self, target: Fresh, input: &[f32], gradient: impl Fn(usize) -> f32) {
        let input = &input[..target.len()];
        target.fill_with(|i| {
            gradient(i) * self.factor + ((input[i] - self.mean) * self.slope + self.offset)
        });
    }
}

/// Mean and variance of a channel, in one pass around one of its values.
fn moments(shape: &NormShape, input: &[f32], channel: usize) -> (f32, f32) {
    let pivot = input[channel * shape.pixels];
    let mut sums = Sums::default();
    wide(
        #[inline(always)]
        || {
            for values in shape.planes(input, channel) {
                sums.add([values], |[value]| {
                    let centred = value - pivot;
                    (centred * centred, centred)
                });
            }
        },
    );
    mean_and_variance(pivot, sums.total(), shape.batch * shape.pixels)
}

/// From the sums of squares and of values around `pivot`.
fn mean_and_variance(pivot: f32, (squares, sum): (f64, f64), count: usize) -> (f32, f32) {
    let mean = sum / count as f64;
    let variance = (squares / count as f64 - mean * mean).max(0.0);
    ((f64::from(pivot) + mean) as f32, variance as f32)
}
