//! Records of every format of ours as a table: cut into ranges, read as they are needed, with broken records kept
//! aside.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use salamander_data::types::Types;
use salamander_data::{Dataset, Format, open};
use serde_json::Value as Json;

use super::Error;
use super::bad_rows::{BadRow, BadRows, SOURCE};
use super::cells::{BatchBuilder, schema_of};
use super::error::external;

/// Records of a batch. Not a setting: shards must not depend on one.
const BATCH: u64 = 4096;
/// Batches that wait for whoever takes them.
const AHEAD: usize = 2;

/// Files of records with the types of their columns; cheap to clone.
#[derive(Clone)]
pub struct Records {
    dataset: Arc<Dataset>,
    types: Arc<Types>,
    schema: SchemaRef,
}

impl Records {
    /// Opens files, folders, patterns or addresses. Columns of formats that do not tell their types are read once.
    pub fn open(places: &[String], format: Option<Format>) -> Result<Self, Error> {
        let dataset = opened(places, format)?;
        let types = Types::infer_from_good(&dataset, Format::Parquet)?;
        Ok(Self::new(dataset, types))
    }

    /// [`Records::open`] for who knows the types already, as another process has told.
    pub fn open_typed(
        places: &[String],
        format: Option<Format>,
        types: Types,
    ) -> Result<Self, Error> {
        Ok(Self::new(opened(places, format)?, types))
    }

    fn new(dataset: Dataset, types: Types) -> Self {
        let schema = schema_of(types.columns());
        Self { dataset: Arc::new(dataset), types: Arc::new(types), schema }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.dataset.len()
    }

    /// What tells them from others, as far as that can be seen by looking at a few.
    pub(crate) fn identity(&self) -> u64 {
        self.dataset.identity()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.dataset.is_empty()
    }

    /// The types of the columns.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// A range of records as a table of so many partitions.
    pub(crate) fn table(
        &self,
        range: Range<u64>,
        partitions: usize,
        bad: &BadRows,
    ) -> Result<StreamingTable, Error> {
        let parts = cut(range, partitions as u64).map(|range| {
            let (records, bad) = (self.clone(), bad.clone());
            Arc::new(RecordRange { records, range, bad }) as Arc<dyn PartitionStream>
        });
        Ok(StreamingTable::try_new(Arc::clone(&self.schema), parts.collect())?)
    }

    /// Reads a few records; those that are broken are kept aside.
    fn batch(&self, range: Range<u64>, bad: &BadRows) -> Result<RecordBatch, Error> {
        let mut batch = BatchBuilder::new(self.types.columns(), Arc::clone(&self.schema));
        let indices: Vec<u64> = range.clone().collect();
        let mut refused = Vec::new();
        let read = self.dataset.read(&indices, &mut |position, row| {
            if let Err(reason) = batch.add(&self.types.apply(&row)) {
                refused.push((indices[position], reason));
            }
            Ok(())
        });
        if read.is_err() {
            return self.one_by_one(range, bad);
        }
        refused.into_iter().for_each(|(record, reason)| self.refuse(record, reason, bad));
        batch.take()
    }

    /// For a batch that holds something broken: only that is left out.
    fn one_by_one(&self, range: Range<u64>, bad: &BadRows) -> Result<RecordBatch, Error> {
        let mut batch = BatchBuilder::new(self.types.columns(), Arc::clone(&self.schema));
        for record in range {
            let read = self.dataset.read(&[record], &mut |_, row| {
                batch.add(&self.types.apply(&row)).map_err(salamander_data::Error::Rejected)
            });
            match read {
                Ok(()) => {}
                // No fault of the record: a disk or a store that fails, or a file that is another one by now.
                Err(error) if !error.is_bad_data() => return Err(error.into()),
                Err(error) => self.refuse(record, error.to_string(), bad),
            }
        }
        batch.take()
    }

    fn refuse(&self, record: u64, reason: String, bad: &BadRows) {
        let row = Json::String(self.dataset.describe(record));
        bad.add(BadRow { step: SOURCE.to_string(), reason, row });
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of {} files", self.len(), self.dataset.shards().len())
    }
}

fn opened(places: &[String], format: Option<Format>) -> Result<Dataset, Error> {
    let places: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    Ok(Dataset::new(Arc::from(open(&places, format)?))?)
}

/// A range in so many pieces of about the same length; never none.
pub(crate) fn cut(range: Range<u64>, pieces: u64) -> impl Iterator<Item = Range<u64>> {
    let (pieces, length) = (pieces.max(1), range.end - range.start);
    let at = move |piece: u64| {
        range.start + (u128::from(length) * u128::from(piece) / u128::from(pieces)) as u64
    };
    (0..pieces).map(move |piece| at(piece)..at(piece + 1))
}

/// One partition.
#[derive(Debug)]
struct RecordRange {
    records: Records,
    range: Range<u64>,
    bad: BadRows,
}

impl PartitionStream for RecordRange {
    fn schema(&self) -> &SchemaRef {
        &self.records.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.records.schema);
        let mut builder = RecordBatchReceiverStreamBuilder::new(schema, AHEAD);
        let (sender, records) = (builder.tx(), self.records.clone());
        let (range, bad) = (self.range.clone(), self.bad.clone());
        // Files block, so they are read on a thread of their own.
        builder.spawn_blocking(move || -> EngineResult<()> {
            for start in range.clone().step_by(BATCH as usize) {
                let batch = records.batch(start..range.end.min(start + BATCH), &bad);
                // Whoever has enough does not wait for the rest.
                if sender.blocking_send(batch.map_err(external)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_evenly_and_lose_nothing() {
        let check = |range: Range<u64>, pieces, expected: &[Range<u64>]| {
            assert_eq!(cut(range, pieces).collect::<Vec<_>>(), expected);
        };
        check(0..10, 3, &[0..3, 3..6, 6..10]);
        check(5..7, 4, &[5..5, 5..6, 6..6, 6..7]);
        check(0..0, 0, &[0..0]);
    }
}
