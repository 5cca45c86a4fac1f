//! Two-dimensional convolution, forward and backward: by the direct kernel where it serves, channel by channel where
//! each has a filter of its own, otherwise as matrix products over the columns of a sample, or of several if they have
//! few pixels.

mod training;

use std::ops::Range;

pub use training::forward_training;

use super::buffer::{Fresh, in_pieces, with_scratch};
use super::depthwise::Depthwise;
use super::direct::{Forward, InputGradient, WeightGradient};
use super::elementwise::{add, mask_piece, relu_piece, sum};
use super::gathered::{Epilogue, Gathered};
use super::im2col::{col2im, im2col};
use super::pointwise::Pointwise;
use super::product::{Matrix, ProductOutput, product};
use super::shape::ConvShape;

/// The gradients of a convolution: those that were wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvGradients {
    /// Of the input.
    pub input: Option<Vec<f32>>,
    /// Of the weights.
    pub weight: Option<Vec<f32>>,
    /// Of the bias.
    pub bias: Option<Vec<f32>>,
}

/// Which gradients are wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedGradients {
    /// Of the input.
    pub input: bool,
    /// Of the weights.
    pub weight: bool,
    /// Of the bias.
    pub bias: bool,
}

/// The convolution of a batch, with bias and ReLU if asked for.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn forward(
    shape: &ConvShape,
    input: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    relu: bool,
) -> Vec<f32> {
    check(shape, input, weight);
    let pixels = shape.pixels_out();
    let (len, mode) =
        (shape.sample_out(), bias.map_or(ProductOutput::Replace, |_| ProductOutput::Add));
    let direct = Forward::new(shape, weight, bias);
    let pointwise = Pointwise::new(shape);
    if let (None, None, Some(gathered)) = (&direct, &pointwise, Gathered::new(shape)) {
        return forward_gathered(&gathered, shape, input, weight, Epilogue { bias, relu });
    }
    let depthwise = Depthwise::new(shape, weight);
    let (output, _) = in_pieces(shape.batch * len, len, shape.batch, |at, out| {
        let sample = &input[at * shape.sample_in()..][..shape.sample_in()];
        if let Some(direct) = &direct {
            return direct.run(sample, relu, out);
        }
        if let Some(pointwise) = &pointwise {
            let out = pointwise.forward(sample, weight, bias, out);
            return if relu {
                relu_piece(out)
            };
        }
        let out = out.zeroed();
        if let Some(depthwise) = &depthwise {
            depthwise.forward(sample, bias, out);
        } else {
            for (plane, bias) in out.chunks_mut(pixels).zip(bias.into_iter().flatten()) {
                plane.fill(*bias);
            }
            with_scratch(columns_len(shape), |scratch| {
                for group in ChannelGroup::all(shape) {
                    let columns = group.columns(sample, scratch);
                    product(mode, group.output_mut(out), group.filters(weight), columns);
                }
            });
        }
        if relu {
            relu_piece(out);
        }
    });
    output
}

fn forward_gathered(
    gathered: &Gathered<'_>,
    shape: &ConvShape,
    input: &[f32],
    weight: &[f32],
    then: Epilogue<'_>,
) -> Vec<f32> {
    let (samples, len) = (gathered.samples, shape.sample_out());
    let count = shape.batch.div_ceil(samples);
    let (output, _) = in_pieces(shape.batch * len, samples * len, count, |piece, out| {
        let own = samples.min(shape.batch - piece * samples);
        let input = &input[piece * samples * shape.sample_in()..][..own * shape.sample_in()];
        gathered.forward(input, weight, then, out.zeroed());
    });
    output
}

/// What [`backward`] needs to know of the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The input.
    pub input: &'a [f32],
    /// The weights.
    pub weight: &'a [f32],
    /// The output, if it went through a ReLU.
    pub relu_output: Option<&'a [f32]>,
}

