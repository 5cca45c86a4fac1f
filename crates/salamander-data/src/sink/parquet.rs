//! Rows as Parquet, with the columns and kinds that the first 1,000 records have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::Sink;
use super::cells::Cells;
use super::pending::Pending;
use crate::{ColumnInfo, Error, Row, Value};

/// Records that wait for a batch; the first ones decide about the columns.
const BATCH_ROWS: usize = 1000;
/// Bytes that wait for a batch, at most, so that large images do not pile up.
const BATCH_BYTES: u64 = 64 << 20;
/// Bytes after which a row group ends.
const GROUP_BYTES: usize = 64 << 20;

/// A Parquet file with one column for each of the first records' columns, all of which may be null.
struct Parquet {
    path: PathBuf,
    columns: Vec<Cells>,
    /// Records that wait, and their bytes.
    waiting: usize,
    waiting_bytes: u64,
    records: u64,
    output: ParquetOutput,
}

/// The columns are fixed when the first batch is written.
enum ParquetOutput {
    Waiting(Option<Pending>),
    Open { writer: Box<ArrowWriter<Pending>>, schema: SchemaRef },
}

pub(crate) fn create(path: &Path) -> Result<Box<dyn Sink>, Error> {
    let output = ParquetOutput::Waiting(Some(Pending::create(path)?));
    let (path, columns) = (path.to_owned(), Vec::new());
    Ok(Box::new(Parquet { path, columns, waiting: 0, waiting_bytes: 0, records: 0, output }))
}

impl Parquet {
    /// The place of a column, which is a new one only while the columns are not fixed.
    fn column(&mut self, name: &str, value: &Value<'_>, guess: usize) -> Result<usize, String> {
        let at_guess = self.columns.get(guess).is_some_and(|column| column.name == name);
        let position = match at_guess {
            true => Some(guess),
            false => self.columns.iter().position(|column| column.name == name),
        };
        match (position, &self.output) {
            (Some(position), ParquetOutput::Waiting(_)) => self.columns[position].widen(value)?,
            (Some(position), ParquetOutput::Open { .. }) => self.columns[position].check(value)?,
            (None, ParquetOutput::Waiting(_)) => self.columns.push(Cells::new(name, value)),
            (None, ParquetOutput::Open { .. }) => {
                return Err(format!("the first {BATCH_ROWS} records have no such column"));
            }
        }
        Ok(position.unwrap_or(self.columns.len() - 1))
    }

    fn flush(&mut self) -> Result<(), Error> {
        let first = self.records - self.waiting as u64;
        if let ParquetOutput::Waiting(out) = &mut self.output {
            let out = out.take().ok_or_else(|| unusable(&self.path))?;
            let fields: Vec<_> = self.columns.iter().map(Cells::field).collect();
            let schema = Arc::new(Schema::new(fields));
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties))
                .map_err(|error| failed(&self.path, &error))?;
            self.output = ParquetOutput::Open { writer: Box::new(writer), schema };
        }
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            column.pad(self.waiting);
            arrays.push(column.take().map_err(|(row, reason)| {
                Error::column(&column.name, reason).at(&self.path, None, first + row as u64)
            })?);
        }
        let ParquetOutput::Open { writer, schema } = &mut self.output else { return Ok(()) };
        let options = RecordBatchOptions::new().with_row_count(Some(self.waiting));
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
            .map_err(ParquetError::from)
            .and_then(|batch| writer.write(&batch))
            .and_then(|()| match writer.in_progress_size() > GROUP_BYTES {
                true => writer.flush(),
                false => Ok(()),
            })
            .map_err(|error| failed(&self.path, &error))?;
        (self.waiting, self.waiting_bytes) = (0, 0);
        Ok(())
    }
}

impl Sink for Parquet {
    fn expect(&mut self, columns: &[ColumnInfo]) -> Result<(), Error> {
        if self.records == 0 {
            self.columns = columns.iter().map(Cells::expected).collect();
        }
        Ok(())
    }

    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        for (guess, (name, value)) in row.columns().enumerate() {
            let position = self.column(name, value, guess);
            let position = position.map_err(|reason| Error::column(name, reason))?;
            self.columns[position].put(self.waiting, value);
            self.waiting_bytes += value.bytes() as u64;
        }
        if self.columns.is_empty() {
            return Err(Error::Rejected("no columns, and none in the records before".to_owned()));
        }
        self.waiting += 1;
        self.records += 1;
        if self.waiting >= BATCH_ROWS || self.waiting_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()?;
        let ParquetOutput::Open { writer, .. } = self.output else {
            return Err(unusable(&self.path));
        };
        writer.into_inner().map_err(|error| failed(&self.path, &error))?.commit()
    }

    fn bytes(&self) -> u64 {
        let written = match &self.output {
            ParquetOutput::Waiting(_) => 0,
            ParquetOutput::Open { writer, .. } => {
                writer.bytes_written() + writer.in_progress_size()
            }
        };
        written as u64 + self.waiting_bytes
    }
}

fn failed(path: &Path, error: &ParquetError) -> Error {
    Error::form(path, format!("cannot write: {error}"))
}

fn unusable(path: &Path) -> Error {
    Error::form(path, "cannot write: an earlier write has failed")
}
