//! New buffers written in pieces by many threads, and scratch that a thread keeps.
//!
//! A large `vec![0.0; n]` is cleared by one thread long before its values are used; here each piece is cleared by
//! the thread that fills it, while it is in that thread's cache, or not at all if that thread writes all of it.
#![expect(unsafe_code, reason = "measured: clearing outputs ahead of time costs a tenth of a step")]

use std::cell::RefCell;
use std::mem::MaybeUninit;

use super::tasks::share;

/// A piece of new memory. One that nobody writes becomes zero when it is dropped.
pub(crate) struct Fresh<'a>(pub(super) &'a mut [MaybeUninit<f32>]);

impl<'a> Fresh<'a> {
    /// Its values as zeros.
    pub(crate) fn zeroed(mut self) -> &'a mut [f32] {
        let memory = std::mem::take(&mut self.0);
        for value in memory.iter_mut() {
            value.write(0.0);
        }
        // SAFETY: every value was just written.
        unsafe { initialised(memory) }
    }

    /// Its values from their places.
    #[inline(always)]
    pub(crate) fn fill_with(mut self, value: impl Fn(usize) -> f32) -> &'a mut [f32] {
        let memory = std::mem::take(&mut self.0);
        for (place, target) in memory.iter_mut().enumerate() {
            target.write(value(place));
        }
        // SAFETY: every value was just written.
        unsafe { initialised(memory) }
    }

    /// Its values from their places: `block` gives `N` neighbouring ones from a place on, `rest` those behind the last
    /// block. Values that are gathered in an array depend on nothing that is written here, which the compiler does not
    /// find out by itself where many slices are read.
    #[inline(always)]
    pub(crate) fn fill_blocks<const N: usize>(
        mut self,
        block: impl Fn(usize) -> [f32; N],
        rest: impl Fn(usize) -> f32,
    ) -> &'a mut [f32] {
        let memory = std::mem::take(&mut self.0);
        let (blocks, tail) = memory.as_chunks_mut::<N>();
        let whole = blocks.len() * N;
        for (at, target) in blocks.iter_mut().enumerate() {
            *target = block(at * N).map(MaybeUninit::new);
        }
        for (at, target) in tail.iter_mut().enumerate() {
            target.write(rest(whole + at));
        }
        // SAFETY: every value was just written.
        unsafe { initialised(memory) }
    }

    /// Its values as `write` leaves them.
    ///
    /// # Safety
    /// `write` must write all of them.
    pub(crate) unsafe fn written(
        mut self,
        write: impl FnOnce(&mut [MaybeUninit<f32>]),
    ) -> &'a mut [f32] {
        let memory = std::mem::take(&mut self.0);
        write(memory);
        // SAFETY: by the caller's promise.
        unsafe { initialised(memory) }
    }

    /// Parts of `size` values, of which the last may be shorter.
    pub(crate) fn split(mut self, size: usize) -> impl Iterator<Item = Fresh<'a>> {
        std::mem::take(&mut self.0).chunks_mut(size).collect::<Vec<_>>().into_iter().map(Fresh)
    }

    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        for value in self.0.iter_mut() {
            value.write(0.0);
        }
    }
}

/// Values as memory to be written.
///
/// # Safety
/// Only numbers may be written there.
pub(crate) unsafe fn as_fresh(values: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the types have the same layout, and what is there stays initialised by the caller's promise.
    unsafe { &mut *(std::ptr::from_mut(values) as *mut [MaybeUninit<f32>]) }
}

/// # Safety
/// All values must have been written.
unsafe fn initialised(memory: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    // SAFETY: by the caller's promise; the types have the same layout.
    unsafe { &mut *(std::ptr::from_mut(memory) as *mut [f32]) }
}

