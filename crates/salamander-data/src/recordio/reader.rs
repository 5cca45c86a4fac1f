//! Reads any record of a RecordIO file by its number, as bytes or as a row.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::cache::Cache;
use super::chunk::Chunk;
use super::header::HEADER_BYTES;
use super::index::{ChunkIndex, ChunkInfo};
use crate::reader::{Each, Extent, OneShard, check_range};
use crate::{Blob, BlobHandle, ChunkPlace, Error, example};

/// The only column of a record that is no `tf.train.Example`.
pub const RECORD_COLUMN: &str = "record";

/// An indexed RecordIO file, which is one shard.
///
/// As a [`Reader`](crate::Reader) it decides for each record on its own: a valid `tf.train.Example` with at least one
/// feature becomes a row of its features, sorted by name; anything else, the empty record included, becomes
/// a row with the single column [`RECORD_COLUMN`] that holds the record's bytes.
#[derive(Debug)]
pub struct RecordFile {
    blob: Blob,
    index: ChunkIndex,
    cache: Arc<Cache>,
    /// The file's number in the cache.
    number: u64,
}

impl RecordFile {
    /// Opens and indexes a file. A file without bytes has no records.
    pub fn open(path: &Path) -> Result<RecordFile, Error> {
        let blob = Blob::open(path)?;
        let index = ChunkIndex::build(&blob)?;
        Ok(RecordFile::new(blob, index, Arc::default()))
    }

    pub(crate) fn new(blob: Blob, index: ChunkIndex, cache: Arc<Cache>) -> RecordFile {
        let number = cache.chunks.next_file();
        RecordFile { blob, index, cache, number }
    }

    /// The chunks in order.
    pub fn chunks(&self) -> &[ChunkInfo] {
        &self.index.chunks
    }

    /// Calls `each` with the number and bytes of every record of the range, in order.
    pub fn read_bytes(
        &self,
        records: Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.blob.path();
        check_range(self.extent(), &records)?;
        self.blob.verify()?;
        let mut next = records.start;
        let mut file = None;
        while next < records.end {
            let number = self.index.chunk_of(next);
            let info = &self.index.chunks[number];
            let chunk_end = info.first_record + u64::from(info.records());
            let whole = next == info.first_record && chunk_end <= records.end;
            let chunk = self.chunk(number, whole, &mut file)?;
            let end = records.end.min(chunk_end);
            for record in next..end {
                // A decoded chunk has exactly as many records as its header says.
                let bytes = chunk.record((record - info.first_record) as usize).unwrap_or_default();
                each(record, bytes).map_err(|error| error.at(path, Some(number), record))?;
            }
            self.cache.release(chunk);
            next = end;
        }
        Ok(())
    }

    /// A chunk from the cache or from the file, which is opened once per range.
    fn chunk(
        &self,
        number: usize,
        whole: bool,
        file: &mut Option<BlobHandle>,
    ) -> Result<Arc<Chunk>, Error> {
        let key = (self.number, number as u64);
        if let Some(chunk) = self.cache.chunks.get(key) {
            return Ok(chunk);
        }
        let path = self.blob.path();
        let file = match file {
            Some(file) => file,
            None => file.insert(self.blob.handle()?),
        };
        let info = &self.index.chunks[number];
        let mut buffers = self.cache.take();
        buffers.compressed.resize(info.compressed_size() as usize, 0);
        file.read_exact_at(&mut buffers.compressed, info.offset + HEADER_BYTES)
            .map_err(Error::io(path))?;
        let place = ChunkPlace { path: path.to_owned(), offset: info.offset, chunk: number };
        let (dialect, first) = (self.index.dialect, info.first_record);
        let chunk = Chunk::decode(dialect, &info.header, &mut buffers, &place, first)?;
        self.cache.give(buffers.compressed);
        Ok(self.cache.add(key, chunk, whole))
    }
}

impl OneShard for RecordFile {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.index.records }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        self.read_bytes(records, |record, bytes| each(record, example::row(bytes)))
    }
}

#[cfg(test)]
mod tests;
