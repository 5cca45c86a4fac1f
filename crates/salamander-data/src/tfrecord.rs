//! TFRecord files: TensorFlow's plain sequence of records, each with a checksum of its length and of its
//! bytes (<https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>).

use std::io::{self, BufReader, Read, Write};
use std::ops::Range;

use crate::blob::{Blob, BlobReader};
use crate::format::Definition;
use crate::index_cache::{Cut, Save};
use crate::reader::{Each, Extent, OneShard};
use crate::{Error, example, reader, sink};

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

pub(crate) static FORMAT: Definition = Definition {
    endings: &["tfrecord", "tfrecords"],
    open: Some(|opening| opening.indexed(RecordIndex::build, TfRecordFile::new)),
    create: Some(sink::example::tfrecord),
    ..Definition::named("tfrecord")
};

/// An indexed TFRecord file, which is one shard. Rows are made as
/// [`RecordFile`](crate::recordio::RecordFile) makes them.
#[derive(Debug)]
struct TfRecordFile {
    blob: Blob,
    index: RecordIndex,
}

#[derive(Debug)]
pub(crate) struct RecordIndex {
    marks: Vec<RecordMark>,
    records: u64,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
struct RecordMark {
    record: u64,
    offset: u64,
}

impl TfRecordFile {
    fn new(blob: Blob, index: RecordIndex) -> TfRecordFile {
        TfRecordFile { blob, index }
    }
}

impl OneShard for TfRecordFile {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.index.records }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let marks = &self.index.marks;
        let after = marks.partition_point(|mark| mark.record <= records.start);
        // The first record has a mark, so that one lies at or before each.
        let mut cursor = RecordCursor::new(&self.blob, marks[after - 1])?;
        while cursor.at.record < records.start {
            cursor.skip()?;
        }
        let mut data = Vec::new();
        for record in records {
            cursor.read(&mut data)?;
            let read = each(record, example::row(&data));
            read.map_err(|error| error.at(self.blob.path(), None, record))?;
        }
        Ok(())
    }
}

impl RecordIndex {
    /// Hops from length to length, each checked by its checksum.
    fn build(blob: &Blob) -> Result<RecordIndex, Error> {
        let mut cursor = RecordCursor::new(blob, RecordMark { record: 0, offset: 0 })?;
        let mut marks: Vec<RecordMark> = Vec::new();
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
        Ok(RecordIndex { marks, records: cursor.at.record })
    }
}

impl reader::FileIndex for RecordIndex {
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
    fn restore(saved: &[u8], size: u64) -> Option<RecordIndex> {
        let mut cut = Cut(saved);
        let (records, mut marks): (_, Vec<RecordMark>) = (cut.number()?, Vec::new());
        while !cut.0.is_empty() {
            let mark = RecordMark { record: cut.number()?, offset: cut.number()? };
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
        possible.then_some(RecordIndex { marks, records })
    }
}

/// Writes records one after the other.
#[derive(Debug)]
pub(crate) struct TfRecordWriter<W: Write> {
    out: W,
}

impl<W: Write> TfRecordWriter<W> {
    /// A writer at the start of an empty output, or at the end of a TFRecord file.
    pub(crate) fn new(out: W) -> TfRecordWriter<W> {
        TfRecordWriter { out }
    }

    /// Adds a record, which may be empty.
    pub(crate) fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked_crc(&length).to_le_bytes())?;
        self.out.write_all(record)?;
        self.out.write_all(&masked_crc(record).to_le_bytes())
    }

    /// Gives the output back, flushed.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Walks a file record by record.
struct RecordCursor<'a> {
    blob: &'a Blob,
    source: BufReader<BlobReader>,
    at: RecordMark,
}

impl<'a> RecordCursor<'a> {
    fn new(blob: &'a Blob, at: RecordMark) -> Result<RecordCursor<'a>, Error> {
        let source = BufReader::with_capacity(BUFFER_BYTES, blob.handle()?.reader(at.offset));
        Ok(RecordCursor { blob, source, at })
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
                let reason = "compressed with gzip: decompress it first";
                return Err(Error::form(self.blob.path(), reason));
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
        self.at = RecordMark {
            record: self.at.record + 1,
            offset: self.at.offset + FRAME_BYTES + length,
        };
    }

    fn damaged(&self, reason: String) -> Error {
        let RecordMark { record, offset } = self.at;
        let reason = format!("at byte {offset}: {reason}: damaged record");
        Error::Rejected(reason).at(self.blob.path(), None, record)
    }

    fn truncated(&self, needed: u64, available: u64) -> Error {
        let RecordMark { record, offset } = self.at;
        let reason = format!(
            "at byte {offset}: needs {needed} bytes, but the file ends after {available}: \
             truncated file"
        );
        Error::Rejected(reason).at(self.blob.path(), None, record)
    }
}

/// A CRC-32C, rotated and shifted so that a checksum of bytes that hold checksums stays good: TensorFlow's and
/// Snappy's.
pub(crate) fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
