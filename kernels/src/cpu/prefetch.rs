//! Asks for values before they are read, where the CPU cannot guess them.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "an instruction; measured in batch norm and in Winograd's convolution"
    )
)]

/// Asks for values that are read soon.
#[inline(always)]
pub(crate) fn prefetch(values: Option<&[f32]>) {
    #[cfg(target_arch = "x86_64")]
    for line in values.unwrap_or_default().chunks(16) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: an instruction of every x86-64 that changes nothing but caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// Asks for values that are read a little later, and may be too many for the first cache.
#[inline(always)]
pub(crate) fn prefetch_many(values: Option<&[f32]>) {
    #[cfg(target_arch = "x86_64")]
    for line in values.unwrap_or_default().chunks(16) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
