//! Maxima of overlapping windows, tap by tap for a whole row of windows: what one tap reads for neighbouring windows
//! lies side by side once columns are sorted by their place between two windows.

use super::NOBODY;
use crate::cpu::buffer::with_scratch;
use crate::cpu::rows::wide;
use crate::cpu::shape::PoolShape;

/// Fewer windows in a row are not worth it.
const FEWEST_COLUMNS: usize = 8;

/// Whether windows are computed in rows.
pub(super) fn serves(shape: &PoolShape) -> bool {
    shape.dilation == [1, 1] && shape.out()[1] >= FEWEST_COLUMNS
}

/// The maxima and the winners of a plane, but for windows where nothing is above minus infinity.
pub(super) fn maxima(shape: &PoolShape, input: &[f32], maxima: &mut [f32], winners: &mut [u8]) {
    let ([_, columns], [_, kernel], [_, step]) = (shape.out(), shape.kernel, shape.stride);
    // For every place between two windows, so many columns that all taps find theirs.
    let sorted = columns + kernel.div_ceil(step);
    let row = step * sorted;
    with_scratch(shape.size[0] * row, |scratch| {
        wide(
            #[inline(always)]
            || {
                let lines = input.chunks_exact(shape.size[1]);
                for (line, to) in lines.zip(scratch.chunks_exact_mut(row)) {
                    sort(shape.padding[1].0, step, line, to);
                }
                let down = shape.window(0);
                let rows = maxima.chunks_exact_mut(columns).zip(winners.chunks_exact_mut(columns));
                for (at, (maxima, winners)) in rows.enumerate() {
                    maxima.fill(f32::NEG_INFINITY);
                    winners.fill(NOBODY);
                    for ky in 0..shape.kernel[0] {
                        let Some(y) = down.at(at, ky) else { continue };
                        let line = &scratch[y * row..][..row];
                        for kx in 0..kernel {
                            let values = &line[kx % step * sorted + kx / step..][..columns];
                            compete((ky * kernel + kx) as u8, values, maxima, winners);
                        }
                    }
                }
            },
        );
    });
}

/// A row's columns, those with the same rest by `step` side by side, with what never wins around them.
#[inline(always)]
fn sort(before: usize, step: usize, line: &[f32], to: &mut [f32]) {
    let sorted = to.len() / step;
    to.fill(f32::NEG_INFINITY);
    for rest in 0..step {
        // The first column of the line that has this rest in the padded one.
        let first = (rest + step - before % step) % step;
        let place = (first + before) / step;
        let part = &mut to[rest * sorted..][..sorted];
        let values = line.iter().skip(first).step_by(step);
        part[place.min(sorted)..].iter_mut().zip(values).for_each(|(to, value)| *to = *value);
    }
}

/// Lets a tap win where it is greater, or not a number.
#[inline(always)]
fn compete(tap: u8, values: &[f32], maxima: &mut [f32], winners: &mut [u8]) {
    let (maxima, winners) = (&mut maxima[..values.len()], &mut winners[..values.len()]);
    for ((value, maximum), winner) in values.iter().zip(maxima).zip(winners) {
        let wins = (*value > *maximum) | value.is_nan();
        *maximum = if wins { *value } else { *maximum };
        *winner = if wins { tap } else { *winner };
    }
}
