//! TFRecord files: TensorFlow's plain sequence of records, each with a checksum of its length and of its
//! bytes (<https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>).

use std::io::{self, BufReader, Read, Write};
use std::ops::Range;
use std::path::Path;

use crate::blob::{Blob, BlobReader};
use crate::index_cache::{Cut, Save};
use crate::reader::{Each, Index as _, OneShard, check_range};
use crate::{Error, example, reader};

/// Bytes of a record besides its data: length, checksum of the length, checksum of the data.
const FRAME_BYTES: u64 = 16;
/// Bytes before the data.
const HEAD_BYTES: u64 = 12;
/// Records between two places that are kept, at most.
const MARK_RECORDS: u64 = 256;
/// Bytes after which a place is kept even earlier, so that finding a record among large ones reads little.
const MARK_BYTES: u64 = 64 << 10;
/// Bytes read ahead.
const BUFFER_BYTES: usize = 64 << 10;

/// An indexed TFRecord file, which is one shard. Rows are made as
/// [`RecordFile`](crate::recordio::RecordFile) makes them.
#[derive(Debug)]
pub struct TfRecordFile {
    blob: Blob,
    index: Index,
}

#[derive(Debug)]
pub(crate) struct Index {
    marks: Vec<Mark>,
    records: u64,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
struct Mark {
    record: u64,
    offset: u64,
}

impl TfRecordFile {
    /// Opens a file and indexes it by hopping from length to length, each checked by its checksum. A file
    /// without bytes has no records.
    pub fn open(path: &Path) -> Result<TfRecordFile, Error> {
        let blob = Blob::open(path)?;
        let index = Index::build(&blob)?;
        Ok(TfRecordFile::new(blob, index))
    }

    pub(crate) fn new(blob: Blob, index: Index) -> TfRecordFile {
        TfRecordFile { blob, index }
    }

    /// How many records the file has.
    pub fn records(&self) -> u64 {
        self.index.records
    }

    /// Calls `each` with the number and bytes of every record of the range, in order.
    pub fn read_bytes(
        &self,
        records: Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.blob.path();
        check_range(path, &records, self.index.records)?;
        let marks = &self.index.marks;
        let before = marks.partition_point(|mark| mark.record <= records.start);
        let Some(&mark) = marks.get(before.wrapping_sub(1)).filter(|_| !records.is_empty()) else {
            return Ok(());
        };
        let mut cursor = Cursor::new(&self.blob, mark)?;
        while cursor.at.record < records.start {
            cursor.skip()?;
        }
        let mut data = Vec::new();
        for record in records {
            cursor.read(&mut data)?;
            each(record, &data).map_err(|error| error.at(path, None, record))?;
        }
        Ok(())
    }
}

impl OneShard for TfRecordFile {
    fn path(&self) -> &Path {
        self.blob.path()
    }

    fn count(&self) -> u64 {
        self.index.records
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        self.read_bytes(records, |record, bytes| each(record, example::row(bytes)))
    }
}

impl reader::Index for Index {
    /// Hops from length to length, each checked by its checksum.
    fn build(blob: &Blob) -> Result<Index, Error> {
        let mut cursor = Cursor::new(blob, Mark { record: 0, offset: 0 })?;
        let mut marks: Vec<Mark> = Vec::new();
        while cursor.at.offset < blob.size() {
            let due = marks.last().is_none_or(|last| {
                cursor.at.record - last.record >= MARK_RECORDS
                    || cursor.at.offset - last.offset >= MARK_BYTES
            });
            if due {
                marks.push(cursor.at);
            }
            cursor.skip()?;
        }
        Ok(Index { marks, records: cursor.at.record })
    }

    fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        saved.put(self.records);
        for mark in &self.marks {
            saved.put(mark.record);
            saved.put(mark.offset);
        }
        saved
    }

    /// Has all its places in the file, in order, or is none.
    fn restore(saved: &[u8], size: u64) -> Option<Index> {
        let mut cut = Cut(saved);
        let (records, mut marks): (_, Vec<Mark>) = (cut.number()?, Vec::new());
        while !cut.0.is_empty() {
            let mark = Mark { record: cut.number()?, offset: cut.number()? };
            let follows = match marks.last() {
                Some(last) => mark.record > last.record && mark.offset > last.offset,
                None => mark.record == 0 && mark.offset == 0,
            };
            if !follows || mark.record >= records || mark.offset >= size {
                return None;
            }
            marks.push(mark);
        }
        let possible = records <= size / FRAME_BYTES && marks.is_empty() == (records == 0);
        possible.then_some(Index { marks, records })
    }
}

