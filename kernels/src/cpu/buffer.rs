//! New buffers written in pieces by many threads, and scratch that a thread keeps.
//!
//! A large `vec![0.0; n]` is cleared by one thread long before its values are used; here each piece is cleared by
//! the thread that fills it, while it is in that thread's cache.
#![expect(unsafe_code, reason = "measured: clearing outputs ahead of time costs a tenth of a step")]

use std::cell::RefCell;
use std::mem::MaybeUninit;

use rayon::prelude::*;

/// A buffer of `len` values made of pieces of `piece` values (the last may be shorter), each filled by `fill`, which
/// gets its number and finds it full of zeros. Also returns what `fill` returned, in order.
///
/// With an empty buffer there are still `count` calls, so that a caller may want only the results.
pub(crate) fn in_pieces<R: Send>(
    len: usize,
    piece: usize,
    count: usize,
    fill: impl Fn(usize, &mut [f32]) -> R + Sync,
) -> (Vec<f32>, Vec<R>) {
    let mut buffer = Vec::with_capacity(len);
    let mut rest = &mut buffer.spare_capacity_mut()[..len];
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, tail) = rest.split_at_mut(piece.min(rest.len()));
        pieces.push(head);
        rest = tail;
    }
    assert!(rest.is_empty(), "{count} pieces of {piece} do not make {len}");
    let results = pieces
        .into_par_iter()
        .enumerate()
        .map(|(index, piece)| fill(index, zeroed(piece)))
        .collect();
    // SAFETY: the pieces cover the first `len` values, within the capacity, and all were written by `zeroed`.
    unsafe { buffer.set_len(len) };
    (buffer, results)
}

/// The values of new memory as zeros.
pub(super) fn zeroed(memory: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    for value in memory.iter_mut() {
        value.write(0.0);
    }
    // SAFETY: every value was just written.
    unsafe { &mut *(std::ptr::from_mut(memory) as *mut [f32]) }
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with scratch of `len` values, whose contents are left from before.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken out, so that a nested use gets another one instead of a panic.
    let mut scratch = SCRATCH.take();
    if scratch.len() < len {
        scratch.resize(len, 0.0);
    }
    let result = work(&mut scratch[..len]);
    SCRATCH.set(scratch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_arrive_clear_and_in_order() {
        let (buffer, results) = in_pieces(10, 4, 3, |index, piece| {
            assert!(piece.iter().all(|value| *value == 0.0));
            piece.fill(index as f32);
            piece.len()
        });
        assert_eq!(buffer, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!(results, [4, 4, 2]);
        let (empty, results) = in_pieces(0, 4, 2, |index, _| index);
        assert!(empty.is_empty());
        assert_eq!(results, [0, 1]);
    }

    #[test]
    fn scratch_may_be_nested() {
        with_scratch(4, |outer| {
            outer.fill(1.0);
            with_scratch(4, |inner| inner.fill(2.0));
            assert_eq!(outer, [1.0; 4]);
        });
    }
}
