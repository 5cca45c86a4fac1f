//! Gzipped text: the first byte says which format is inside. Bytes that unpack to more than the fuzzer's time allows
//! are its own affair: a file on disk is bounded by the disk.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let name = if kind % 2 == 0 { "input.csv.gz" } else { "input.jsonl.gz" };
    salamander_fuzz::read_all(name, bytes);
});
