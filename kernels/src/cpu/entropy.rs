//! Softmax and cross-entropy in one pass, one loss per row.

use super::buffer::in_pieces;
use super::rows::{exponentials, largest, wide};
use super::tasks::share_pieces;

/// How many values one task takes, in whole rows.
const PIECE: usize = 1 << 14;

/// The loss of each row of scores, and the probabilities that the backward pass starts from.
///
/// # Panics
/// If a label is not a column.
pub fn forward(scores: &[f32], labels: &[usize], classes: usize) -> (Vec<f32>, Vec<f32>) {
    let rows = rows_of_a_piece(classes);
    let count = labels.len().div_ceil(rows);
    let (probabilities, losses) =
        in_pieces(scores.len(), rows * classes, count, |piece, probabilities| {
            let probabilities = probabilities.zeroed();
            let first = piece * rows;
            let scores = &scores[first * classes..][..probabilities.len()];
            let own = labels[first..].iter().zip(scores.chunks(classes));
            let with = own.zip(probabilities.chunks_mut(classes));
            with.map(|((label, scores), out)| row(scores, *label, out)).collect::<Vec<f32>>()
        });
    (losses.concat(), probabilities)
}

/// The loss of one row; writes its probabilities.
fn row(scores: &[f32], label: usize, probabilities: &mut [f32]) -> f32 {
    assert!(label < scores.len(), "label {label} is not one of {} classes", scores.len());
    wide(
        #[inline(always)]
        || {
            let shift = largest(scores);
            probabilities.copy_from_slice(scores);
            let sum = exponentials(probabilities, shift);
            let factor = 1.0 / sum;
            probabilities.iter_mut().for_each(|value| *value *= factor);
            sum.ln() + shift - scores[label]
        },
    )
}

/// Turns the probabilities into the gradient of the scores.
pub fn backward(probabilities: &mut [f32], labels: &[usize], classes: usize, gradient: &[f32]) {
    let rows = rows_of_a_piece(classes);
    share_pieces(probabilities, rows * classes, |piece, values| {
        for (at, row) in values.chunks_mut(classes).enumerate() {
            let at = piece * rows + at;
            row[labels[at]] -= 1.0;
            let factor = gradient[at];
            wide(
                #[inline(always)]
                || row.iter_mut().for_each(|value| *value *= factor),
            );
        }
    });
}

fn rows_of_a_piece(classes: usize) -> usize {
    (PIECE / classes.max(1)).max(1)
}
