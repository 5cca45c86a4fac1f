//! JSON lines: any bytes in lines.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| salamander_fuzz::read_all("input.jsonl", bytes));
