//! Records as TensorFlow writes them, whole, cut and damaged.

use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Reader;
use crate::recordio::RECORD_COLUMN;

fn saved(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    crate::blob::saved("f.tfrecord", bytes)
}

fn opened(path: &Path) -> Result<TfRecordFile, Error> {
    let blob = Blob::open(path)?;
    let index = RecordIndex::build(&blob)?;
    Ok(TfRecordFile::new(blob, index))
}

fn written(records: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = TfRecordWriter::new(Vec::new());
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

fn read_range(file: &TfRecordFile, records: Range<u64>) -> Result<Vec<Vec<u8>>, Error> {
    crate::reader::collected(records, |records, each| {
        file.read(0, records, &mut |record, row| each(record, row.bytes(RECORD_COLUMN)?))
    })
}

fn read_all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let (_folder, path) = saved(bytes);
    let file = opened(&path)?;
    read_range(&file, 0..file.index.records)
}

#[test]
fn bytes_are_those_tensorflow_writes() {
    // Checksums taken with the Python package tfrecord.
    let expected = b"\x02\0\0\0\0\0\0\0x'\x0b4ab\x1c\xb0\xf0\xf4";
    assert_eq!(written(&[b"ab".to_vec()]), expected);
    // The checksum of zero bytes of data is the mask itself.
    assert_eq!(written(&[Vec::new()])[12..], 0xa282_ead8_u32.to_le_bytes());
}

#[test]
fn ranges_start_anywhere() {
    for size in [0, 3, 500, 40_000] {
        let records: Vec<Vec<u8>> = (0..700u32).map(|n| n.to_le_bytes().repeat(size / 4)).collect();
        let (_folder, path) = saved(&written(&records));
        let file = opened(&path).unwrap();
        assert_eq!(file.index.records, 700);
        for range in [0..1, 255..258, 256..256, 699..700, 300..700, 700..700] {
            let expected = &records[range.start as usize..range.end as usize];
            assert_eq!(read_range(&file, range).unwrap(), expected);
        }
        assert!(matches!(read_range(&file, 699..701), Err(Error::Range { record: 700, .. })));
    }
}

#[test]
fn every_truncation_is_an_error_or_ends_at_a_record() {
    let records = [vec![1; 5], Vec::new(), vec![2; 3]];
    let bytes = written(&records);
    let ends = [0, 21, 37];
    for length in 0..bytes.len() {
        match (read_all(&bytes[..length]), ends.iter().position(|&end| end == length)) {
            (Ok(found), Some(count)) => assert_eq!(found, records[..count]),
            (Err(error), None) => {
                assert!(error.to_string().ends_with("truncated file"), "{error}");
                assert!(error.is_bad_data());
            }
            (result, _) => panic!("cut at {length}: {result:?}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error() {
    let bytes = written(&[vec![0; 9], Vec::new(), vec![1; 5]]);
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1u8 << (bit % 8);
        assert!(read_all(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn absurd_lengths_take_no_memory() {
    for length in [u64::MAX, u64::MAX - 15, i64::MAX as u64, 1 << 40] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(masked_crc(&length.to_le_bytes()).to_le_bytes());
        bytes.extend([0; 100]);
        let message = read_all(&bytes).unwrap_err().to_string();
        assert!(message.contains("f.tfrecord: record 0: at byte 0: needs"), "{message}");
    }
}

#[test]
fn a_file_with_gzip_inside_says_so() {
    let mut bytes = vec![0x1f, 0x8b];
    bytes.resize(40, 0);
    let message = read_all(&bytes).unwrap_err().to_string();
    assert!(message.ends_with("compressed with gzip: decompress it first"), "{message}");
}

#[test]
fn a_file_that_changed_after_indexing_is_noticed() {
    let bytes = written(&vec![vec![1; 100]; 9]);
    let (_folder, path) = saved(&bytes);
    let file = opened(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(read_range(&file, 0..9), Err(Error::Changed { .. })));
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in vec(vec(any::<u8>(), 0..100), 0..20)) {
        prop_assert_eq!(read_all(&written(&records)).unwrap(), records);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = read_all(&bytes);
    }
}
