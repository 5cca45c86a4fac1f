//! TFRecord files: lengths, checksums and records. The first byte says whether checksums are repaired
//! first: without that the fuzzer would hardly ever get past them.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Bytes before a record: its length and the length's checksum.
const HEAD: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if kind % 2 == 1 {
        repair(&mut bytes);
    }
    salamander_fuzz::read_all("input.tfrecord", &bytes);
});

fn repair(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= HEAD {
        let length = [0, 1, 2, 3, 4, 5, 6, 7].map(|byte| rest[byte]);
        let found = masked(&length);
        rest[8..HEAD].copy_from_slice(&found);
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let Some(end) = length.checked_add(HEAD + 4).filter(|&end| end <= rest.len()) else {
            return;
        };
        let found = masked(&rest[HEAD..end - 4]);
        rest[end - 4..end].copy_from_slice(&found);
        rest = &mut rest[end..];
    }
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}
