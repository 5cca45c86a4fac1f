//! Writes rows to files of any format that can be written, so that any source can be converted.
//!
//! [`create`] picks the [`Sink`] by the table of formats: `example` for RecordIO and TFRecord, `delimited` for
//! CSV, TSV and their kin, `jsonl` for JSON lines,
//! `parquet` with its `cells`, `idx`, `cifar` and `images` for the picture in a row. All write into `pending`, a file
//! beside the real one that takes its name at the end, or into such a folder.

#[cfg(feature = "parquet")]
mod cells;
pub(crate) mod cifar;
pub(crate) mod delimited;
pub(crate) mod example;
pub(crate) mod idx;
#[cfg(feature = "images")]
pub(crate) mod images;
pub(crate) mod jsonl;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod pending;

use std::path::{Path, PathBuf};

use salamander_core::experiment::{CsvSettings, Separator};

use crate::dialect::Dialect;
use crate::format::names;
use crate::{ColumnInfo, Error, Format, Row};

/// Takes rows one after the other.
pub trait Sink {
    /// Says which columns rows can have, before the first one: formats that fix their columns take these instead of
    /// those of the first rows.
    fn expect(&mut self, _columns: &[ColumnInfo]) -> Result<(), Error> {
        Ok(())
    }

    /// Adds a row; an error names record and column.
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error>;

    /// Writes what is left and gives the file its name. Without this the file is removed.
    fn finish(self: Box<Self>) -> Result<(), Error>;

    /// About how many bytes the file has so far, counting those that are still to be compressed in full.
    fn bytes(&self) -> u64;
}

/// Starts a file, in the place of one that may be there.
///
/// ```
/// use salamander_data::{Format, Row, Value, sink};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("people.csv");
/// let mut sink = sink::create(&path, Format::Csv)?;
/// sink.write(&Row::new(vec![("name".into(), Value::Text("ada"))]))?;
/// sink.finish()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "name\nada\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create(path: &Path, format: Format) -> Result<Box<dyn Sink>, Error> {
    let definition = format.definition();
    match (definition.create, definition.open) {
        (Some(create), _) => {
            Ok(Box::new(PlacedSink { path: path.to_owned(), records: 0, sink: create(path)? }))
        }
        (None, None) => Err(definition.left_out(path)),
        (None, Some(_)) => {
            let written = names(Format::is_written);
            Err(Error::form(path, format!("{format} is read, not written: give {written}")))
        }
    }
}

/// Starts a CSV file with this sign between its cells, or with the one that its name tells.
pub fn create_csv(path: &Path, separator: Option<Separator>) -> Result<Box<dyn Sink>, Error> {
    let told = CsvSettings { separator, ..CsvSettings::default() };
    let sink = delimited::create(path, Dialect::with_header(path).told(&told))?;
    Ok(Box::new(PlacedSink { path: path.to_owned(), records: 0, sink }))
}

/// Names file and record where a format's sink refuses a row.
struct PlacedSink {
    path: PathBuf,
    records: u64,
    sink: Box<dyn Sink>,
}

impl Sink for PlacedSink {
    fn expect(&mut self, columns: &[ColumnInfo]) -> Result<(), Error> {
        self.sink.expect(columns).map_err(|error| error.at(&self.path, None, 0))
    }

    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        self.sink.write(row).map_err(|error| error.at(&self.path, None, self.records))?;
        self.records += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.sink.finish()
    }

    fn bytes(&self) -> u64 {
        self.sink.bytes()
    }
}

#[cfg(test)]
mod tests;
