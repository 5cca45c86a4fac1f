//! Reads any record of a RecordIO file by its number, as bytes or as a row.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::cache::Cache;
use super::chunk::Chunk;
use super::header::{Dialect, HEADER_BYTES};
use super::index::{ChunkInfo, Index};
use crate::reader::check_range;
use crate::stamp::Stamp;
use crate::{Error, Place, Reader, Row, Shard, Value, example};

/// The only column of a record that is no `tf.train.Example`.
pub const RECORD_COLUMN: &str = "record";

/// An indexed RecordIO file, which is one shard.
///
/// As a [`Reader`] it decides for each record on its own: a valid `tf.train.Example` with at least one
/// feature becomes a row of its features, sorted by name; anything else, the empty record included, becomes
/// a row with the single column [`RECORD_COLUMN`] that holds the record's bytes.
#[derive(Debug)]
pub struct RecordFile {
    stamp: Stamp,
    index: Index,
    cache: Arc<Cache>,
    /// The file's number in the cache.
    number: u64,
}

impl RecordFile {
    /// Opens and indexes a file. A file without bytes has no records.
    pub fn open(path: &Path) -> Result<RecordFile, Error> {
        RecordFile::open_with(path, Arc::default())
    }

    pub(crate) fn open_with(path: &Path, cache: Arc<Cache>) -> Result<RecordFile, Error> {
        let (file, stamp) = Stamp::open(path)?;
        let index = Index::build(&file, path, stamp.size())?;
        let number = cache.next_file();
        Ok(RecordFile { stamp, index, cache, number })
    }

    /// How many records the file has.
    pub fn records(&self) -> u64 {
        self.index.records
    }

    /// The dialect the file is written in; a file without bytes counts as standard.
    pub fn dialect(&self) -> Dialect {
        self.index.dialect
    }

    /// The chunks in order.
    pub fn chunks(&self) -> &[ChunkInfo] {
        &self.index.chunks
    }

    /// Calls `each` with the number and bytes of every record of the range, in order.
    pub fn read_bytes(
        &self,
        records: Range<u64>,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.stamp.path();
        check_range(path, &records, self.index.records)?;
        self.stamp.verify()?;
        let mut next = records.start;
        let mut file = None;
        while next < records.end {
            let number = self.index.chunk_of(next);
            let info = &self.index.chunks[number];
            let chunk =
                self.cache.get((self.number, number), || self.load(number, info, &mut file))?;
            let end = records.end.min(info.first_record + u64::from(info.records()));
            for record in next..end {
                // A decoded chunk has exactly as many records as its header says.
                let bytes = chunk.record((record - info.first_record) as usize).unwrap_or_default();
                each(record, bytes).map_err(|error| error.at(path, Some(number), record))?;
            }
            next = end;
        }
        Ok(())
    }

    /// Reads a chunk from the file, which is opened once per range.
    fn load(
        &self,
        number: usize,
        info: &ChunkInfo,
        file: &mut Option<File>,
    ) -> Result<Chunk, Error> {
        let path = self.stamp.path();
        let file = match file {
            Some(file) => file,
            None => file.insert(self.stamp.reopen()?),
        };
        let mut compressed = vec![0; info.compressed_size() as usize];
        file.read_exact_at(&mut compressed, info.offset + HEADER_BYTES).map_err(Error::io(path))?;
        let place = Place { path: path.to_owned(), offset: info.offset, chunk: number };
        Chunk::decode(self.index.dialect, &info.header, compressed, &place, info.first_record)
    }
}

impl Reader for RecordFile {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        let name = self.stamp.path().display().to_string();
        Ok(vec![Shard { name, records: self.index.records }])
    }

    fn read(
        &self,
        shard: usize,
        records: Range<u64>,
        each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if shard != 0 {
            return Err(Error::NoShard { shard, shards: 1 });
        }
        self.read_bytes(records, &mut |record, bytes| each(record, row(bytes)))
    }
}

fn row(bytes: &[u8]) -> Row<'_> {
    match example::decode(bytes) {
        Ok(row) if row.columns().len() > 0 => row,
        _ => Row::new(vec![(RECORD_COLUMN.into(), Value::Bytes(bytes))]),
    }
}
