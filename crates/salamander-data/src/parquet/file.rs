//! Reads any record of a Parquet file by its number: finds its block, decodes that once and keeps it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Compression;
use parquet::file::metadata::PageIndexPolicy;

use super::batches::Batches;
use super::column::{DecodedColumn, check_type, column_info};
use super::layout::{RowBlock, RowGroups};
use super::source::ParquetBytes;
use crate::blob::Blob;
use crate::guard::guard;
use crate::open::{Opened, Opening};
use crate::part_cache::PartCache;
use crate::reader::{Each, Extent, OneShard};
use crate::{ColumnInfo, Error, Row};

pub(super) fn open(opening: Opening<'_>) -> Result<Opened, Error> {
    Ok(Opened::reader(ParquetFile::open_with(opening.path(), opening.shared())?))
}

/// The columns of a block.
type Decoded = Vec<DecodedColumn>;

/// Decoded blocks of several files.
type DecodedColumns = PartCache<Decoded>;

/// An indexed Parquet file, which is one shard.
///
/// Integers, booleans, dates and times are [`Value::Ints`](crate::Value) (times in the unit of the file),
/// floats and decimals are floats of 32 bits, text and bytes are what they are, lists of these are one value
/// of several items, and a null is a column that the row does not have.
#[derive(Debug)]
pub struct ParquetFile {
    blob: Blob,
    metadata: ArrowReaderMetadata,
    names: Vec<String>,
    layout: RowGroups,
    cache: Arc<DecodedColumns>,
    /// The file's number in the cache.
    number: u64,
    /// What is wrong with blocks that cannot be decoded: a reader that passes over bad records asks for every
    /// record of such a block, and must not pay for decoding each time.
    damaged: Mutex<BTreeMap<u64, String>>,
}

impl ParquetFile {
    /// Opens a file. Rows have the columns in the order of the file.
    pub fn open(path: &Path) -> Result<ParquetFile, Error> {
        ParquetFile::open_with(path, Arc::default())
    }

    fn open_with(path: &Path, cache: Arc<DecodedColumns>) -> Result<ParquetFile, Error> {
        let wrong = |reason: String| Error::form(path, reason);
        let blob = Blob::open(path)?;
        let source = ParquetBytes::open(&blob)?;
        // Arrow's own copy of the schema is passed over: it would bring more types for the same values.
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_offset_index_policy(PageIndexPolicy::Optional);
        let loaded = guard(|| ArrowReaderMetadata::load(&source, options));
        let metadata = loaded.and_then(|loaded| loaded.map_err(|error| error.to_string()));
        let metadata = metadata.map_err(|reason| match source.take_failure() {
            Some(cause) => Error::Io { path: path.to_owned(), cause },
            None => wrong(format!(
                "not a parquet file, or its footer is damaged, without which no record is found: {reason}"
            )),
        })?;
        let names = column_names(&metadata).map_err(wrong)?;
        check_codecs(&metadata).map_err(wrong)?;
        let layout = RowGroups::new(metadata.metadata().row_groups()).map_err(wrong)?;
        let number = cache.next_file();
        let damaged = Mutex::default();
        Ok(ParquetFile { blob, metadata, names, layout, cache, number, damaged })
    }

    /// All records as Arrow's batches of so many rows, past the cache.
    pub fn batches(&self, batch_rows: usize) -> Result<Batches, Error> {
        let groups = (0..self.layout.groups()).collect();
        self.stream(groups, None, batch_rows, 0)
    }

    /// Starts decoding row groups, of which only the selected rows if there is a selection.
    fn stream(
        &self,
        groups: Vec<usize>,
        selection: Option<RowSelection>,
        batch_rows: usize,
        record: u64,
    ) -> Result<Batches, Error> {
        let source = ParquetBytes::open(&self.blob)?;
        let path = self.blob.path().to_owned();
        let chunk = groups.first().copied();
        let build = || -> parquet::errors::Result<ParquetRecordBatchReader> {
            let metadata = self.metadata.clone();
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(source.clone(), metadata)
                    .with_row_groups(groups)
                    .with_batch_size(batch_rows.max(1));
            if let Some(selection) = selection {
                builder = builder.with_row_selection(selection);
            }
            builder.build()
        };
        let built = guard(build).and_then(|built| built.map_err(|error| error.to_string()));
        let mut batches = Batches { path, source, reader: None, record };
        batches.reader = Some(built.map_err(|reason| batches.failed(chunk, reason))?);
        Ok(batches)
    }

    /// Starts decoding at a block and ends with the block of the record before `end`, at the latest with
    /// the row group.
    fn stream_from(&self, block: &RowBlock, end: u64) -> Result<Batches, Error> {
        let rows = end.min(block.group_end) - block.first_record;
        let rows = rows.next_multiple_of(block.stride).min(block.group_end - block.first_record);
        let selectors =
            vec![RowSelector::skip(block.skip as usize), RowSelector::select(rows as usize)];
        let stride = block.stride as usize;
        self.stream(vec![block.group], Some(selectors.into()), stride, block.first_record)
    }