/// A buffer of `len` values made of pieces of `piece` values (the last may be shorter), each filled by `fill`, which
/// gets its number. Also returns what `fill` returned, in order.
///
/// With an empty buffer there are still `count` calls, so that a caller may want only the results.
pub(crate) fn in_pieces<R: Send>(
    len: usize,
    piece: usize,
    count: usize,
    fill: impl Fn(usize, Fresh<'_>) -> R + Sync,
) -> (Vec<f32>, Vec<R>) {
    let mut buffer = Vec::with_capacity(len);
    let mut rest = &mut buffer.spare_capacity_mut()[..len];
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, tail) = rest.split_at_mut(piece.min(rest.len()));
        pieces.push(Fresh(head));
        rest = tail;
    }
    assert!(rest.is_empty(), "{count} pieces of {piece} do not make {len}");
    let results = share(pieces, fill);
    // SAFETY: the pieces cover the first `len` values, within the capacity, and all were written, at the latest when
    // they were dropped.
    unsafe { buffer.set_len(len) };
    (buffer, results)
}

/// A buffer of `len` values whose pieces of `piece` values (the last may be shorter) `work` takes in its own turns;
/// those that it leaves are zero. Also returns what it returned.
pub(crate) fn in_turns<R>(
    len: usize,
    piece: usize,
    work: impl FnOnce(std::vec::IntoIter<Fresh<'_>>) -> R,
) -> (Vec<f32>, R) {
    let mut buffer = Vec::with_capacity(len);
    let pieces = buffer.spare_capacity_mut()[..len].chunks_mut(piece.max(1)).map(Fresh);
    let result = work(pieces.collect::<Vec<_>>().into_iter());
    // SAFETY: the pieces cover the first `len` values, within the capacity, and all were written, at the latest when
    // they were dropped.
    unsafe { buffer.set_len(len) };
    (buffer, result)
}

/// The planes of one channel in a new buffer, sample by sample.
pub(crate) type Planes<'a> = std::vec::IntoIter<Fresh<'a>>;

/// `B` buffers of `samples` times `channels` planes of `plane` values. `fill` gets the number of a channel and that
/// channel's planes of each buffer, which are zero where it takes none. Also returns what `fill` returned, in order.
pub(crate) fn by_channel<const B: usize, R: Send>(
    [samples, channels, plane]: [usize; 3],
    fill: impl Fn(usize, &mut [Planes<'_>; B]) -> R + Sync,
) -> ([Vec<f32>; B], Vec<R>) {
    let len = samples * channels * plane;
    let mut buffers: [Vec<f32>; B] = std::array::from_fn(|_| Vec::with_capacity(len));
    let mut parts = buffers.each_mut().map(|buffer| {
        let mut parts: Vec<_> = (0..channels).map(|_| Vec::with_capacity(samples)).collect();
        let planes = buffer.spare_capacity_mut()[..len].chunks_exact_mut(plane);
        planes.enumerate().for_each(|(at, plane)| parts[at % channels].push(Fresh(plane)));
        parts.into_iter()
    });
    let work: Vec<[Planes<'_>; B]> = (0..channels)
        .map(|_| parts.each_mut().map(|part| part.next().unwrap_or_default().into_iter()))
        .collect();
    drop(parts);
    let results = share(work, |channel, mut planes| fill(channel, &mut planes));
    for buffer in &mut buffers {
        // SAFETY: the planes cover the first `len` values, within the capacity, and all were written, at the latest
        // when they were dropped.
        unsafe { buffer.set_len(len) };
    }
    (buffers, results)
}

/// Values of a line of the cache.
const LINE: usize = 16;

thread_local! {
    /// One for each level of nesting.
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with scratch of `len` values, whose contents are left from before.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken out, so that a nested use gets another one instead of a panic.
    let mut scratch = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
    if scratch.len() < len + LINE {
        scratch.resize(len + LINE, 0.0);
    }
    // Vectors that cross lines of the cache take twice as long.
    let start = scratch.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
    let result = work(&mut scratch[start..][..len]);
    SCRATCH.with_borrow_mut(|kept| kept.push(scratch));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_arrive_clear_and_in_order() {
        let (buffer, results) = in_pieces(10, 4, 3, |index, piece| {
            let piece = piece.zeroed();
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
    fn channels_are_filled_apart_and_rests_are_zero() {
        let ([left, right], results) = by_channel([2, 3, 2], |channel, [left, right]| {
            left.for_each(|plane| plane.zeroed().fill(channel as f32 + 1.0));
            right.next().expect("two samples").fill_with(|place| 7.0 + place as f32);
            channel
        });
        assert_eq!(left, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(right, [7.0, 8.0, 7.0, 8.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(results, [0, 1, 2]);
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
