//! Writes rows to files of any format that can be written, so that any source can be converted.
//!
//! [`create`] picks the [`Sink`]: `example` for RecordIO and TFRecord, `delimited` for CSV, TSV and their kin,
//! `parquet` with its `cells`, `idx`, `cifar` and `images` for the `picture` in a row. All write into `pending`, a file
//! beside the real one that takes its name at the end, or into such a folder.

#[cfg(feature = "parquet")]
mod cells;
mod cifar;
mod delimited;
mod example;
mod idx;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "parquet")]
mod parquet;
mod pending;
mod picture;

use std::path::Path;

use crate::dialect::Dialect;
use crate::{Error, Format, Row};

/// Takes rows one after the other.
pub trait Sink {
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
    let reason = match format {
        Format::RecordIo => return Ok(Box::new(example::recordio(path)?)),
        Format::TfRecord => return Ok(Box::new(example::tfrecord(path)?)),
        Format::Csv | Format::Census | Format::Criteo | Format::MovieLens => {
            let dialect = Dialect::of(format, path);
            return Ok(Box::new(delimited::Delimited::create(path, dialect)?));
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => return Ok(Box::new(parquet::Parquet::create(path)?)),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => "this program was built without parquet".to_owned(),
        Format::Cifar => return Ok(Box::new(cifar::Cifar::create(path)?)),
        Format::Idx => return Ok(Box::new(idx::Idx::create(path)?)),
        #[cfg(feature = "images")]
        Format::ImageFolder => return Ok(Box::new(images::Images::create(path)?)),
        #[cfg(not(feature = "images"))]
        Format::ImageFolder => "this program was built without images".to_owned(),
        Format::Sqlite => {
            "a database is read, not written: give recordio, tfrecord, csv, parquet, idx, cifar or images"
                .to_owned()
        }
    };
    Err(Error::Form { path: path.to_owned(), reason })
}

#[cfg(test)]
mod tests;
