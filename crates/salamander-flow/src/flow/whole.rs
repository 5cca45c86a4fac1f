//! Runs a flow whose rows meet: DataFusion has all of it, and each of its partitions puts rows into buckets.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::try_join_all;

use super::Error;
use super::bad_rows::SOURCE;
use super::cells::WrittenColumns;
use super::job::FlowJob;
use super::sink::TaskReport;
use super::sink::buckets::BucketWriter;
use super::tset::TSet;

/// Runs it, and tells what each partition has left.
pub(crate) fn run(
    rows: &TSet,
    job: &FlowJob,
    buckets: u64,
    staging: &Path,
) -> Result<Vec<TaskReport>, Error> {
    let columns = Arc::new(WrittenColumns::new(rows.schema(), job.sink.format()?)?);
    let bucketing = job.bucketing(buckets);
    let runtime = &rows.cx.runtime;
    let partitions = runtime.block_on(rows.frame.clone().execute_stream_partitioned())?;
    let mut tasks = Vec::new();
    for (number, mut partition) in partitions.into_iter().enumerate() {
        let name = format!("whole-{number:05}");
        let mut writer = BucketWriter::new(staging, &name, &columns.schema, &bucketing)?;
        let columns = Arc::clone(&columns);
        tasks.push(runtime.spawn(async move {
            while let Some(batch) = partition.next().await {
                writer.write(&columns.apply(&batch?)?)?;
            }
            writer.finish()
        }));
    }
    let finished = runtime.block_on(try_join_all(tasks));
    let finished =
        finished.map_err(|error| Error::Invalid(format!("a thread has ended: {error}")))?;
    let mut reports = Vec::with_capacity(finished.len());
    for buckets in finished {
        let buckets = buckets?;
        let rows = buckets.iter().map(|file| file.rows).sum();
        reports.push(TaskReport { rows, buckets, ..TaskReport::default() });
    }
    // In no order of their own, so they get one.
    let mut bad = rows.cx.bad.take();
    bad.sort_by_cached_key(|row| serde_json::json!(row).to_string());
    // A flow that reads its input twice meets what is broken twice; the place tells that it is the same record.
    bad.dedup_by(|row, before| row.step == SOURCE && row == before);
    if let Some(first) = reports.first_mut() {
        first.add_bad(&bad, staging, "whole")?;
    }
    Ok(reports)
}
