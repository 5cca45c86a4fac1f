//! Two-dimensional max-pooling; the winner of each window is kept as a byte for the backward pass.

mod taps;

use super::buffer::in_pieces;
use super::rows::wide;
use super::shape::PoolShape;
use super::tasks::share;

/// The winner of a window that lies in the padding altogether.
const NOBODY: u8 = u8::MAX;

/// The maxima and, for each, the number of the tap that won: the first of equal ones, and any that is not a number.
///
/// # Panics
/// If the slice does not have the shape's size.
pub fn forward(shape: &PoolShape, input: &[f32]) -> (Vec<f32>, Vec<u8>) {
    assert!(shape.is_valid(), "{shape:?} is not a pooling");
    let (plane, out) = (plane_in(shape), plane_out(shape));
    assert_eq!(input.len(), shape.planes * plane, "wrong size of the input");
    let mut maxima = vec![0.0; shape.planes * out];
    let mut winners = vec![0; shape.planes * out];
    let planes = planes_per_piece(shape);
    let targets = maxima.chunks_mut(planes * out).zip(winners.chunks_mut(planes * out));
    let pieces = targets.zip(input.chunks(planes * plane)).collect();
    share(pieces, |_, ((maxima, winners), input)| {
        let targets = maxima.chunks_mut(out).zip(winners.chunks_mut(out));
        for ((maxima, winners), input) in targets.zip(input.chunks(plane)) {
            if is_halving(shape) {
                halve(shape, input, maxima, winners);
            } else if is_sampling(shape) {
                sample(shape, input, maxima);
            } else {
                maxima_of_plane(shape, input, maxima, winners);
            }
        }
    });
    (maxima, winners)
}

/// The gradient of the input: that of each maximum, at its winner.
///
/// # Panics
/// If the slices do not have the shape's sizes.
pub fn backward(shape: &PoolShape, gradient: &[f32], winners: &[u8]) -> Vec<f32> {
    assert!(shape.is_valid(), "{shape:?} is not a pooling");
    let (plane, out) = (plane_in(shape), plane_out(shape));
    assert_eq!(gradient.len(), shape.planes * out, "the gradient has not the output's size");
    assert_eq!(winners.len(), gradient.len(), "a winner for each maximum");
    let planes = planes_per_piece(shape);
    let count = shape.planes.div_ceil(planes);
    let (input, _) = in_pieces(shape.planes * plane, planes * plane, count, |piece, input| {
        let input = input.zeroed();
        let first = piece * planes * out;
        let sources = gradient[first..].chunks(out).zip(winners[first..].chunks(out));
        for (input, (gradient, winners)) in input.chunks_mut(plane).zip(sources) {
            if is_halving(shape) {
                unhalve(shape, gradient, winners, input);
            } else if is_sampling(shape) {
                unsample(shape, gradient, input);
            } else {
                scatter(shape, gradient, winners, input);
            }
        }
    });
    input
}

fn plane_in(shape: &PoolShape) -> usize {
    shape.size[0] * shape.size[1]
}

fn plane_out(shape: &PoolShape) -> usize {
    shape.out().iter().product()
}

fn planes_per_piece(shape: &PoolShape) -> usize {
    ((1 << 15) / plane_in(shape).max(1)).max(1)
}

/// The usual case: windows of two by two, side by side.
fn is_halving(shape: &PoolShape) -> bool {
    shape.kernel == [2, 2]
        && shape.stride == [2, 2]
        && shape.dilation == [1, 1]
        && shape.padding == [(0, 0); 2]
}

/// Windows of one pixel, which wins: only some pixels are taken.
fn is_sampling(shape: &PoolShape) -> bool {
    shape.kernel == [1, 1] && shape.padding == [(0, 0); 2]
}

fn sample(shape: &PoolShape, input: &[f32], maxima: &mut [f32]) {
    let rows = input.chunks_exact(shape.size[1]).step_by(shape.stride[0]);
    for (row, maxima) in rows.zip(maxima.chunks_exact_mut(shape.out()[1])) {
        for (value, maximum) in row.iter().step_by(shape.stride[1]).zip(maxima) {
            *maximum = *value;
        }
    }
}

fn unsample(shape: &PoolShape, gradient: &[f32], input: &mut [f32]) {
    let rows = input.chunks_exact_mut(shape.size[1]).step_by(shape.stride[0]);
    for (row, gradient) in rows.zip(gradient.chunks_exact(shape.out()[1])) {
        for (place, gradient) in row.iter_mut().step_by(shape.stride[1]).zip(gradient) {
            *place = *gradient;
        }
    }
}

fn maxima_of_plane(shape: &PoolShape, input: &[f32], maxima: &mut [f32], winners: &mut [u8]) {
    if taps::serves(shape) {
        taps::maxima(shape, input, maxima, winners);
    } else {
        winners.fill(NOBODY);
    }
    for (at, (maximum, winner)) in maxima.iter_mut().zip(winners).enumerate() {
        if *winner == NOBODY {
            (*maximum, *winner) = maximum_of_window(shape, input, at);
        }
    }
}

fn maximum_of_window(shape: &PoolShape, input: &[f32], at: usize) -> (f32, u8) {
    let columns = shape.out()[1];
    let (down, along) = (shape.window(0), shape.window(1));
    let (mut maximum, mut winner) = (f32::NEG_INFINITY, NOBODY);
    for ky in 0..shape.kernel[0] {
        let Some(y) = down.at(at / columns, ky) else { continue };
        for kx in 0..shape.kernel[1] {
            let Some(x) = along.at(at % columns, kx) else { continue };
            let value = input[y * shape.size[1] + x];
            if winner == NOBODY || value > maximum || value.is_nan() {
                (maximum, winner) = (value, (ky * shape.kernel[1] + kx) as u8);
            }
        }
    }
    (maximum, winner)
}

