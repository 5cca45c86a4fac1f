//! GELU, `x` times the normal distribution's share below `x` (<https://arxiv.org/abs/1606.08415>), and its slope.

use super::buffer::in_pieces;
use super::rows::{normal, wide};
use super::tasks::share;

/// What one task does: small enough to stay in a core's cache, large enough to be worth a task.
const PIECE: usize = 1 << 14;

/// One over the root of two pi.
const DENSITY: f32 = 0.398_942_3;

/// GELU of every value.
pub fn forward(input: &[f32]) -> Vec<f32> {
    let count = input.len().div_ceil(PIECE);
    let (output, _) = in_pieces(input.len(), PIECE, count, |piece, output| {
        let output = output.zeroed();
        let input = &input[piece * PIECE..][..output.len()];
        wide(
            #[inline(always)]
            || {
                for (output, input) in output.iter_mut().zip(input) {
                    *output = *input * normal(*input).0;
                }
            },
        );
    });
    output
}

/// GELU in place, on the calling thread.
pub(crate) fn gelu_piece(values: &mut [f32]) {
    wide(
        #[inline(always)]
        || values.iter_mut().for_each(|value| *value *= normal(*value).0),
    );
}

/// The same, and GELU's slope at each of the values: both take the same exponential.
pub(crate) fn gelu_piece_with_slope(values: &mut [f32], slopes: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for (value, slope) in values.iter_mut().zip(slopes.iter_mut()) {
                let (below, bell) = normal(*value);
                *slope = below + *value * (DENSITY * bell);
                *value *= below;
            }
        },
    );
}

/// The gradient behind a GELU whose slopes are known, in place.
pub fn backward_by_slope(gradient: &mut [f32], slope: &[f32]) {
    let pieces = gradient.chunks_mut(PIECE).zip(slope.chunks(PIECE)).collect();
    share(pieces, |_, (gradient, slope): (&mut [f32], &[f32])| {
        wide(
            #[inline(always)]
            || gradient.iter_mut().zip(slope).for_each(|(gradient, slope)| *gradient *= slope),
        );
    });
}

/// The gradient behind a GELU, in place.
pub fn backward(gradient: &mut [f32], input: &[f32]) {
    let pieces = gradient.chunks_mut(PIECE).zip(input.chunks(PIECE)).collect();
    share(pieces, |_, (gradient, input): (&mut [f32], &[f32])| {
        wide(
            #[inline(always)]
            || {
                for (gradient, input) in gradient.iter_mut().zip(input) {
                    let (below, bell) = normal(*input);
                    *gradient *= below + *input * (DENSITY * bell);
                }
            },
        );
    });
}
