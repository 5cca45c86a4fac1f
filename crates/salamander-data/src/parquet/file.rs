//! Reads any record of a Parquet file by its number: finds its block, decodes that once and keeps it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::PageIndexPolicy;

use super::batches::Batches;
use super::column::{Column, check_type};
use super::layout::{Block, Layout};
use super::source::Source;
use crate::blob::Blob;
use crate::guard::guard;
use crate::lru::Lru;
use crate::reader::{Each, OneShard};
use crate::{Error, Row};

/// Memory for decoded blocks, unless told otherwise.
const CACHE_BYTES: usize = 256 << 20;

/// Decoded blocks of several files.
#[derive(Debug)]
pub(crate) struct Cache(Lru<Decoded>);

impl Default for Cache {
    fn default() -> Cache {
        Cache(Lru::new(CACHE_BYTES))
    }
}

/// The columns of a block.
type Decoded = Vec<Column>;

/// An indexed Parquet file, which is one shard.
///
/// Integers, booleans, dates and times are [`Value::Ints`](crate::Value) (times in the unit of the file),
/// floats and decimals are floats of 32 bits, text and bytes are what they are, lists of these are one value
/// of several items, and a null is a column that the row does not have.
#[derive(Debug)]
pub struct ParquetFile {
    blob: Blob,
    metadata: ArrowReaderMetadata,
    projection: ProjectionMask,
    names: Vec<String>,
    layout: Layout,
    cache: Arc<Cache>,
    /// The file's number in the cache.
    number: u64,
    /// What is wrong with blocks that cannot be decoded: a reader that passes over bad records asks for every
    /// record of such a block, and must not pay for decoding each time.
    damaged: Mutex<BTreeMap<u64, String>>,
}

impl ParquetFile {
    /// Opens a file to read these columns, or all. Rows have them in the order of the file.
    pub fn open(path: &Path, columns: Option<&[String]>) -> Result<ParquetFile, Error> {
        ParquetFile::open_with(path, columns, Arc::default())
    }

    pub(crate) fn open_with(
        path: &Path,
        columns: Option<&[String]>,
        cache: Arc<Cache>,
    ) -> Result<ParquetFile, Error> {
        let wrong = |reason: String| Error::Form { path: path.to_owned(), reason };
        let blob = Blob::open(path)?;
        let source = Source::open(&blob)?;
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
        let (roots, names) = select(&metadata, columns).map_err(wrong)?;
        let projection = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let layout = Layout::new(metadata.metadata().row_groups()).map_err(wrong)?;
        let number = cache.0.next_file();
        let damaged = Mutex::default();
        Ok(ParquetFile { blob, metadata, projection, names, layout, cache, number, damaged })
    }

    /// How many records the file has.
    pub fn records(&self) -> u64 {
        self.layout.records()
    }

    /// How many row groups the file has.
    pub fn row_groups(&self) -> usize {
        self.layout.groups()
    }

    /// The names of the columns that are read, in the order of the file.
    pub fn columns(&self) -> &[String] {
        &self.names
    }

    /// All records as Arrow's batches of so many rows, past the cache.
    pub fn batches(&self, batch_rows: usize) -> Result<Batches, Error> {
        let groups = (0..self.row_groups()).collect();
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
        let source = Source::open(&self.blob)?;
        let path = self.blob.path().to_owned();
        let chunk = groups.first().copied();
        let build = || -> parquet::errors::Result<ParquetRecordBatchReader> {
            let metadata = self.metadata.clone();
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(source.clone(), metadata)
                    .with_projection(self.projection.clone())
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
    fn stream_from(&self, block: &Block, end: u64) -> Result<Batches, Error> {
        let rows = end.min(block.group_end) - block.first_record;
        let rows = rows.next_multiple_of(block.stride).min(block.group_end - block.first_record);
        let selectors =
            vec![RowSelector::skip(block.skip as usize), RowSelector::select(rows as usize)];
        let stride = block.stride as usize;
        self.stream(vec![block.group], Some(selectors.into()), stride, block.first_record)
    }

    fn load(&self, batches: &mut Batches, block: &Block) -> Result<Arc<Decoded>, Error> {
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
        let bytes = decoded.iter().map(Column::bytes).sum();
        self.cache.0.insert((self.number, block.number), Arc::clone(&decoded), bytes);
        Ok(decoded)
    }

    fn decode(&self, batch: &RecordBatch, block: &Block) -> Result<Decoded, Error> {
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (array, name) in batch.columns().iter().zip(&self.names) {
            let column = guard(|| Column::new(array));
            let column = column.map_err(|panic| self.damaged(block, panic))?;
            columns.push(column.map_err(|unfit| {
                let record = block.first_record + unfit.row.unwrap_or(0) as u64;
                let error = Error::Column { column: name.clone(), reason: unfit.reason };
                error.at(self.blob.path(), Some(block.group), record)
            })?);
        }
        Ok(columns)
    }

    fn refuse_damaged(&self, block: &Block) -> Result<(), Error> {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        match damaged.get(&block.number) {
            Some(reason) => Err(self.damaged(block, reason.clone())),
            None => Ok(()),
        }
    }

    fn remember_damage(&self, block: &Block, error: &Error) {
        let reason = match error {
            Error::Record { reason, .. } => reason.clone(),
            Error::Decode { column, reason, .. } => format!("column {column:?}: {reason}"),
            // The machine may do better the next time.
            _ => return,
        };
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.insert(block.number, reason);
    }

    fn damaged(&self, block: &Block, reason: String) -> Error {
        Error::Rejected(reason).at(self.blob.path(), Some(block.group), block.first_record)
    }

    fn row<'a>(&'a self, decoded: &'a Decoded, row: usize) -> Result<Row<'a>, Error> {
        let mut columns = Vec::with_capacity(decoded.len());
        for (name, column) in self.names.iter().zip(decoded) {
            let value = column.value(row);
            let value = value.map_err(|reason| Error::Column { column: name.clone(), reason })?;
            columns.extend(value.map(|value| (name.as_str().into(), value)));
        }
        Ok(Row::new(columns))
    }
}

impl OneShard for ParquetFile {
    fn path(&self) -> &Path {
        self.blob.path()
    }

    fn count(&self) -> u64 {
        self.layout.records()
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.blob.path();
        self.blob.verify()?;
        let mut stream: Option<Batches> = None;
        let mut next = records.start;
        while let Some(block) = self.layout.block_of(next).filter(|_| next < records.end) {
            let decoded = match self.cache.0.get((self.number, block.number)) {
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

/// The numbers and names of the columns to read.
fn select(
    metadata: &ArrowReaderMetadata,
    columns: Option<&[String]>,
) -> Result<(Vec<usize>, Vec<String>), String> {
    let fields = metadata.schema().fields();
    let known = || fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    for column in columns.unwrap_or_default() {
        if !fields.iter().any(|field| field.name() == column) {
            return Err(format!("no column {column:?} (the file has: {})", known()));
        }
    }
    let (mut roots, mut names) = (Vec::new(), Vec::new());
    for (root, field) in fields.iter().enumerate() {
        if columns.is_none_or(|columns| columns.contains(field.name())) {
            let checked = check_type(field.data_type());
            checked.map_err(|reason| format!("column {:?} is {reason}", field.name()))?;
            roots.push(root);
            names.push(field.name().clone());
        }
    }
    Ok((roots, names))
}

#[cfg(test)]
mod tests;