/// The gradients of a convolution from that of its output.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn backward(
    shape: &ConvShape,
    saved: Saved,
    gradient: &[f32],
    wanted: WantedGradients,
) -> ConvGradients {
    check(shape, saved.input, saved.weight);
    let output_len = shape.batch * shape.sample_out();
    assert_eq!(gradient.len(), output_len, "the gradient does not have the output's size");
    if let Some(found) = training::backward(shape, saved, gradient, wanted) {
        return found;
    }
    let direct = Direct {
        input: InputGradient::new(shape, saved.weight).filter(|_| wanted.input),
        weight: WeightGradient::new(shape).filter(|_| wanted.weight),
        depthwise: Depthwise::new(shape, saved.weight),
        gathered: Gathered::new(shape),
    };
    let together = direct.gathered.as_ref().map_or(1, |gathered| gathered.samples);
    let samples = samples_per_piece(shape).max(together);
    let by_filters = direct
        .gathered
        .as_ref()
        .filter(|gathered| wanted.weight && direct.weight.is_none() && gathered.has_many_weights());
    let by_filters =
        by_filters.map(|gathered| gathered.weights(saved.input, gradient, saved.relu_output));
    let all = wanted;
    let wanted = WantedGradients { weight: wanted.weight && by_filters.is_none(), ..wanted };
    let len = if wanted.input { shape.batch * shape.sample_in() } else { 0 };
    let count = shape.batch.div_ceil(samples);
    let (input, parts) = in_pieces(len, samples * shape.sample_in(), count, |piece, input| {
        let mut part = PartialSums::new(shape, saved, wanted, &direct);
        let last = shape.batch.min((piece + 1) * samples);
        part.add(piece * samples..last, gradient, input);
        part
    });
    let sum = parts.into_iter().reduce(|mut sum, part| {
        add(&mut sum.weight, &part.weight);
        add(&mut sum.bias, &part.bias);
        sum
    });
    let PartialSums { mut weight, bias, .. } =
        sum.unwrap_or_else(|| PartialSums::new(shape, saved, wanted, &direct));
    let weight = match (&direct.weight, by_filters) {
        (Some(direct), _) => direct.finish(&weight),
        (None, Some(weight)) => weight,
        (None, None) => match &direct.depthwise {
            Some(depthwise) if wanted.weight => depthwise.finish(&mut weight),
            _ => weight,
        },
    };
    ConvGradients {
        input: all.input.then_some(input),
        weight: all.weight.then_some(weight),
        bias: all.bias.then_some(bias),
    }
}

/// The gradients that are computed without matrix products.
struct Direct<'a> {
    input: Option<InputGradient>,
    weight: Option<WeightGradient>,
    depthwise: Option<Depthwise>,
    /// For what the direct kernel does not compute.
    gathered: Option<Gathered<'a>>,
}

