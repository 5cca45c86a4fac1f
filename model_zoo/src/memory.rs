//! How long the program keeps memory that it has freed.
#![expect(
    unsafe_code,
    reason = "a setting of mimalloc, which has no safe function for it; measured: see below"
)]

use std::ffi::{c_int, c_long};

// Named, so that it is linked.
use mimalloc as _;

/// mimalloc's number for the time after which freed memory goes back to the system (`mi_option_purge_delay`).
const PURGE_DELAY: c_int = 15;

/// Milliseconds. After a second, as it is by default, mimalloc gives back all that is free at that moment, and a
/// residual network spends a seventh of its time on the kernel's clearing the same pages again.
const A_MINUTE: c_long = 60_000;

// SAFETY: as mimalloc's header declares it; it is linked wherever the allocator is.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Keeps freed memory for a minute instead of a second: a step frees as much as it takes.
pub fn keep() {
    // SAFETY: the function takes any number and may be called at any time.
    unsafe { mi_option_set(PURGE_DELAY, A_MINUTE) }
}
