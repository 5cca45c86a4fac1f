//! A whole file as Arrow's record batches, the fast path for those who want columns and not rows.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::source::ParquetBytes;
use crate::Error;
use crate::guard::guard;

/// The batches of a file in order; after an error there are no more.
pub struct Batches {
    pub(super) path: PathBuf,
    pub(super) source: ParquetBytes,
    pub(super) reader: Option<ParquetRecordBatchReader>,
    /// How many records came so far.
    pub(super) record: u64,
}

impl Batches {
    /// A failure of the system if there was one, else damage at the next record.
    pub(super) fn failed(&self, chunk: Option<usize>, reason: String) -> Error {
        let path = self.path.clone();
        match self.source.take_failure() {
            Some(cause) => Error::Io { path, cause },
            None => Error::Record { path, chunk, record: self.record, reason },
        }
    }

    /// The next batch; a panic of the decoder is an error.
    pub(super) fn advance(&mut self) -> Option<Result<RecordBatch, String>> {
        let reader = self.reader.as_mut()?;
        let next = match guard(|| reader.next()) {
            Ok(next) => next.map(|batch| batch.map_err(|error| error.to_string())),
            Err(panic) => Some(Err(panic)),
        };
        match &next {
            Some(Ok(batch)) => self.record += batch.num_rows() as u64,
            _ => self.reader = None,
        }
        next
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Result<RecordBatch, Error>> {
        let next = self.advance()?;
        Some(next.map_err(|reason| self.failed(None, reason)))
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("path", &self.path).finish_non_exhaustive()
    }
}
