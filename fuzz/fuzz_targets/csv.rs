//! CSV and TSV files; the first byte says which, so that one corpus serves both.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let name = if kind % 2 == 0 { "input.csv" } else { "input.tsv" };
    salamander_fuzz::read_all(name, bytes);
});
