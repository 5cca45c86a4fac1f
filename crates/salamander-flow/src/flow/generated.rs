//! Rows that a function makes, partition by partition.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;

use super::Error;
use super::error::external;
use super::typed::{FlowRow, batch_of};

/// Rows of a batch.
const BATCH: usize = 4096;
/// Batches that wait.
const AHEAD: usize = 2;

/// One partition of rows from a function.
pub(crate) struct GeneratedPart<F> {
    name: String,
    schema: SchemaRef,
    partition: usize,
    rows: Arc<F>,
}

impl<T, I, F> GeneratedPart<F>
where
    T: FlowRow,
    I: Iterator<Item = T> + Send + 'static,
    F: Fn(usize) -> I + Send + Sync + 'static,
{
    pub(crate) fn table(
        name: &str,
        columns: Vec<FieldRef>,
        partitions: usize,
        rows: Arc<F>,
    ) -> Result<StreamingTable, Error> {
        let schema = Arc::new(Schema::new(columns));
        let part = |partition| {
            let (name, schema, rows) = (name.to_string(), Arc::clone(&schema), Arc::clone(&rows));
            Arc::new(Self { name, schema, partition, rows }) as Arc<dyn PartitionStream>
        };
        Ok(StreamingTable::try_new(Arc::clone(&schema), (0..partitions).map(part).collect())?)
    }
}

impl<F> fmt::Debug for GeneratedPart<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} part {}", self.name, self.partition)
    }
}

impl<T, I, F> PartitionStream for GeneratedPart<F>
where
    T: FlowRow,
    I: Iterator<Item = T> + Send + 'static,
    F: Fn(usize) -> I + Send + Sync + 'static,
{
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&schema), AHEAD);
        let (sender, name) = (builder.tx(), self.name.clone());
        let (rows, partition) = (Arc::clone(&self.rows), self.partition);
        builder.spawn_blocking(move || -> EngineResult<()> {
            let mut rows = rows(partition);
            loop {
                let some: Vec<T> = rows.by_ref().take(BATCH).collect();
                let batch = batch_of(&name, &schema, &some).map_err(external);
                if some.is_empty() || sender.blocking_send(batch).is_err() {
                    return Ok(());
                }
            }
        });
        builder.build()
    }
}
