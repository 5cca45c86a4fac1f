//! Files of both dialects, whole, cut and damaged.

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::header::Dialect;
use super::super::{Compression, MAX_RECORD_BYTES, Writer, WriterOptions};
use super::*;
use crate::example_proto::{Example, Feature};
use crate::{Reader, Row};

fn saved(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    crate::blob::saved("f.recordio", bytes)
}

fn read_range(file: &RecordFile, records: Range<u64>) -> Result<Vec<Vec<u8>>, Error> {
    crate::reader::collected(records, |records, each| file.read_bytes(records, each))
}

fn read_all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let (_folder, path) = saved(bytes);
    let file = RecordFile::open(&path)?;
    read_range(&file, 0..file.index.records)
}

fn written(records: &[Vec<u8>], options: WriterOptions) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// The records "ab" and "" in one chunk of each kind, written out by hand and not by this crate.
#[test]
fn both_dialects_and_all_compressors_are_read() {
    let check = |dialect: Dialect, bytes: &[u8]| {
        let (_folder, path) = saved(bytes);
        let file = RecordFile::open(&path).unwrap();
        assert_eq!(file.index.dialect, dialect);
        assert_eq!(read_range(&file, 0..2).unwrap(), [b"ab".to_vec(), Vec::new()]);
    };
    // Not compressed.
    check(
        Dialect::Standard,
        b"\x04\x03\x02\x01\x99@%\xc7\0\0\0\0\x0a\0\0\0\x02\0\0\0\
          \x02\0\0\0ab\0\0\0\0",
    );
    // Snappy, framed, a stored block.
    check(
        Dialect::Standard,
        b"\x04\x03\x02\x01\xaba\x0c\xba\x01\0\0\0\x1c\0\0\0\x02\0\0\0\
          \xff\x06\0\0sNaPpY\x01\x0e\0\0\xe4{\x9fP\x02\0\0\0ab\0\0\0\0",
    );
    // Snappy, framed, a block with a copy.
    check(
        Dialect::Standard,
        b"\x04\x03\x02\x01$\xb8\xb5\xf6\x01\0\0\0\x1e\0\0\0\x02\0\0\0\
          \xff\x06\0\0sNaPpY\0\x10\0\0\xe4{\x9fP\x0a\x18\x02\0\0\0ab\0\x0a\x01\0",
    );
    // Gzip.
    check(
        Dialect::Standard,
        b"\x04\x03\x02\x01.\x96L\x1a\x02\0\0\0\x1c\0\0\0\x02\0\0\0\
          \x1f\x8b\x08\0\0\0\0\0\0\xffcb``HL\x02\x12\x0c\0\x99@%\xc7\x0a\0\0\0",
    );
    // Not compressed.
    check(
        Dialect::PyRecordIo,
        b"\x04\x03\x02\x01\x02\0\0\0\x0eW\x86H\x01\0\0\0\x0a\0\0\0\
          \x02\0\0\0ab\0\0\0\0",
    );
    // Snappy, one raw block.
    check(
        Dialect::PyRecordIo,
        b"\x04\x03\x02\x01\x02\0\0\0\x33A\x88\xf9\x02\0\0\0\x0c\0\0\0\
          \x0a\x18\x02\0\0\0ab\0\x0a\x01\0",
    );
    // Gzip.
    check(
        Dialect::PyRecordIo,
        b"\x04\x03\x02\x01\x02\0\0\0cE\x9d\xb8\x03\0\0\0\x1c\0\0\0\
          \x1f\x8b\x08\0\0\0\0\0\0\xffcb``HL\x02\x12\x0c\0\x99@%\xc7\x0a\0\0\0",
    );
}

#[test]
fn a_chunk_of_each_kind_can_share_a_file() {
    let kinds = [Compression::None, Compression::Snappy, Compression::Gzip];
    let bytes = kinds.map(|compression| {
        written(&[b"x".to_vec()], WriterOptions { compression, ..WriterOptions::default() })
    });
    assert_eq!(read_all(&bytes.concat()).unwrap(), vec![b"x".to_vec(); 3]);
}

#[test]
fn an_empty_file_has_no_records() {
    assert!(read_all(&[]).unwrap().is_empty());
}

#[test]
fn records_past_the_end_are_refused() {
    let (_folder, path) = saved(&written(&[vec![1], vec![2]], WriterOptions::default()));
    let file = RecordFile::open(&path).unwrap();
    assert!(matches!(read_range(&file, 1..3), Err(Error::Range { record: 2, records: 2, .. })));
    assert!(matches!(file.read(1, 0..1, &mut |_, _| Ok(())), Err(Error::NoShard { .. })));
    assert!(read_range(&file, 1..1).unwrap().is_empty());
}

#[test]
fn records_become_rows() {
    let example = Example::new([("label", Feature::ints([7])), ("image", Feature::bytes("px"))]);
    let records = [example.to_bytes(), b"not an example".to_vec(), Vec::new()];
    let (_folder, path) = saved(&written(&records, WriterOptions::default()));
    let mut found = Vec::new();
    let file = RecordFile::open(&path).unwrap();
    file.read(0, 0..3, &mut |_, row| {
        found.push(format!("{:?}", row.columns().collect::<Vec<_>>()));
        Ok(())
    })
    .unwrap();
    assert_eq!(
        found,
        [
            r#"[("image", Bytes([112, 120])), ("label", Ints([7]))]"#.to_owned(),
            format!(r#"[("record", Bytes({:?}))]"#, b"not an example"),
            r#"[("record", Bytes([]))]"#.to_owned(),
        ]
    );
}

#[test]
fn a_refused_record_is_named_with_its_chunk() {
    let options = WriterOptions { max_chunk_records: 2, ..WriterOptions::default() };
    let (_folder, path) = saved(&written(&vec![vec![1]; 5], options));
    let file = RecordFile::open(&path).unwrap();
    assert_eq!(file.chunks().len(), 3);
    let refuse = &mut |record, _: Row<'_>| match record {
        3 => Err(Error::Rejected("label 12".into())),
        _ => Ok(()),
    };
    let message = file.read(0, 0..5, refuse).unwrap_err().to_string();
    assert!(message.ends_with("f.recordio: chunk 1 record 3: label 12"), "{message}");
}

