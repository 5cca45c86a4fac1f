//! RecordIO files: chunk headers, checksums, compressed payloads and record lengths.
//!
//! The first byte says whether checksums are repaired first, and for which dialect: without that the
//! fuzzer would hardly ever get past them.
#![no_main]

use libfuzzer_sys::fuzz_target;

const HEADER: usize = 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    match kind % 3 {
        0 => {}
        // Where a header has its checksum and its size.
        1 => repair(&mut bytes, 4, 12, crc32fast::hash),
        _ => repair(&mut bytes, 8, 16, crc32c::crc32c),
    }
    salamander_fuzz::read_all("input.recordio", &bytes);
});

fn repair(bytes: &mut [u8], checksum: usize, size: usize, hash: fn(&[u8]) -> u32) {
    let mut rest = bytes;
    while rest.len() >= HEADER {
        rest[..4].copy_from_slice(&[4, 3, 2, 1]);
        let length = [0, 1, 2, 3].map(|byte| rest[size + byte]);
        let end = HEADER + (u32::from_le_bytes(length) as usize).min(rest.len() - HEADER);
        let found = hash(&rest[HEADER..end]);
        rest[checksum..checksum + 4].copy_from_slice(&found.to_le_bytes());
        rest = &mut rest[end..];
    }
}
