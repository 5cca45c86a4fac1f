//! Rows as `tf.train.Example` in RecordIO or TFRecord.

use std::path::{Path, PathBuf};

use super::Sink;
use super::pending::{Count, Pending};
use crate::recordio::{self, RECORD_COLUMN};
use crate::{Error, Row, Value, example, tfrecord};

/// Bytes of a chunk before compression: shuffled reading decodes a whole chunk for each record, so chunks
/// are kept far below what the format allows.
const CHUNK_BYTES: usize = 1 << 20;

/// A file of examples.
struct Examples<W> {
    path: PathBuf,
    count: Count,
    /// What the count was when bytes came through last, and what was handed in since.
    seen: u64,
    waiting: u64,
    frames: W,
}

/// The frame that a format puts around records.
trait Frames {
    fn write(&mut self, record: &[u8]) -> Result<(), String>;
    fn finish(self) -> Result<Pending, String>;
}

pub(crate) fn recordio(path: &Path) -> Result<Box<dyn Sink>, Error> {
    let options = recordio::WriterOptions { max_chunk_bytes: CHUNK_BYTES, ..Default::default() };
    create(path, |out| recordio::Writer::new(out, options))
}

pub(crate) fn tfrecord(path: &Path) -> Result<Box<dyn Sink>, Error> {
    create(path, tfrecord::TfRecordWriter::new)
}

fn create<W: Frames + 'static>(
    path: &Path,
    frame: impl FnOnce(Pending) -> W,
) -> Result<Box<dyn Sink>, Error> {
    let out = Pending::create(path)?;
    let count = out.count();
    let path = path.to_owned();
    Ok(Box::new(Examples { path, count, seen: 0, waiting: 0, frames: frame(out) }))
}

impl<W: Frames> Sink for Examples<W> {
    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        if row.columns().len() == 0 {
            let reason = "no columns, which an example cannot tell from damage";
            return Err(Error::Rejected(reason.to_owned()));
        }
        let encoded;
        let record = match plain(row) {
            Some(record) => record,
            None => {
                encoded = example::encode(row);
                &encoded[..]
            }
        };
        self.frames.write(record).map_err(Error::Rejected)?;
        let now = self.count.get();
        self.waiting = if now > self.seen { 0 } else { self.waiting + record.len() as u64 };
        self.seen = now;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Examples { path, frames, .. } = *self;
        frames.finish().map_err(|reason| Error::form(path, reason))?.commit()
    }

    fn bytes(&self) -> u64 {
        self.seen + self.waiting
    }
}

/// The bytes of a record that was no example and will be read as none: it is written as it was.
fn plain<'a>(row: &Row<'a>) -> Option<&'a [u8]> {
    let mut columns = row.columns();
    match (columns.next(), columns.next()) {
        (Some((RECORD_COLUMN, &Value::Bytes(bytes))), None) => {
            (example::row(bytes) == *row).then_some(bytes)
        }
        _ => None,
    }
}

impl Frames for recordio::Writer<Pending> {
    fn write(&mut self, record: &[u8]) -> Result<(), String> {
        recordio::Writer::write(self, record).map_err(|error| match error {
            recordio::writer::Error::TooLarge { bytes, .. } => {
                let most = recordio::MAX_RECORD_BYTES;
                format!("{bytes} bytes, but recordio takes records below {most}")
            }
            recordio::writer::Error::Io { cause, .. } => format!("cannot write: {cause}"),
        })
    }

    fn finish(self) -> Result<Pending, String> {
        recordio::Writer::finish(self).map_err(|error| error.to_string())
    }
}

impl Frames for tfrecord::TfRecordWriter<Pending> {
    fn write(&mut self, record: &[u8]) -> Result<(), String> {
        tfrecord::TfRecordWriter::write(self, record)
            .map_err(|error| format!("cannot write: {error}"))
    }

    fn finish(self) -> Result<Pending, String> {
        tfrecord::TfRecordWriter::finish(self).map_err(|error| format!("cannot write: {error}"))
    }
}
