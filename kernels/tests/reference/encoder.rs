//! What a transformer's encoder is made of.

use crate::cpu::attention::{AttentionShape, Inputs, Masks};

use super::conv::narrow;

/// Rows to mean zero and variance one, scaled and shifted by column.
pub(crate) fn layer_norm(input: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32) -> Vec<f32> {
    let width = gamma.len();
    let mut output = Vec::with_capacity(input.len());
    for row in input.chunks(width) {
        let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / width as f64;
        let squares = row.iter().map(|value| (f64::from(*value) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / width as f64 + f64::from(epsilon)).sqrt();
        for (at, value) in row.iter().enumerate() {
            let normal = (f64::from(*value) - mean) / deviation;
            output.push(normal * f64::from(gamma[at]) + f64::from(beta[at]));
        }
    }
    narrow(output)
}

/// `x` times the normal distribution's share below `x`, by the error function's series; for values up to about 6.
pub(crate) fn gelu(input: &[f32]) -> Vec<f32> {
    let value = |x: &f32| {
        let z = f64::from(*x) / std::f64::consts::SQRT_2;
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        f64::from(*x) * (0.5 + sum * std::f64::consts::FRAC_2_SQRT_PI / 2.0)
    };
    narrow(input.iter().map(value).collect())
}

/// The cross-entropy of each row of scores against its label.
pub(crate) fn cross_entropy(scores: &[f32], labels: &[usize], classes: usize) -> Vec<f32> {
    let rows = scores.chunks(classes).zip(labels);
    let loss = |(row, label): (&[f32], &usize)| {
        let sum = row.iter().map(|score| f64::from(*score).exp()).sum::<f64>();
        sum.ln() - f64::from(row[*label])
    };
    narrow(rows.map(loss).collect())
}

/// Attention of several heads, without dropout.
pub(crate) fn attention(shape: &AttentionShape, inputs: Inputs<'_>, masks: &Masks) -> Vec<f32> {
    let AttentionShape { batch, heads, queries, keys, width } = *shape;
    let columns = heads * width;
    let at =
        |values: &[f32], place: usize, column: usize| f64::from(values[place * columns + column]);
    let mut output = vec![0.0; batch * queries * columns];
    for which in 0..batch * heads * queries {
        let (sequence, head, query) =
            (which / (heads * queries), which / queries % heads, which % queries);
        let asking = sequence * queries + query;
        let first = head * width;
        let score = |key: usize| {
            let hidden = |mask: &Option<std::sync::Arc<[bool]>>, at: usize| {
                mask.as_ref().is_some_and(|mask| mask[at])
            };
            let asked = sequence * keys + key;
            if hidden(&masks.pad, asked) || hidden(&masks.attention, asking * keys + key) {
                return f64::from(masks.fill);
            }
            let products = (first..first + width)
                .map(|column| at(inputs.query, asking, column) * at(inputs.key, asked, column));
            products.sum::<f64>() / (width as f64).sqrt()
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = scores.iter().map(|score| (score - largest).exp()).sum::<f64>();
        for column in first..first + width {
            let weighed = scores.iter().enumerate().map(|(key, score)| {
                (score - largest).exp() / sum * at(inputs.value, sequence * keys + key, column)
            });
            output[asking * columns + column] = weighed.sum::<f64>();
        }
    }
    narrow(output)
}
