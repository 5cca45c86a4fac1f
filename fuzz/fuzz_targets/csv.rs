//! CSV and TSV files and their kin without a header; the first byte says which, so that one corpus serves all.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let name = match (kind % 2, *kind >= 128) {
        (0, false) => "input.csv",
        (_, false) => "input.tsv",
        (0, true) => "adult.test",
        (_, true) => "ratings.dat",
    };
    salamander_fuzz::read_all(name, bytes);
});
