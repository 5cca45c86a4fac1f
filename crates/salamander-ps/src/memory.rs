//! What the table asks of the machine's memory beyond reading and writing: fetch ahead, and back
//! large arrays with large pages. Both are hints, which change no value.
#![allow(
    unsafe_code,
    reason = "hints to the CPU and the kernel have no safe form; the tables that use them are compared \
              with maps in tests"
)]

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a large page.
pub(crate) const HUGE: usize = 2 << 20;

/// Fetches the line of an element. An index outside the slice is harmless.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    let address = slice.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Fetches all lines of a row, into the second cache: in a probe on a busy machine that was about a
/// tenth faster than the first cache; without it pulls took one and a half times as long.
#[inline(always)]
pub(crate) fn prefetch_row<T>(row: &[T]) {
    let start: *const u8 = row.as_ptr().cast();
    for offset in (0..size_of_val(row)).step_by(LINE) {
        let address = start.wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing that the program can see and faults at no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

/// Asks for large pages under a fresh array: fewer misses of the page cache when rows are read in
/// random order.
pub(crate) fn advise_huge_pages<T>(array: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let start = array.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(HUGE);
        let length = size_of_val(array).saturating_sub(skipped) / HUGE * HUGE;
        if length > 0 {
            // SAFETY: the range lies inside the array, and this advice keeps what is in it.
            let advised = unsafe {
                madvise(start.wrapping_add(skipped).cast(), length, Advice::LinuxHugepage)
            };
            if let Err(error) = advised {
                tracing::debug!(%error, "no large pages");
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (array, HUGE);
}
