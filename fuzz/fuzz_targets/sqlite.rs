//! SQLite files that are not what they say.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| salamander_fuzz::read_all_guarded("input.sqlite", bytes));