    fn load(&self, batches: &mut Batches, block: &RowBlock) -> Result<Arc<Decoded>, Error> {
        let short = || Err(format!("the row group ends, but {} records are due", block.rows));
        let batch = match batches.advance().unwrap_or_else(short) {
            Ok(batch) if batch.num_rows() as u64 == block.rows => batch,
            Ok(batch) => {
                let reason = format!("{} records where {} are due", batch.num_rows(), block.rows);
                return Err(self.damaged(block, reason));
            }
            Err(reason) => return Err(batches.failed(Some(block.group), reason)),
        };
        let decoded = Arc::new(self.decode(&batch, block)?);
        let bytes = decoded.iter().map(DecodedColumn::bytes).sum();
        self.cache.insert((self.number, block.number), Arc::clone(&decoded), bytes);
        Ok(decoded)
    }

    fn decode(&self, batch: &RecordBatch, block: &RowBlock) -> Result<Decoded, Error> {
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (array, name) in batch.columns().iter().zip(&self.names) {
            let column = guard(|| DecodedColumn::new(array));
            let column = column.map_err(|panic| self.damaged(block, panic))?;
            columns.push(column.map_err(|unfit| {
                let record = block.first_record + unfit.row.unwrap_or(0) as u64;
                let error = Error::column(name, unfit.reason);
                error.at(self.blob.path(), Some(block.group), record)
            })?);
        }
        Ok(columns)
    }

    fn refuse_damaged(&self, block: &RowBlock) -> Result<(), Error> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        match damaged.get(&block.number) {
            Some(reason) => Err(self.damaged(block, reason.clone())),
            None => Ok(()),
        }
    }

    fn remember_damage(&self, block: &RowBlock, error: &Error) {
        let reason = match error {
            Error::Record { reason, .. } => reason.clone(),
            Error::Decode { column, reason, .. } => format!("column {column:?}: {reason}"),
            // The machine may do better the next time.
            _ => return,
        };
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.insert(block.number, reason);
    }

    fn damaged(&self, block: &RowBlock, reason: String) -> Error {
        Error::Rejected(reason).at(self.blob.path(), Some(block.group), block.first_record)
    }

    fn row<'a>(&'a self, decoded: &'a Decoded, row: usize) -> Result<Row<'a>, Error> {
        let mut columns = Vec::with_capacity(decoded.len());
        for (name, column) in self.names.iter().zip(decoded) {
            let value = column.value(row).map_err(|reason| Error::column(name, reason))?;
            columns.extend(value.map(|value| (name.as_str().into(), value)));
        }
        Ok(Row::new(columns))
    }
}

impl OneShard for ParquetFile {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.layout.records() }
    }

    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        let fields = self.metadata.schema().fields();
        Some(fields.iter().map(|field| column_info(field.name(), field.data_type())).collect())
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.blob.path();
        self.blob.verify()?;
        let mut stream: Option<Batches> = None;
        let mut next = records.start;
        while let Some(block) = self.layout.block_of(next).filter(|_| next < records.end) {
            let decoded = match self.cache.get((self.number, block.number)) {
                Some(decoded) => decoded,
                None => {
                    self.refuse_damaged(&block)?;
                    let open = stream.take().filter(|stream| stream.record == block.first_record);
                    let loaded = open
                        .filter(|_| block.skip > 0)
                        .map_or_else(|| self.stream_from(&block, records.end), Ok)
                        .and_then(|open| self.load(stream.insert(open), &block));
                    loaded.inspect_err(|error| self.remember_damage(&block, error))?
                }
            };
            let end = records.end.min(block.first_record + block.rows);
            for record in next..end {
                self.row(&decoded, (record - block.first_record) as usize)
                    .and_then(|row| each(record, row))
                    .map_err(|error| error.at(path, Some(block.group), record))?;
            }
            next = end;
        }
        Ok(())
    }
}

/// The names of the columns, all of types that can be read.
/// Brotli is left out unless it is asked for: most files are compressed by Snappy or Zstandard.
fn check_codecs(metadata: &ArrowReaderMetadata) -> Result<(), String> {
    let columns = metadata.metadata().row_groups().iter().flat_map(|group| group.columns());
    let mut brotli =
        columns.filter(|column| matches!(column.compression(), Compression::BROTLI(_)));
    match brotli.next() {
        Some(column) if !cfg!(feature = "brotli") => Err(format!(
            "column {:?} is compressed by Brotli, which this program was built without: build it with that \
             feature (`--features brotli`)",
            column.column_path().string()
        )),
        _ => Ok(()),
    }
}

fn column_names(metadata: &ArrowReaderMetadata) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for field in metadata.schema().fields() {
        let checked = check_type(field.data_type());
        checked.map_err(|reason| format!("column {:?} is {reason}", field.name()))?;
        names.push(field.name().clone());
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
