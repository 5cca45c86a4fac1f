//! Convolutions of a training step by fewer products, where a batch is worth what comes on top of them: at Winograd's
//! points, or pixel by pixel.

use std::borrow::Cow;

use super::{ConvGradients, ConvShape, Saved, WantedGradients};
use crate::cpu::buffer::in_pieces;
use crate::cpu::elementwise::{add, relu, relu_backward, sum};
use crate::cpu::pixelwise::Pixelwise;
use crate::cpu::pointwise::Pointwise;
use crate::cpu::tasks::share;
use crate::cpu::winograd::{TileGradients, Winograd};

/// A way to compute a convolution of a whole batch.
enum OfBatch {
    AtPoints(Winograd),
    ByPixels(Pixelwise),
    Pointwise(Pointwise),
}

impl OfBatch {
    fn new(shape: &ConvShape) -> Option<Self> {
        let by_pixels = || Pixelwise::new(shape).map(Self::ByPixels);
        let pointwise = || Pointwise::new(shape).map(Self::Pointwise);
        Winograd::new(shape).map(Self::AtPoints).or_else(by_pixels).or_else(pointwise)
    }
}

/// [`super::forward`] for training, whose sums may be taken in another order than those of inference.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn forward_training(
    shape: &ConvShape,
    input: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    with_relu: bool,
) -> Vec<f32> {
    super::check(shape, input, weight);
    let mut output = match OfBatch::new(shape) {
        Some(OfBatch::AtPoints(way)) => way.forward(input, weight, bias),
        Some(OfBatch::ByPixels(way)) => way.forward(input, weight, bias),
        Some(OfBatch::Pointwise(_)) | None => {
            return super::forward(shape, input, weight, bias, with_relu);
        }
    };
    if with_relu {
        relu(&mut output);
    }
    output
}

/// The gradients, where one of these ways serves the shape.
pub(super) fn backward(
    shape: &ConvShape,
    saved: Saved,
    gradient: &[f32],
    wanted: WantedGradients,
) -> Option<ConvGradients> {
    let way = OfBatch::new(shape).filter(|_| wanted.input || wanted.weight)?;
    let gradient = match saved.relu_output {
        None => Cow::Borrowed(gradient),
        Some(output) => {
            let mut gradient = gradient.to_vec();
            relu_backward(&mut gradient, output);
            Cow::Owned(gradient)
        }
    };
    let values = [saved.input, saved.weight, &*gradient];
    let both = [wanted.input, wanted.weight];
    let [input, weight] = match way {
        OfBatch::AtPoints(way) => {
            let TileGradients { input, weight } = way.backward(values, both);
            [input, weight]
        }
        OfBatch::ByPixels(way) => way.backward(values, both),
        OfBatch::Pointwise(way) => by_samples(shape, &way, values, both),
    };
    let bias = wanted.bias.then(|| bias_gradient(shape, &gradient));
    Some(ConvGradients { input, weight, bias })
}

/// The gradients of a convolution of one tap, sample by sample.
fn by_samples(
    shape: &ConvShape,
    way: &Pointwise,
    [input, weight, gradient]: [&[f32]; 3],
    [of_input, of_weight]: [bool; 2],
) -> [Option<Vec<f32>>; 2] {
    let samples = super::samples_per_piece(shape);
    let (size, out) = (shape.sample_in(), shape.sample_out());
    let len = if of_input { input.len() } else { 0 };
    let count = shape.batch.div_ceil(samples);
    let (target, sums) = in_pieces(len, samples * size, count, |piece, target| {
        let mut sums = if of_weight { way.gradient_sums() } else { Vec::new() };
        let mut targets = target.split(size);
        for at in piece * samples..shape.batch.min((piece + 1) * samples) {
            let gradient = &gradient[at * out..][..out];
            if of_weight {
                way.add_weight_gradient(&input[at * size..][..size], gradient, &mut sums);
            }
            if let Some(target) = targets.next() {
                way.input_gradient(gradient, weight, target);
            }
        }
        sums
    });
    let sums = sums.into_iter().reduce(|mut sums, part| {
        add(&mut sums, &part);
        sums
    });
    let weight = of_weight.then(|| way.finish(&sums.unwrap_or_else(|| way.gradient_sums())));
    [of_input.then_some(target), weight]
}

/// The sums of all planes of each channel.
fn bias_gradient(shape: &ConvShape, gradient: &[f32]) -> Vec<f32> {
    let (pixels, channels) = (shape.pixels_out(), shape.channels_out);
    share((0..channels).collect(), |_, channel: usize| {
        let planes = gradient.chunks_exact(pixels).skip(channel).step_by(channels);
        planes.map(sum).sum()
    })
}
