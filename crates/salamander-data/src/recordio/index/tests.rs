//! Where chunks are, in files that may lie about it.

use proptest::prelude::*;

use super::super::chunk;
use super::super::header::Compression;
use super::*;
use crate::reader::FileIndex as _;

fn build(bytes: &[u8]) -> Result<ChunkIndex, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, bytes).unwrap();
    ChunkIndex::build(&Blob::open(&path).unwrap())
}

fn chunk(records: u32) -> Vec<u8> {
    chunk::encode(&vec![0; 4 * records as usize], records, Compression::None, 0).unwrap()
}

#[test]
fn chunks_are_numbered_through() {
    let index = build(&[chunk(2), chunk(0), chunk(3)].concat()).unwrap();
    assert_eq!(index.records, 5);
    let found: Vec<_> =
        index.chunks.iter().map(|c| (c.offset, c.first_record, c.records())).collect();
    assert_eq!(found, [(0, 0, 2), (28, 2, 0), (48, 2, 3)]);
    let check = |record, expected| assert_eq!(index.chunk_of(record), expected);
    check(0, 0);
    check(1, 0);
    check(2, 2);
    check(4, 2);
}

#[test]
fn headers_that_cannot_be_true_are_refused() {
    let check = |bytes: &[u8], expected: &str| {
        let message = build(bytes).unwrap_err().to_string();
        assert_eq!(&message[message.rfind('/').unwrap() + 1..], expected);
    };
    let good = chunk(2);
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    check(
        &with(0, 7),
        "f: chunk 0 at byte 0: found 0x00000007 where a recordio chunk begins with 0x01020304",
    );
    check(
        &with(12, u32::MAX),
        "f: chunk 0 at byte 0: compressed size is 4294967295, but at most 8 is possible here",
    );
    check(
        &with(16, u32::MAX),
        "f: chunk 0 at byte 0: number of records is 4294967295, but at most 2 is possible here",
    );
    check(
        &with(12, 9),
        "f: chunk 0 at byte 0: needs 29 bytes, but the file ends after 28: truncated file",
    );
    check(&with(16, 0), "f: chunk 0 record 0: the header says 0 records");
    check(
        &[&good[..], &[4, 3]].concat(),
        "f: chunk 1 at byte 28: needs 20 bytes, but the file ends after 2: truncated file",
    );
    check(
        &[&good[..], &[0; 20]].concat(),
        "f: chunk 1 at byte 28: found 0x00000000 where a recordio chunk begins with 0x01020304",
    );
}

#[test]
fn a_damaged_first_chunk_does_not_hide_the_others() {
    let mut bytes = [chunk(2), chunk(3)].concat();
    bytes[20] ^= 1;
    let index = build(&bytes).unwrap();
    assert_eq!((index.dialect, index.records), (Dialect::Standard, 5));
}

#[test]
fn a_saved_index_is_restored_for_the_same_size_only() {
    let bytes = [chunk(2), chunk(0), chunk(3)].concat();
    let index = build(&bytes).unwrap();
    let (saved, size) = (index.save(), bytes.len() as u64);
    let restored = ChunkIndex::restore(&saved, size).unwrap();
    assert_eq!((restored.chunks, restored.records), (index.chunks, 5));
    let check = |saved: &[u8], size: u64| assert!(ChunkIndex::restore(saved, size).is_none());
    check(&saved, size + 1);
    check(&saved[..saved.len() - 1], size);
    check(&saved[..21], size);
    check(&[&saved[..], &saved[1..]].concat(), size);
    check(&[], size);
    check(&[2], 0);
    let mut records = saved.clone();
    records[17..21].fill(0xff);
    check(&records, size);
}

proptest! {
    #[test]
    fn any_saved_bytes_restore_or_not(saved: Vec<u8>, size: u64) {
        let _ = ChunkIndex::restore(&saved, size);
    }

    #[test]
    fn any_bytes_index_or_fail(mut bytes: Vec<u8>, magic: bool) {
        if magic && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[4, 3, 2, 1]);
        }
        let _ = build(&bytes);
    }
}
