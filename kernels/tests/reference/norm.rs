//! Batch normalisation and average pooling in the plainest Rust.

use crate::cpu::batch_norm::{NormGradients, NormShape};

/// Mean and variance of a channel.
fn moments(shape: &NormShape, input: &[f32], channel: usize) -> (f64, f64) {
    let count = (shape.batch * shape.pixels) as f64;
    let of_channel = || values_of(shape, input, channel).map(|(_, value)| value);
    let mean = of_channel().sum::<f64>() / count;
    (mean, of_channel().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}

/// Places and values of a channel.
fn values_of<'a>(
    shape: &NormShape,
    values: &'a [f32],
    channel: usize,
) -> impl Iterator<Item = (usize, f64)> + use<'a> {
    let NormShape { channels, pixels, .. } = *shape;
    let all = values.iter().enumerate();
    all.filter(move |(at, _)| at / pixels % channels == channel)
        .map(|(at, value)| (at, f64::from(*value)))
}

/// Normalises by the batch's statistics: the output, the means and the variances.
pub(crate) fn batch_norm(
    shape: &NormShape,
    input: &[f32],
    [gamma, beta]: [&[f32]; 2],
    epsilon: f64,
) -> [Vec<f32>; 3] {
    let (mut output, mut means, mut variances) = (vec![0.0; input.len()], Vec::new(), Vec::new());
    for (channel, (gamma, beta)) in gamma.iter().zip(beta).enumerate() {
        let (mean, variance) = moments(shape, input, channel);
        for (at, value) in values_of(shape, input, channel) {
            let normal = (value - mean) / (variance + epsilon).sqrt();
            output[at] = (f64::from(*gamma) * normal + f64::from(*beta)) as f32;
        }
        means.push(mean as f32);
        variances.push(variance as f32);
    }
    [output, means, variances]
}

/// The gradients of [`batch_norm`], through its statistics too.
pub(crate) fn batch_norm_backward(
    shape: &NormShape,
    input: &[f32],
    gamma: &[f32],
    epsilon: f64,
    gradient: &[f32],
) -> NormGradients {
    let count = (shape.batch * shape.pixels) as f64;
    let mut found = NormGradients {
        input: vec![0.0; input.len()],
        residual: Some(gradient.to_vec()),
        gamma: Vec::new(),
        beta: Vec::new(),
    };
    for (channel, gamma) in gamma.iter().enumerate() {
        let (mean, variance) = moments(shape, input, channel);
        let normal = |value: f64| (value - mean) / (variance + epsilon).sqrt();
        let pairs: Vec<_> = values_of(shape, input, channel)
            .map(|(at, value)| (at, normal(value), f64::from(gradient[at])))
            .collect();
        let of_beta: f64 = pairs.iter().map(|(_, _, gradient)| gradient).sum();
        let of_gamma: f64 = pairs.iter().map(|(_, normal, gradient)| normal * gradient).sum();
        for (at, normal, gradient) in pairs {
            let slope = gradient - of_beta / count - normal * of_gamma / count;
            let factor = f64::from(*gamma) / (variance + epsilon).sqrt();
            found.input[at] = (factor * slope) as f32;
        }
        found.gamma.push(of_gamma as f32);
        found.beta.push(of_beta as f32);
    }
    found
}