/// Writes records one after the other.
///
/// ```
/// use salamander_data::tfrecord::Writer;
///
/// let mut writer = Writer::new(Vec::new());
/// writer.write(b"first")?;
/// assert_eq!(writer.finish()?.len(), 16 + 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// A writer at the start of an empty output, or at the end of a TFRecord file.
    pub fn new(out: W) -> Writer<W> {
        Writer { out }
    }

    /// Adds a record, which may be empty.
    pub fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked_crc(&length).to_le_bytes())?;
        self.out.write_all(record)?;
        self.out.write_all(&masked_crc(record).to_le_bytes())
    }

    /// Gives the output back, flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Walks a file record by record.
struct Cursor<'a> {
    blob: &'a Blob,
    source: BufReader<BlobReader>,
    at: Mark,
}

impl<'a> Cursor<'a> {
    fn new(blob: &'a Blob, at: Mark) -> Result<Cursor<'a>, Error> {
        let source = BufReader::with_capacity(BUFFER_BYTES, blob.handle()?.reader(at.offset));
        Ok(Cursor { blob, source, at })
    }

    /// Goes past a record without reading its data.
    fn skip(&mut self) -> Result<(), Error> {
        let length = self.length()?;
        // The length is less than the size of a file, which fits.
        let rest = (length + FRAME_BYTES - HEAD_BYTES) as i64;
        self.source.seek_relative(rest).map_err(Error::io(self.blob.path()))?;
        self.advance(length);
        Ok(())
    }

    /// Reads a record's data.
    fn read(&mut self, data: &mut Vec<u8>) -> Result<(), Error> {
        let length = self.length()?;
        data.clear();
        // The vector grows with the bytes that come, never on the word of the length.
        let taken = (&mut self.source).take(length).read_to_end(data);
        taken.map_err(Error::io(self.blob.path()))?;
        let mut checksum = [0; 4];
        self.fill(&mut checksum)?;
        let (found, expected) = (masked_crc(data), u32::from_le_bytes(checksum));
        if found != expected {
            let reason = format!("checksum {found:#010x}, but the file says {expected:#010x}");
            return Err(self.damaged(reason));
        }
        self.advance(length);
        Ok(())
    }

    /// The next record's length, which is known to fit into the file.
    fn length(&mut self) -> Result<u64, Error> {
        let available = self.blob.size().saturating_sub(self.at.offset);
        if available < HEAD_BYTES {
            return Err(self.truncated(FRAME_BYTES, available));
        }
        let mut head = [0; HEAD_BYTES as usize];
        self.fill(&mut head)?;
        let [length @ .., a, b, c, d] = head;
        let (found, expected) = (masked_crc(&length), u32::from_le_bytes([a, b, c, d]));
        if found != expected {
            if self.at.offset == 0 && head.starts_with(&[0x1f, 0x8b]) {
                let reason = "compressed with gzip: decompress it first".to_owned();
                return Err(Error::Form { path: self.blob.path().to_owned(), reason });
            }
            let reason = format!(
                "checksum of the length is {found:#010x}, but the file says {expected:#010x}"
            );
            return Err(self.damaged(reason));
        }
        let length = u64::from_le_bytes(length);
        match length.checked_add(FRAME_BYTES) {
            Some(needed) if needed <= available => Ok(length),
            needed => Err(self.truncated(needed.unwrap_or(length), available)),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.source.read_exact(bytes).map_err(Error::io(self.blob.path()))
    }

    fn advance(&mut self, length: u64) {
        self.at =
            Mark { record: self.at.record + 1, offset: self.at.offset + FRAME_BYTES + length };
    }

    fn damaged(&self, reason: String) -> Error {
        let Mark { record, offset } = self.at;
        let reason = format!("at byte {offset}: {reason}: damaged record");
        Error::Rejected(reason).at(self.blob.path(), None, record)
    }

    fn truncated(&self, needed: u64, available: u64) -> Error {
        let Mark { record, offset } = self.at;
        let reason = format!(
            "at byte {offset}: needs {needed} bytes, but the file ends after {available}: \
             truncated file"
        );
        Error::Rejected(reason).at(self.blob.path(), None, record)
    }
}

/// TensorFlow rotates and shifts a CRC-32C so that a checksum of bytes that hold checksums stays good.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn saved(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        crate::blob::saved("f.tfrecord", bytes)
    }

    fn written(records: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for record in records {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read_range(file: &TfRecordFile, records: Range<u64>) -> Result<Vec<Vec<u8>>, Error> {
        let mut found = Vec::new();
        file.read_bytes(records.clone(), |record, bytes| {
            assert_eq!(record, records.start + found.len() as u64);
            found.push(bytes.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let (_folder, path) = saved(bytes);
        let file = TfRecordFile::open(&path)?;
        read_range(&file, 0..file.records())
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
            let records: Vec<Vec<u8>> =
                (0..700u32).map(|n| n.to_le_bytes().repeat(size / 4)).collect();
            let (_folder, path) = saved(&written(&records));
            let file = TfRecordFile::open(&path).unwrap();
            assert_eq!(file.records(), 700);
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
        let file = TfRecordFile::open(&path).unwrap();
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
}
