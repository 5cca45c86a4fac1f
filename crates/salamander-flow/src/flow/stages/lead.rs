//! Has the stages of a flow done, one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::ShuffleStage;
use super::cut::{PlanStage, StagedPlan};
use super::exchange::ExchangeFiles;
use crate::flow::Error;
use crate::flow::bad_rows::BadRow;
use crate::flow::job::{FlowJob, TaskRunner};
use crate::flow::records::Records;
use crate::flow::registry::Flows;
use crate::flow::sink::buckets::BucketFile;
use crate::flow::sink::stage::SharedRecords;
use crate::flow::sink::{FlowStage, TaskReport};
use crate::flow::whole::keep_bad_rows;

/// Partitions of a flow in stages. Not the number of processors or of processes: sums of floats depend on it.
const PARTITIONS: usize = 16;

impl FlowJob {
    /// Has all stages done; what the tasks of the last one have left are the flow's rows, in so many buckets.
    pub(crate) fn run_stages(
        &self,
        flows: &Flows,
        records: Option<&Records>,
        buckets: u64,
        staging: &Path,
        runner: &mut dyn TaskRunner,
    ) -> Result<Vec<TaskReport>, Error> {
        let partitions = self.partitions.unwrap_or(PARTITIONS).max(1);
        let rows = self.build_for_stages(flows, records, partitions, self.memory)?;
        let staged = StagedPlan::of(&rows, ExchangeFiles::default())?;
        let told = ShuffleStage {
            job: self.clone(),
            records: records.map(|records| (records.types().clone(), records.len())),
            partitions,
            memory: self.memory_of_task(runner),
            fingerprint: staged.fingerprint,
            number: 0,
            tasks: 0,
            buckets,
            reads: BTreeMap::new(),
            input: records.map(SharedRecords::of).unwrap_or_default(),
        };
        let (mut left, mut bad) = (BTreeMap::new(), Vec::new());
        let mut reports = Vec::new();
        for (number, stage) in staged.stages.iter().enumerate() {
            let before: Vec<BucketFile> =
                reports.drain(..).flat_map(|report: TaskReport| report.buckets).collect();
            if let Some(last) = number.checked_sub(1) {
                left.insert(last, before);
            }
            let reads = reads_of(stage, &mut left);
            let work = ShuffleStage { number, tasks: stage.tasks(), reads, ..told.clone() };
            let reads = work.reads.clone();
            reports = runner.run(&FlowStage::Shuffle(Box::new(work)), staging)?;
            take_bad_rows(&mut reports, staging, &mut bad)?;
            // Nobody reads them again; what cannot be removed goes with the folder.
            for file in reads.values().flatten() {
                let _ = fs::remove_file(staging.join(&file.file));
            }
        }
        keep_bad_rows(bad, &mut reports, staging)?;
        Ok(reports)
    }

    /// Threads of one process share its memory; processes have one task each.
    fn memory_of_task(&self, runner: &dyn TaskRunner) -> Option<usize> {
        let threads = match runner.is_shared() {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        self.memory.map(|bytes| bytes / threads)
    }
}

/// Takes what the stages have left that this one reads: nobody else does.
fn reads_of(
    stage: &PlanStage,
    left: &mut BTreeMap<usize, Vec<BucketFile>>,
) -> BTreeMap<usize, Vec<BucketFile>> {
    let take = |number: &usize| (*number, left.remove(number).unwrap_or_default());
    stage.reads.iter().map(take).collect()
}

/// Rows that tasks have kept aside, out of their files.
fn take_bad_rows(
    reports: &mut [TaskReport],
    staging: &Path,
    bad: &mut Vec<BadRow>,
) -> Result<(), Error> {
    for report in reports {
        report.bad = 0;
        let Some(file) = report.bad_file.take() else { continue };
        let path = staging.join(file);
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        for line in text.lines() {
            let row = serde_json::from_str(line);
            bad.push(row.map_err(|error| Error::step(&path.display().to_string(), error))?);
        }
    }
    Ok(())
}