fn scatter(shape: &PoolShape, gradient: &[f32], winners: &[u8], input: &mut [f32]) {
    let columns = shape.out()[1];
    let (down, along) = (shape.window(0), shape.window(1));
    for (at, (gradient, winner)) in gradient.iter().zip(winners).enumerate() {
        if *winner == NOBODY {
            continue;
        }
        let (ky, kx) =
            (usize::from(*winner) / shape.kernel[1], usize::from(*winner) % shape.kernel[1]);
        if let (Some(y), Some(x)) = (down.at(at / columns, ky), along.at(at % columns, kx)) {
            input[y * shape.size[1] + x] += gradient;
        }
    }
}

fn halve(shape: &PoolShape, input: &[f32], maxima: &mut [f32], winners: &mut [u8]) {
    let (width, columns) = (shape.size[1], shape.out()[1]);
    wide(
        #[inline(always)]
        || {
            let targets = maxima.chunks_exact_mut(columns).zip(winners.chunks_exact_mut(columns));
            for ((maxima, winners), rows) in targets.zip(input.chunks_exact(2 * width)) {
                let (top, bottom) = rows.split_at(width);
                let pairs = top.as_chunks::<2>().0.iter().zip(bottom.as_chunks::<2>().0);
                for ((maximum, winner), (top, bottom)) in maxima.iter_mut().zip(winners).zip(pairs)
                {
                    let taps = [top[0], top[1], bottom[0], bottom[1]];
                    let (mut best, mut at) = (taps[0], 0);
                    for (tap, value) in taps.into_iter().enumerate().skip(1) {
                        let wins = (value > best) | value.is_nan();
                        best = if wins { value } else { best };
                        at = if wins { tap as u8 } else { at };
                    }
                    (*maximum, *winner) = (best, at);
                }
            }
        },
    );
}

fn unhalve(shape: &PoolShape, gradient: &[f32], winners: &[u8], input: &mut [f32]) {
    let (width, columns) = (shape.size[1], shape.out()[1]);
    wide(
        #[inline(always)]
        || {
            let sources = gradient.chunks_exact(columns).zip(winners.chunks_exact(columns));
            for ((gradient, winners), rows) in sources.zip(input.chunks_exact_mut(2 * width)) {
                let (top, bottom) = rows.split_at_mut(width);
                unhalve_row::<0>(gradient, winners, top);
                unhalve_row::<2>(gradient, winners, bottom);
            }
        },
    );
}

/// One row of windows' gradients, shared between taps `FIRST` and the next.
#[inline(always)]
fn unhalve_row<const FIRST: u8>(gradient: &[f32], winners: &[u8], row: &mut [f32]) {
    // In blocks of a fixed size, which the compiler turns into shuffles.
    const BLOCK: usize = 4;
    let share = |gradient: f32, winner: u8, tap: u8| {
        f32::from_bits(gradient.to_bits() & u32::from(winner == tap).wrapping_neg())
    };
    let ((gradients, _), (winner_blocks, _)) =
        (gradient.as_chunks::<BLOCK>(), winners.as_chunks::<BLOCK>());
    let (targets, _) = row.as_chunks_mut::<{ 2 * BLOCK }>();
    for ((gradient, winners), target) in gradients.iter().zip(winner_blocks).zip(targets) {
        let first: [f32; BLOCK] = std::array::from_fn(|i| share(gradient[i], winners[i], FIRST));
        let second: [f32; BLOCK] =
            std::array::from_fn(|i| share(gradient[i], winners[i], FIRST + 1));
        *target = std::array::from_fn(|i| if i % 2 == 0 { first[i / 2] } else { second[i / 2] });
    }
    for at in gradients.len() * BLOCK..gradient.len() {
        row[2 * at] = share(gradient[at], winners[at], FIRST);
        row[2 * at + 1] = share(gradient[at], winners[at], FIRST + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_windows_have_the_maxima_of_each_window() {
        for (kernel, stride, padding) in
            [(3, 2, (1, 1)), (3, 1, (1, 0)), (5, 3, (2, 2)), (2, 4, (0, 1)), (3, 2, (2, 2))]
        {
            let shape = PoolShape {
                planes: 1,
                size: [9, 37],
                kernel: [kernel; 2],
                stride: [stride; 2],
                padding: [padding; 2],
                dilation: [1, 1],
            };
            assert!(taps::serves(&shape));
            let value = |at: usize| match at % 11 {
                0 => f32::NAN,
                1..4 => f32::NEG_INFINITY,
                _ => (at * 7919 % 13) as f32 - 6.0,
            };
            let mut input: Vec<f32> = (0..9 * 37).map(value).collect();
            // Windows of nothing else.
            input[..37 * 3].fill(f32::NEG_INFINITY);
            let (maxima, winners) = forward(&shape, &input);
            for (at, (maximum, winner)) in maxima.iter().zip(&winners).enumerate() {
                let (expected, by) = maximum_of_window(&shape, &input, at);
                assert_eq!(
                    (maximum.to_bits(), *winner),
                    (expected.to_bits(), by),
                    "{shape:?}, {at}"
                );
            }
        }
    }
}
