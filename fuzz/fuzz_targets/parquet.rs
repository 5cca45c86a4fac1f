//! Parquet files, and the conversion of their columns to rows.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| salamander_fuzz::read_all_guarded("input.parquet", bytes));
