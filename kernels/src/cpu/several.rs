//! Several new buffers at once, written in pieces by many threads.
#![expect(
    unsafe_code,
    reason = "as in `buffer`: clearing outputs ahead of time costs a pass over memory"
)]

use std::mem::MaybeUninit;

use super::buffer::Fresh;
use super::tasks::share;

/// `N` buffers of `count` pieces each, buffer `n` of pieces of `piece[n]` values. `fill` gets the piece of each buffer
/// with the same number, all zeros.
pub(crate) fn in_pieces_of<const N: usize>(
    piece: [usize; N],
    count: usize,
    fill: impl Fn(usize, [&mut [f32]; N]) + Sync,
) -> [Vec<f32>; N] {
    let mut buffers = piece.map(|piece| Vec::with_capacity(piece * count));
    let mut rest = buffers.each_mut().map(|buffer| buffer.spare_capacity_mut());
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let mut lengths = piece.into_iter();
        pieces.push(rest.each_mut().map(|rest| Fresh(head(rest, lengths.next().unwrap_or(0)))));
    }
    share(pieces, |index, pieces: [Fresh<'_>; N]| fill(index, pieces.map(Fresh::zeroed)));
    for (buffer, piece) in buffers.iter_mut().zip(piece) {
        // SAFETY: the pieces cover so many values, within the capacity, and all were written as zeros.
        unsafe { buffer.set_len(piece * count) };
    }
    buffers
}

/// Takes the first `len` values off a slice.
fn head<'a>(rest: &mut &'a mut [MaybeUninit<f32>], len: usize) -> &'a mut [MaybeUninit<f32>] {
    let (head, tail) = std::mem::take(rest).split_at_mut(len);
    *rest = tail;
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_buffers_belong_together() {
        let [a, b] = in_pieces_of([2, 3], 2, |index, [a, b]| {
            assert!(a.iter().chain(b.iter()).all(|value| *value == 0.0));
            a.fill(index as f32);
            b[0] = 7.0;
        });
        assert_eq!(a, [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(b, [7.0, 0.0, 0.0, 7.0, 0.0, 0.0]);
        let [none] = in_pieces_of([4], 0, |_, _| unreachable!());
        assert!(none.is_empty());
    }
}
