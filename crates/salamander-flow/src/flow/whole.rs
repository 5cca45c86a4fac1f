//! Runs a flow whose rows meet in this process alone: DataFusion has all of it, and each of its partitions puts rows
//! into buckets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::Error;
use super::bad_rows::{BadRow, SOURCE};
use super::cells::WrittenColumns;
use super::context::FlowContext;
use super::job::FlowJob;
use super::sink::TaskReport;
use super::sink::buckets::{BucketFile, BucketWriter, Bucketing};
use super::stages::ExchangeWriter;
use super::tset::TSet;

/// How often the wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Runs it, unless it is stopped, and tells what each partition has left.
pub(crate) fn run(
    rows: &TSet,
    job: &FlowJob,
    buckets: u64,
    staging: &Path,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<TaskReport>, Error> {
    let plan = rows.cx.runtime.block_on(rows.frame.create_physical_plan())?;
    let partitions = 0..plan.properties().output_partitioning().partition_count();
    let sink = SinkBuckets::new(rows.schema(), job, buckets)?;
    let writer = |number: usize| sink.writer(staging, &format!("whole-{number:05}"));
    let left = write_partitions(&rows.cx, &plan, partitions, &writer, is_stopped)?;
    let mut reports: Vec<TaskReport> = left.into_iter().map(TaskReport::of_buckets).collect();
    keep_bad_rows(rows.cx.bad.take(), &mut reports, staging)?;
    Ok(reports)
}

/// How rows that leave a flow are put into buckets.
pub(crate) struct SinkBuckets {
    columns: Arc<WrittenColumns>,
    bucketing: Bucketing,
}

impl SinkBuckets {
    pub(crate) fn new(schema: &Schema, job: &FlowJob, buckets: u64) -> Result<Self, Error> {
        let columns = Arc::new(WrittenColumns::new(schema, job.sink.format()?)?);
        Ok(Self { columns, bucketing: job.bucketing(buckets) })
    }

    /// Writes files whose names begin with this one.
    pub(crate) fn writer(&self, folder: &Path, name: &str) -> Result<PartitionWriter, Error> {
        let writer = BucketWriter::new(folder, name, &self.columns.schema, &self.bucketing)?;
        Ok(PartitionWriter::Sink(writer, Arc::clone(&self.columns)))
    }
}

/// Where the rows of a partition go.
pub(crate) enum PartitionWriter {
    /// Out of the flow.
    Sink(BucketWriter, Arc<WrittenColumns>),
    /// To the next stage.
    Exchange(ExchangeWriter),
}

impl PartitionWriter {
    fn write(&mut self, batch: RecordBatch) -> Result<(), Error> {
        match self {
            PartitionWriter::Sink(writer, columns) => writer.write(&columns.apply(&batch)?),
            PartitionWriter::Exchange(writer) => writer.write(batch),
        }
    }

    fn finish(self) -> Result<Vec<BucketFile>, Error> {
        match self {
            PartitionWriter::Sink(writer, _) => writer.finish(),
            PartitionWriter::Exchange(writer) => writer.finish(),
        }
    }
}

/// Works on some partitions of a plan at the same time, and tells what each has left, in their order. Asked to stop,
/// it ends when nobody writes any more.
pub(crate) fn write_partitions(
    cx: &FlowContext,
    plan: &Arc<dyn ExecutionPlan>,
    partitions: Range<usize>,
    writer: &dyn Fn(usize) -> Result<PartitionWriter, Error>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<Vec<BucketFile>>, Error> {
    let context = cx.session.task_ctx();
    let mut tasks = JoinSet::new();
    for partition in partitions {
        let writer = writer(partition)?;
        let work = write_partition(Arc::clone(plan), partition, Arc::clone(&context), writer);
        tasks.spawn_on(async move { (partition, work.await) }, cx.runtime.handle());
    }
    let finished = cx.runtime.block_on(async {
        let mut finished = BTreeMap::new();
        let why = loop {
            match timeout(LOOK, tasks.join_next()).await {
                Ok(None) => return Ok(finished),
                Ok(Some(Ok((partition, left)))) => {
                    finished.insert(partition, left);
                }
                Ok(Some(Err(error))) => {
                    break Error::Invalid(format!("a thread has ended: {error}"));
                }
                Err(_) if is_stopped() => break Error::Interrupted,
                Err(_) => {}
            }
        };
        tasks.shutdown().await;
        Err(why)
    })?;
    finished.into_values().collect()
}

async fn write_partition(
    plan: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
    mut writer: PartitionWriter,
) -> Result<Vec<BucketFile>, Error> {
    let mut rows = plan.execute(partition, context)?;
    while let Some(batch) = rows.next().await {
        writer.write(batch?)?;
        // A source that is always ready would never let it be ended.
        yield_now().await;
    }
    writer.finish()
}

/// Gives rows that were kept aside to the first of some reports. They came in no order of their own, so they get one.
pub(crate) fn keep_bad_rows(
    mut bad: Vec<BadRow>,
    reports: &mut [TaskReport],
    staging: &Path,
) -> Result<(), Error> {
    bad.sort_by_cached_key(|row| serde_json::json!(row).to_string());
    // A flow that reads its input twice meets what is broken twice; the place tells that it is the same record.
    bad.dedup_by(|row, before| row.step == SOURCE && row == before);
    match reports.first_mut() {
        Some(first) => first.add_bad(&bad, staging, "whole"),
        None => Ok(()),
    }
}
