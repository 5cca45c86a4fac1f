//! CSV and TSV files and their kin without a header; the first byte says which, and with which settings, so that one
//! corpus serves all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use salamander_core::experiment::{CsvHeader, CsvSettings};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let name = match (kind % 2, *kind >= 128) {
        (0, false) => "input.csv",
        (_, false) => "input.tsv",
        (0, true) => "adult.test",
        (_, true) => "ratings.dat",
    };
    let header =
        [None, Some(CsvHeader::No), Some(CsvHeader::Yes), Some(CsvHeader::Names(vec!["x".into()]))];
    let csv = CsvSettings {
        header: header[usize::from(kind / 2 % 4)].clone(),
        separator: (kind & 8 != 0).then(|| ";".parse().expect("one character")),
        trim: kind & 16 != 0,
        missing: vec!["NA".into()],
    };
    salamander_fuzz::read_all_as(name, bytes, csv);
});