/// Sums over some samples; empty where not wanted.
struct PartialSums<'a> {
    shape: &'a ConvShape,
    saved: Saved<'a>,
    direct: &'a Direct<'a>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl<'a> PartialSums<'a> {
    fn new(
        shape: &'a ConvShape,
        saved: Saved<'a>,
        wanted: WantedGradients,
        direct: &'a Direct<'a>,
    ) -> Self {
        let len = |wanted: bool, len: usize| if wanted { len } else { 0 };
        let own_order = || match &direct.depthwise {
            Some(depthwise) if wanted.weight => depthwise.gradient_sums(),
            _ => vec![0.0; len(wanted.weight, shape.weights())],
        };
        Self {
            shape,
            saved,
            direct,
            weight: direct.weight.as_ref().map_or_else(own_order, WeightGradient::sums),
            bias: vec![0.0; len(wanted.bias, shape.channels_out)],
        }
    }

    /// Adds some samples, and writes their input's gradient to `target` unless that is empty.
    fn add(&mut self, range: Range<usize>, gradient: &[f32], target: Fresh) {
        let (shape, saved) = (self.shape, self.saved);
        let outputs = range.start * shape.sample_out()..range.end * shape.sample_out();
        let samples = &saved.input[range.start * shape.sample_in()..range.end * shape.sample_in()];
        let gradient = &gradient[outputs.clone()];
        // Only a fused ReLU changes the gradient, and so needs a copy of it.
        with_scratch(saved.relu_output.map_or(0, |_| outputs.len()), |masked| {
            let gradient = match saved.relu_output {
                None => gradient,
                Some(output) => {
                    masked.copy_from_slice(gradient);
                    mask_piece(masked, &output[outputs]);
                    masked
                }
            };
            if let (Some(direct), false) = (&self.direct.weight, gradient.is_empty()) {
                direct.add(samples, gradient, &mut self.weight);
            }
            if let Some(gathered) = &self.direct.gathered {
                self.add_gathered(gathered, samples, gradient, target);
                return;
            }
            let mut targets = target.split(shape.sample_in().max(1));
            let samples = samples.chunks(shape.sample_in().max(1));
            for (sample, gradient) in samples.zip(gradient.chunks(shape.sample_out().max(1))) {
                self.add_sample(sample, gradient, targets.next());
            }
        });
    }

    /// Adds what the direct kernel does not compute, several samples at once.
    fn add_gathered(
        &mut self,
        gathered: &Gathered<'_>,
        samples: &[f32],
        gradient: &[f32],
        target: Fresh,
    ) {
        let (shape, size) = (self.shape, gathered.samples);
        let mut targets = target.split(size * shape.sample_in());
        let gradients = gradient.chunks(size * shape.sample_out());
        for (samples, gradient) in samples.chunks(size * shape.sample_in()).zip(gradients) {
            gradient.chunks(shape.sample_out()).for_each(|gradient| self.add_bias(gradient));
            if self.direct.weight.is_none() && !self.weight.is_empty() {
                gathered.weight_gradient(samples, gradient, &mut self.weight);
            }
            let Some(target) = targets.next() else { continue };
            match &self.direct.input {
                Some(direct) => {
                    let targets = target.split(shape.sample_in());
                    for (target, gradient) in targets.zip(gradient.chunks(shape.sample_out())) {
                        direct.run(gradient, target);
                    }
                }
                None => gathered.input_gradient(gradient, self.saved.weight, target.zeroed()),
            }
        }
    }

    /// Adds what the direct kernel does not compute.
    fn add_sample(&mut self, sample: &[f32], gradient: &[f32], target: Option<Fresh>) {
        self.add_bias(gradient);
        if let Some(depthwise) = &self.direct.depthwise {
            let sums = match self.direct.weight {
                None => &mut self.weight[..],
                Some(_) => &mut [],
            };
            let target = target.filter(|_| self.direct.input.is_none()).map(Fresh::zeroed);
            depthwise.backward(sample, gradient, sums, target);
            return;
        }
        with_scratch(columns_len(self.shape), |columns| {
            if self.direct.weight.is_none() {
                self.add_weight(sample, gradient, columns);
            }
            let Some(target) = target else { return };
            match &self.direct.input {
                Some(direct) => direct.run(gradient, target),
                None => {
                    let (shape, weight) = (self.shape, self.saved.weight);
                    input_gradient(shape, weight, gradient, columns, target.zeroed());
                }
            }
        });
    }

    fn add_bias(&mut self, gradient: &[f32]) {
        let planes = gradient.chunks(self.shape.pixels_out());
        self.bias.iter_mut().zip(planes).for_each(|(bias, plane)| *bias += sum(plane));
    }

    fn add_weight(&mut self, sample: &[f32], gradient: &[f32], scratch: &mut [f32]) {
        if self.weight.is_empty() {
            return;
        }
        for group in ChannelGroup::all(self.shape) {
            let columns = group.columns(sample, scratch);
            let target = group.filters_mut(&mut self.weight);
            product(ProductOutput::Add, target, group.output(gradient), columns.transposed());
        }
    }
}