#[test]
fn a_file_that_shrank_after_indexing_is_noticed() {
    let bytes = written(&vec![vec![1; 100]; 9], WriterOptions::default());
    let (_folder, path) = saved(&bytes);
    let file = RecordFile::open(&path).unwrap();
    assert_eq!(read_range(&file, 0..9).unwrap().len(), 9);
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(read_range(&file, 0..9), Err(Error::Changed { .. })), "also from the cache");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read_range(&file, 0..9), Err(Error::Io { .. })));
}

#[test]
fn a_damaged_chunk_leaves_the_others_readable() {
    let options = WriterOptions { max_chunk_records: 1, ..WriterOptions::default() };
    let mut bytes = written(&vec![vec![5; 10]; 3], options);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let (_folder, path) = saved(&bytes);
    let file = RecordFile::open(&path).unwrap();
    assert!(read_range(&file, 0..1).is_ok() && read_range(&file, 2..3).is_ok());
    let error = read_range(&file, 1..2).unwrap_err();
    assert!(matches!(&error, Error::Checksum { place, .. } if place.chunk == 1), "{error}");
    assert!(error.is_bad_data());
}

#[test]
fn every_truncation_is_an_error_or_ends_at_a_chunk() {
    for compression in [Compression::None, Compression::Snappy, Compression::Gzip] {
        let options =
            WriterOptions { compression, max_chunk_records: 2, ..WriterOptions::default() };
        let records: Vec<Vec<u8>> = (0..5).map(|n| vec![n; n as usize]).collect();
        let bytes = written(&records, options);
        let (_folder, path) = saved(&bytes);
        let whole = RecordFile::open(&path).unwrap();
        for length in 0..bytes.len() {
            let boundary = whole.chunks().iter().find(|chunk| chunk.offset == length as u64);
            match (read_all(&bytes[..length]), boundary) {
                (Ok(found), Some(chunk)) => {
                    assert_eq!(found, records[..chunk.first_record as usize]);
                }
                (Err(Error::Truncated { .. }), None) => {}
                (result, _) => panic!("{compression:?} cut at {length}: {result:?}"),
            }
        }
    }
}

#[test]
fn many_threads_read_the_same_file() {
    let records: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 50]).collect();
    let (_folder, path) = saved(&written(
        &records,
        WriterOptions { max_chunk_records: 16, ..WriterOptions::default() },
    ));
    let blob = Blob::open(&path).unwrap();
    let index = ChunkIndex::build(&blob).unwrap();
    let file = RecordFile::new(blob, index, Arc::new(Cache::new(3_000)));
    std::thread::scope(|scope| {
        for start in 0..4 {
            let (file, records) = (&file, &records);
            scope.spawn(move || {
                for begin in (start..190).step_by(7) {
                    let found = read_range(file, begin..begin + 10).unwrap();
                    assert_eq!(found, records[begin as usize..begin as usize + 10]);
                }
            });
        }
    });
}

#[test]
fn a_record_of_the_largest_size_survives() {
    let records = [vec![7; MAX_RECORD_BYTES - 1], Vec::new()];
    assert!(read_all(&written(&records, WriterOptions::default())).unwrap() == records);
}

#[test]
fn every_flipped_bit_of_a_small_file_is_an_error() {
    for compression in [Compression::None, Compression::Snappy, Compression::Gzip] {
        let options =
            WriterOptions { compression, max_chunk_records: 1, ..WriterOptions::default() };
        let bytes = written(&[vec![0; 34], Vec::new(), vec![1; 5]], options);
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1u8 << (bit % 8);
            assert!(read_all(&damaged).is_err(), "{compression:?}: bit {bit}");
        }
    }
}

fn options() -> impl Strategy<Value = WriterOptions> {
    let kinds = [Compression::None, Compression::Snappy, Compression::Gzip];
    (prop::sample::select(kinds.to_vec()), 0u32..=9, 1usize..400, 1u32..9).prop_map(
        |(compression, gzip_level, max_chunk_bytes, max_chunk_records)| WriterOptions {
            compression,
            gzip_level,
            max_chunk_bytes,
            max_chunk_records,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        records in vec(vec(any::<u8>(), 0..100), 0..20),
        options in options(),
    ) {
        prop_assert_eq!(read_all(&written(&records, options)).unwrap(), records);
    }

    #[test]
    fn a_flipped_bit_is_an_error(
        records in vec(vec(any::<u8>(), 0..50), 1..10),
        options in options(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = written(&records, options);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(read_all(&bytes).is_err(), "bit {} of byte {}", bit, at);
    }

    #[test]
    fn any_bytes_after_the_magic_are_read_or_refused(tail: Vec<u8>) {
        let _ = read_all(&[&[4, 3, 2, 1], &tail[..]].concat());
    }
}
