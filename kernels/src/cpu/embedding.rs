//! Rows of a table by place, and the sums of the gradients that come back to each row.

use super::buffer::in_pieces;
use super::elementwise::add;

/// What one task copies: small enough to stay in a core's cache, large enough to be worth a task.
const PIECE: usize = 1 << 15;

/// The most parts of a table whose gradients are added up apart: each looks at all places.
const PARTS: usize = 32;

/// The row of `dim` values at each place.
///
/// # Panics
/// If a place lies outside of the table.
pub fn forward(table: &[f32], places: &[usize], dim: usize) -> Vec<f32> {
    let rows = (PIECE / dim.max(1)).max(1);
    let count = places.len().div_ceil(rows);
    let (output, _) = in_pieces(places.len() * dim, rows * dim, count, |piece, output| {
        let output = output.zeroed();
        let own = places[piece * rows..].iter().zip(output.chunks_exact_mut(dim));
        own.for_each(|(place, row)| row.copy_from_slice(&table[place * dim..][..dim]));
    });
    output
}

/// The gradient of a table of `rows` rows: those of its places, added up in their order.
///
/// # Panics
/// If there is not one row of gradients for each place.
pub fn backward(gradient: &[f32], places: &[usize], rows: usize, dim: usize) -> Vec<f32> {
    assert_eq!(gradient.len(), places.len() * dim, "a row for each place");
    // By the size of the table alone, so that any number of threads gives the same.
    let part = rows.div_ceil(PARTS).max(PIECE.div_ceil(dim.max(1)));
    let count = rows.div_ceil(part);
    let (sums, _) = in_pieces(rows * dim, part * dim, count, |piece, sums| {
        let sums = sums.zeroed();
        let first = piece * part;
        let own = first..first + part;
        for (place, gradient) in places.iter().zip(gradient.chunks_exact(dim)) {
            if own.contains(place) {
                add(&mut sums[(place - first) * dim..][..dim], gradient);
            }
        }
    });
    sums
}