fn input_gradient(
    shape: &ConvShape,
    weight: &[f32],
    gradient: &[f32],
    columns: &mut [f32],
    target: &mut [f32],
) {
    for group in ChannelGroup::all(shape) {
        let filters = group.filters(weight).transposed();
        if shape.is_pointwise() {
            product(
                ProductOutput::Replace,
                group.input_mut(target),
                filters,
                group.output(gradient),
            );
        } else {
            product(ProductOutput::Replace, columns, filters, group.output(gradient));
            let row = shape.pixels_out();
            col2im(shape, group.channels_in(), columns, row, group.input_mut(target));
        }
    }
}

/// How many samples one task sums: a matter of the shape alone, so that sums do not depend on the number of threads.
fn samples_per_piece(shape: &ConvShape) -> usize {
    // Every piece has weights of its own; many large ones would not fit into memory.
    let pieces = ((1 << 22) / shape.weights().max(1)).clamp(2, 16);
    shape.batch.div_ceil(pieces).max(1)
}

/// Values of a sample's columns in one group.
fn columns_len(shape: &ConvShape) -> usize {
    if shape.is_pointwise() { 0 } else { shape.taps() * shape.pixels_out() }
}

fn check(shape: &ConvShape, input: &[f32], weight: &[f32]) {
    assert!(shape.is_valid(), "{shape:?} is not a convolution");
    assert_eq!(input.len(), shape.batch * shape.sample_in(), "wrong size of the input");
    assert_eq!(weight.len(), shape.weights(), "wrong size of the weights");
}

/// One group of channels.
#[derive(Clone, Copy)]
struct ChannelGroup<'a> {
    shape: &'a ConvShape,
    index: usize,
}

impl<'a> ChannelGroup<'a> {
    fn all(shape: &'a ConvShape) -> impl Iterator<Item = Self> {
        (0..shape.groups).map(move |index| Self { shape, index })
    }

    fn channels_in(&self) -> usize {
        self.shape.channels_in / self.shape.groups
    }

    fn channels_out(&self) -> usize {
        self.shape.channels_out / self.shape.groups
    }

    fn columns<'b>(&self, sample: &'b [f32], scratch: &'b mut [f32]) -> Matrix<'b> {
        let len = self.channels_in() * self.shape.size[0] * self.shape.size[1];
        let pixels = &sample[self.index * len..][..len];
        let (rows, columns) = (self.shape.taps(), self.shape.pixels_out());
        if self.shape.is_pointwise() {
            return Matrix::new(pixels, rows, columns);
        }
        if self.shape.padding != [(0, 0); 2] {
            scratch.fill(0.0);
        }
        im2col(self.shape, self.channels_in(), pixels, scratch, columns);
        Matrix::new(scratch, rows, columns)
    }

    fn filters<'b>(&self, weight: &'b [f32]) -> Matrix<'b> {
        let len = self.channels_out() * self.shape.taps();
        Matrix::new(&weight[self.index * len..][..len], self.channels_out(), self.shape.taps())
    }

    fn filters_mut<'b>(&self, weight: &'b mut [f32]) -> &'b mut [f32] {
        let len = self.channels_out() * self.shape.taps();
        &mut weight[self.index * len..][..len]
    }

    fn output<'b>(&self, sample: &'b [f32]) -> Matrix<'b> {
        let (rows, columns) = (self.channels_out(), self.shape.pixels_out());
        Matrix::new(&sample[self.index * rows * columns..][..rows * columns], rows, columns)
    }

    fn output_mut<'b>(&self, sample: &'b mut [f32]) -> &'b mut [f32] {
        let len = self.channels_out() * self.shape.pixels_out();
        &mut sample[self.index * len..][..len]
    }

    fn input_mut<'b>(&self, sample: &'b mut [f32]) -> &'b mut [f32] {
        let len = self.channels_in() * self.shape.size[0] * self.shape.size[1];
        &mut sample[self.index * len..][..len]
    }
}
