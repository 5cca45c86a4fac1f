//! Flows whose rows meet, by tasks: the plan is cut where rows go to other partitions, and each stage leaves files
//! that the next ones read. Every process plans the flow for itself, so nothing but a stage's number and the names of
//! files is told; and since files of tasks that count are read in the order of the tasks, results do not depend on who
//! did them, to the last bit of a sum.
//!
//! # Layout
//! - `cut`: the stages of a plan; `exchange`: rows in files between them
//! - [`ShuffleStage`]: the work of a stage; `lead`: one stage after the other

mod cut;
mod exchange;
mod lead;

use std::collections::BTreeMap;
use std::path::Path;

use salamander_data::types::Types;
use serde::{Deserialize, Serialize};

use self::cut::StagedPlan;
use self::exchange::ExchangeFiles;
pub(crate) use self::exchange::ExchangeWriter;
use crate::flow::Error;
use crate::flow::context::EngineSettings;
use crate::flow::job::FlowJob;
use crate::flow::records::Records;
use crate::flow::registry::Flows;
use crate::flow::sink::TaskReport;
use crate::flow::sink::buckets::{BucketFile, BucketFiles};
use crate::flow::sink::stage::SharedRecords;
use crate::flow::tset::TSet;
use crate::flow::whole::{PartitionWriter, SinkBuckets, write_partitions};

/// A stage of a flow whose rows meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShuffleStage {
    pub(crate) job: FlowJob,
    /// The types of the input's columns and the number of its records, if the flow has input.
    pub(crate) records: Option<(Types, u64)>,
    pub(crate) partitions: usize,
    /// What a task may take for sorts and groups.
    pub(crate) memory: Option<usize>,
    /// Of the plan that this process must have too.
    pub(crate) fingerprint: String,
    pub(crate) number: usize,
    pub(crate) tasks: u64,
    /// Buckets of the sink, for the last stage.
    pub(crate) buckets: u64,
    /// What the stages have left that this one reads.
    pub(crate) reads: BTreeMap<usize, Vec<BucketFile>>,
    /// The input, once a task of this process has opened it.
    #[serde(skip)]
    pub(crate) input: SharedRecords,
}

impl ShuffleStage {
    pub(crate) fn run(
        &self,
        flows: &Flows,
        task: u64,
        folder: &Path,
        name: &str,
    ) -> Result<TaskReport, Error> {
        let records = match &self.records {
            Some((types, count)) => Some(self.input.of_job(&self.job, types, *count)?),
            None => None,
        };
        let rows =
            self.job.build_for_stages(flows, records.as_ref(), self.partitions, self.memory)?;
        let files = ExchangeFiles { folder: folder.to_path_buf(), stages: self.reads.clone() };
        let staged = StagedPlan::of(&rows, files)?;
        let stage = staged.stages.get(self.number);
        let Some(stage) = stage.filter(|_| staged.fingerprint == self.fingerprint) else {
            return Err(Error::Invalid(
                "this process has planned the flow otherwise than the one that leads: what processes share must \
                 follow from parameters and files alone, not from the time or from chance"
                    .to_string(),
            ));
        };
        // Tasks of all stages write to one folder.
        let name = format!("stage-{:02}-{name}", self.number);
        let sink = SinkBuckets::new(rows.schema(), &self.job, self.buckets)?;
        let writer = |partition: usize| {
            let name = format!("{name}-{partition:05}");
            let Some(routing) = &stage.routing else { return sink.writer(folder, &name) };
            let files = BucketFiles::new(folder, &name, &stage.plan.schema());
            let writer = ExchangeWriter::new(files, routing, partition, stage.partitions())?;
            Ok(PartitionWriter::Exchange(writer))
        };
        let (cx, of_task) = (&rows.cx, stage.of_task(task));
        let left = write_partitions(cx, &stage.plan, of_task, &writer, &|| false)?;
        let mut report = TaskReport::of_buckets(left.concat());
        report.add_bad(&rows.cx.bad.take(), folder, &name)?;
        Ok(report)
    }
}

impl FlowJob {
    /// The flow, planned for stages: in the process that leads, which has built it before, and in every task.
    fn build_for_stages(
        &self,
        flows: &Flows,
        records: Option<&Records>,
        partitions: usize,
        memory: Option<usize>,
    ) -> Result<TSet, Error> {
        let partitions = Some(partitions);
        let engine = EngineSettings { partitions, memory, spill: None, in_stages: true };
        self.build(flows, &self.context(records, &engine)?.built_again())
    }
}
