//! Memory that is kept between steps.
//!
//! A step frees what it took. mimalloc gives such memory back to the system after a moment, which then clears it page by
//! page for the next step.
#![cfg_attr(
    feature = "mimalloc",
    expect(
        unsafe_code,
        reason = "an option of the allocator has no safe function; measured in docs/benchmarks.md"
    )
)]

/// Tells the program's allocator to keep what is freed; without mimalloc, nothing is told.
pub fn keep_memory() {
    #[cfg(feature = "mimalloc")]
    {
        use mimalloc as _;
        unsafe extern "C" {
            fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
        }
        // `mi_option_purge_delay`, in mimalloc's versions 2 and 3; below zero is never.
        const PURGE_DELAY: std::ffi::c_int = 15;
        // SAFETY: the function stores a number in a table, and may be called at any time.
        unsafe { mi_option_set(PURGE_DELAY, -1) };
    }
}
