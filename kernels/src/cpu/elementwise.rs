//! ReLU and sums over long slices, with the widest instructions that the machine has.

use super::tasks::{share, share_pieces};

use super::rows::{self, wide};

/// What one task does: small enough to stay in a core's cache, large enough to be worth a task.
const PIECE: usize = 1 << 15;

/// `max(x, 0)` in place; a value that is not a number stays one.
pub fn relu(values: &mut [f32]) {
    share_pieces(values, PIECE, |_, values| relu_piece(values));
}

/// The gradient behind a ReLU in place: zero wherever its output was not positive.
pub fn relu_backward(gradient: &mut [f32], output: &[f32]) {
    let pieces = gradient.chunks_mut(PIECE).zip(output.chunks(PIECE)).collect();
    share(pieces, |_, (gradient, output)| mask_piece(gradient, output));
}

/// `min(max(x, 0), 6)` in place; a value that is not a number stays one.
pub fn relu6(values: &mut [f32]) {
    share_pieces(values, PIECE, |_, values| {
        wide(
            #[inline(always)]
            || {
                for value in values.iter_mut() {
                    let positive = if *value < 0.0 { 0.0 } else { *value };
                    *value = if positive > 6.0 { 6.0 } else { positive };
                }
            },
        );
    });
}

/// The gradient behind a ReLU6 in place: zero wherever its output was at one of its ends.
pub fn relu6_backward(gradient: &mut [f32], output: &[f32]) {
    let pieces = gradient.chunks_mut(PIECE).zip(output.chunks(PIECE)).collect();
    share(pieces, |_, (gradient, output): (&mut [f32], &[f32])| {
        wide(
            #[inline(always)]
            || {
                for (gradient, output) in gradient.iter_mut().zip(output) {
                    let keep = u32::from(*output > 0.0 && *output < 6.0).wrapping_neg();
                    *gradient = f32::from_bits(gradient.to_bits() & keep);
                }
            },
        );
    });
}

/// [`relu`] on the calling thread.
pub(crate) fn relu_piece(values: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for value in values.iter_mut() {
                *value = if *value < 0.0 { 0.0 } else { *value };
            }
        },
    );
}

/// [`relu_backward`] on the calling thread.
pub(crate) fn mask_piece(gradient: &mut [f32], output: &[f32]) {
    wide(
        #[inline(always)]
        || {
            for (gradient, output) in gradient.iter_mut().zip(output) {
                // Bits instead of a branch: the signs of activations cannot be predicted.
                let keep = u32::from(*output > 0.0).wrapping_neg();
                *gradient = f32::from_bits(gradient.to_bits() & keep);
            }
        },
    );
}

/// The sum, in an order that depends on the length alone.
pub(crate) fn sum(values: &[f32]) -> f32 {
    wide(
        #[inline(always)]
        || rows::sum(values),
    )
}

/// Adds a slice to another, element by element.
pub(crate) fn add(target: &mut [f32], values: &[f32]) {
    wide(
        #[inline(always)]
        || {
            for (target, value) in target.iter_mut().zip(values) {
                *target += value;
            }
        },
    );
}

/// Adds slices of the same length, which lie behind each other, to another one, in their order.
pub(crate) fn add_all(target: &mut [f32], others: &[f32]) {
    let len = target.len().max(1);
    share_pieces(target, PIECE, |piece, target| {
        for other in others.chunks(len) {
            add(target, &other[piece * PIECE..]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_keeps_what_is_positive_and_what_is_not_a_number() {
        let mut values = vec![-1.0, 2.0, 0.0, f32::NAN, -0.5];
        relu(&mut values);
        assert_eq!(values[..3], [0.0, 2.0, 0.0]);
        assert!(values[3].is_nan());
        let mut gradient = vec![5.0, 6.0, 7.0, 8.0, 9.0];
        relu_backward(&mut gradient, &values);
        assert_eq!(gradient, [0.0, 6.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn relu6_ends_at_both_sides() {
        let mut values = vec![-1.0, 2.0, 6.0, f32::NAN, 7.5];
        relu6(&mut values);
        assert_eq!((values[0], values[1], values[2], values[4]), (0.0, 2.0, 6.0, 6.0));
        assert!(values[3].is_nan());
        let mut gradient = vec![5.0, 6.0, 7.0, 8.0, 9.0];
        relu6_backward(&mut gradient, &values);
        assert_eq!(gradient, [0.0, 6.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn sums_have_every_value_once() {
        for len in [0, 1, 31, 32, 33, 100] {
            let values: Vec<f32> = (0..len).map(|i| i as f32).collect();
            assert_eq!(sum(&values), (0..len).sum::<usize>() as f32);
        }
        let mut target = vec![1.0; 3];
        add(&mut target, &[1.0, 2.0, 3.0]);
        assert_eq!(target, [2.0, 3.0, 4.0]);
    }
}
