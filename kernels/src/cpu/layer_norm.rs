//! Layer normalisation (<https://arxiv.org/abs/1607.06450>): every row to mean zero and variance one, then scaled and
//! shifted by column.

use super::buffer::in_pieces;
use super::elementwise::add;
use super::rows::{dot, sum, sum_of, wide};

/// How many values one task takes, in whole rows. Gradients of columns are summed per task first, so tasks are large
/// enough for these sums to be few.
const PIECE: usize = 1 << 16;

/// What the backward pass needs of a row besides the row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Its mean.
    pub mean: f32,
    /// One over its deviation.
    pub inverse: f32,
}

/// The gradients of a layer normalisation.
#[derive(Debug)]
pub struct NormGradients {
    /// Of the input.
    pub input: Vec<f32>,
    /// Of the scales.
    pub gamma: Vec<f32>,
    /// Of the shifts.
    pub beta: Vec<f32>,
}

/// The normalised rows, and the moments of each. Rows are as long as `gamma`.
pub fn forward(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f32,
) -> (Vec<f32>, Vec<Moments>) {
    let width = gamma.len();
    let (piece, count) = cut(input.len(), width);
    let (output, moments) = in_pieces(input.len(), piece, count, |at, output| {
        let output = output.zeroed();
        let rows = input[at * piece..].chunks(width).zip(output.chunks_mut(width));
        rows.map(|(row, output)| normalise(row, gamma, beta, epsilon, output)).collect::<Vec<_>>()
    });
    (output, moments.concat())
}

fn normalise(
    row: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f32,
    output: &mut [f32],
) -> Moments {
    wide(
        #[inline(always)]
        || {
            let width = row.len() as f32;
            let mean = sum(row) / width;
            let variance = sum_of(row.len(), |at| (row[at] - mean) * (row[at] - mean)) / width;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            let columns = gamma.iter().zip(beta);
            for ((output, value), (gamma, beta)) in output.iter_mut().zip(row).zip(columns) {
                *output = (value - mean) * inverse * gamma + beta;
            }
            Moments { mean, inverse }
        },
    )
}

/// All gradients. The sums over rows are taken piece by piece, then over the pieces in their order.
pub fn backward(
    input: &[f32],
    gamma: &[f32],
    moments: &[Moments],
    gradient: &[f32],
) -> NormGradients {
    let width = gamma.len();
    let (piece, count) = cut(input.len(), width);
    let (of_input, sums) = in_pieces(input.len(), piece, count, |at, output| {
        let output = output.zeroed();
        let mut sums = Sums::new(width);
        let first = at * piece;
        let rows = input[first..].chunks(width).zip(gradient[first..].chunks(width));
        let moments = &moments[first / width..];
        for (((row, gradient), output), moments) in rows.zip(output.chunks_mut(width)).zip(moments)
        {
            sums.add_row(InputRow { values: row, moments: *moments, gradient }, gamma, output);
        }
        sums
    });
    let mut all = Sums::new(width);
    for sums in &sums {
        add(&mut all.gamma, &sums.gamma);
        add(&mut all.beta, &sums.beta);
    }
    NormGradients { input: of_input, gamma: all.gamma, beta: all.beta }
}

/// A row of the input and what is known of it.
struct InputRow<'a> {
    values: &'a [f32],
    moments: Moments,
    gradient: &'a [f32],
}

/// Sums over rows of the columns' gradients.
struct Sums {
    gamma: Vec<f32>,
    beta: Vec<f32>,
    scaled: Vec<f32>,
    normal: Vec<f32>,
}

impl Sums {
    fn new(width: usize) -> Self {
        let zeros = || vec![0.0; width];
        Self { gamma: zeros(), beta: zeros(), scaled: zeros(), normal: zeros() }
    }

    /// Takes one row in, and writes the gradient of its input.
    fn add_row(&mut self, row: InputRow<'_>, gamma: &[f32], output: &mut [f32]) {
        let InputRow { values: row, moments: Moments { mean, inverse }, gradient } = row;
        let width = row.len();
        let Self { gamma: of_gamma, beta: of_beta, scaled, normal } = self;
        wide(
            #[inline(always)]
            || {
                let (of_gamma, of_beta) = (&mut of_gamma[..width], &mut of_beta[..width]);
                let (scaled, normal) = (&mut scaled[..width], &mut normal[..width]);
                let (gradient, gamma) = (&gradient[..width], &gamma[..width]);
                for at in 0..width {
                    normal[at] = (row[at] - mean) * inverse;
                    scaled[at] = gradient[at] * gamma[at];
                    of_gamma[at] += gradient[at] * normal[at];
                    of_beta[at] += gradient[at];
                }
                let mean_scaled = sum(scaled) / width as f32;
                let mean_along = dot(scaled, normal) / width as f32;
                let output = &mut output[..width];
                for at in 0..width {
                    output[at] = inverse * (scaled[at] - mean_scaled - normal[at] * mean_along);
                }
            },
        );
    }
}

/// The length of a piece, in values, and how many there are.
fn cut(len: usize, width: usize) -> (usize, usize) {
    let piece = (PIECE / width).max(1) * width;
    (piece, len.div_ceil(piece))
}
