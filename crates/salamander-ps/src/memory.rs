//! What the table asks of the machine's memory beyond reading and writing: zeros that take no memory
//! until they are written, large pages, and lines fetched ahead.
#![allow(
    unsafe_code,
    reason = "`Vec` gives zeros without touching them only where its alignment is small, and hints to the \
              CPU have no safe form; the tables that use both are compared with maps in tests"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use bytemuck::Pod;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a large page.
const HUGE: usize = 2 << 20;

/// An array of zeros that begins where a large page does: a row of whole lines crosses none.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    start: NonNull<T>,
    length: usize,
    mapped: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, like that of a `Vec`.
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above; shared references only read.
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: Pod> Pages<T> {
    /// Zeros, which take memory as they are written; those behind the first `small` bytes on large
    /// pages, for fewer misses of the page cache when rows are read in random order.
    pub(crate) fn zeroed(length: usize, small: usize) -> Self {
        let layout = Layout::array::<T>(length).unwrap_or(Layout::new::<T>());
        let bytes = layout.size() + HUGE;
        // SAFETY: a new mapping of its own.
        let mapped = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)
        };
        let Ok(mapped) = mapped else { handle_alloc_error(layout) };
        let mapped: *mut u8 = mapped.cast();
        // Inside the mapping, since that is longer by a large page.
        let start = mapped.wrapping_add(mapped.align_offset(HUGE));
        advise_huge_pages(start, layout.size(), small);
        let Some(start) = NonNull::new(start.cast()) else { handle_alloc_error(layout) };
        Self { start, length, mapped, bytes }
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements lie in the mapping, aligned, zero or written, and any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `zeroed` with this length, and nobody has a reference any more.
        if let Err(error) = unsafe { munmap(self.mapped.cast(), self.bytes) } {
            tracing::debug!(%error, "memory of a table was not given back");
        }
    }
}

/// Asks for large pages behind the first `small` bytes.
fn advise_huge_pages(start: *mut u8, length: usize, small: usize) {
    #[cfg(target_os = "linux")]
    if length > small {
        use rustix::mm::{Advice, madvise};
        let small = small.next_multiple_of(HUGE);
        // SAFETY: the range lies inside the mapping, and this advice keeps what is in it.
        let advised = unsafe {
            let start = start.wrapping_add(small).cast();
            madvise(start, length.saturating_sub(small), Advice::LinuxHugepage)
        };
        if let Err(error) = advised {
            tracing::debug!(%error, "no large pages");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, length, small);
}

/// Fetches the line of an element. An index outside the slice is harmless.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    fetch::<true, T>(slice.as_ptr().wrapping_add(index));
}

/// Fetches all lines of a row, into the second cache: in a probe that was about a tenth faster than
/// into the first.
#[inline(always)]
pub(crate) fn prefetch_row<T>(row: &[T]) {
    let start: *const u8 = row.as_ptr().cast();
    for offset in (0..size_of_val(row)).step_by(LINE) {
        fetch::<false, u8>(start.wrapping_add(offset));
    }
}

/// Fetches the line of an address, into the first cache or only into the second.
#[inline(always)]
fn fetch<const FIRST: bool, T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match FIRST {
            true => _mm_prefetch::<_MM_HINT_T0>(address.cast()),
            false => _mm_prefetch::<_MM_HINT_T1>(address.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeros_that_can_be_written_to_their_end() {
        for (length, small) in [(0, 0), (1, 0), (HUGE, 0), (3 * HUGE, HUGE), (3 * HUGE + 5, 100)] {
            let mut pages = Pages::<u16>::zeroed(length, small);
            assert_eq!(pages.len(), length);
            assert!(pages.iter().all(|value| *value == 0));
            pages.fill(7);
            assert!(pages.iter().all(|value| *value == 7));
            assert_eq!(pages.as_ptr().align_offset(HUGE), 0);
        }
    }
}
