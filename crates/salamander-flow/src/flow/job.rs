//! A flow with its input and its output: what is planned, told to other processes, and run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use salamander_data::Format;
use salamander_files::{LockedFolder, raise_open_files};
use serde::{Deserialize, Serialize};

use super::Error;
use super::context::{EngineSettings, FlowContext};
use super::records::Records;
use super::registry::Flows;
use super::shape::{FlowShape, depends_on_order};
use super::sink::assemble::{StageReports, assemble, sort_stage};
use super::sink::stage::{MapStage, SharedRecords};
use super::sink::{FlowStage, FlowSummary, SinkSettings, TaskReport};
use super::tset::TSet;
use super::whole;

/// The fewest records of a task where shards do not say how many there are.
const TASK_RECORDS: u64 = 8192;
/// The most such tasks: each of them leaves a file for each shard.
const MOST_TASKS: u64 = 256;

/// The file of a staging folder that says whether somebody is at work there.
const LOCK: &str = "lock";

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowCall {
    /// A function of the program, by name.
    Named(String),
    /// SQL, in which the input is the table `input`.
    Sql(String),
}

/// A flow with its input and its output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowJob {
    /// What is run.
    pub call: FlowCall,
    /// Files, folders, patterns or addresses; none for flows that have sources of their own.
    pub inputs: Vec<String>,
    /// Their format, where names do not tell it.
    pub format: Option<String>,
    /// What the flow asks for.
    pub parameters: BTreeMap<String, String>,
    /// What is written.
    pub sink: SinkSettings,
    /// Bytes that sorts, groups and joins may take, in each process.
    pub memory: Option<usize>,
    /// Partitions of a flow whose rows meet [default: 16 for a flow in stages, otherwise the number of processors].
    /// They change no row of the output, but for the last bits of sums of floats.
    pub partitions: Option<usize>,
}

/// Does the tasks of a stage, each once.
pub trait TaskRunner {
    /// Whether processes share the work, so that everything must be told in tasks.
    fn is_shared(&self) -> bool;

    /// Reports of all tasks, in their order. Files go to the folder.
    fn run(&mut self, stage: &FlowStage, folder: &Path) -> Result<Vec<TaskReport>, Error>;

    /// The same; `each` gets the reports as they come, in the order of the tasks.
    fn run_each(
        &mut self,
        stage: &FlowStage,
        folder: &Path,
        each: &mut dyn FnMut(&TaskReport) -> Result<(), Error>,
    ) -> Result<Vec<TaskReport>, Error> {
        let reports = self.run(stage, folder)?;
        reports.iter().try_for_each(each)?;
        Ok(reports)
    }

    /// Whether all is to end early; asked while something runs that is none of its tasks.
    fn is_stopped(&self) -> bool {
        false
    }
}

impl FlowJob {
    /// A flow of the program on some files, which writes as by default.
    pub fn named(flow: &str, inputs: &[&str]) -> Self {
        Self {
            call: FlowCall::Named(flow.to_string()),
            inputs: inputs.iter().map(ToString::to_string).collect(),
            format: None,
            parameters: BTreeMap::new(),
            sink: SinkSettings::default(),
            memory: None,
            partitions: None,
        }
    }

    /// [`FlowJob::run`] in this process, on all of its processors.
    pub fn run_here(&self, flows: &Flows, out: &Path) -> Result<FlowSummary, Error> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (stop, progress) = (AtomicBool::new(false), |_, _| {});
        self.run(flows, out, &mut TaskThreads { flows, threads, stop: &stop, progress: &progress })
    }

    /// The format of the input.
    pub(crate) fn format(&self) -> Result<Option<Format>, Error> {
        let parse =
            |name: &String| name.parse().map_err(|error| Error::Invalid(format!("{error}")));
        self.format.as_ref().map(parse).transpose()
    }

    /// Builds the flow.
    pub fn build(&self, flows: &Flows, cx: &FlowContext) -> Result<TSet, Error> {
        match &self.call {
            FlowCall::Named(name) => flows.find(name)?(cx),
            FlowCall::Sql(query) => {
                cx.register_input()?;
                cx.sql(query)
            }
        }
    }

    /// The input, if the flow has one.
    pub fn records(&self) -> Result<Option<Records>, Error> {
        if self.inputs.is_empty() {
            return Ok(None);
        }
        Records::open(&self.inputs, self.format()?).map(Some)
    }

    /// A context with all of the input.
    pub fn context(
        &self,
        records: Option<&Records>,
        engine: &EngineSettings,
    ) -> Result<FlowContext, Error> {
        let cx = FlowContext::new(engine)?.with_parameters(self.parameters.clone());
        Ok(match records {
            Some(records) => cx.with_input(records.clone(), 0..records.len()),
            None => cx,
        })
    }

    /// Runs the flow and writes its rows to a folder, which is there in the end completely or not at all.
    pub fn run(
        &self,
        flows: &Flows,
        out: &Path,
        runner: &mut dyn TaskRunner,
    ) -> Result<FlowSummary, Error> {
        self.sink.check()?;
        if out.exists() {
            let reason = format!(
                "{}: is there already: remove it, or write to another folder",
                out.display()
            );
            return Err(Error::Invalid(reason));
        }
        let records = self.records()?;
        let (memory, partitions) = (self.memory, self.partitions);
        let engine = EngineSettings { memory, partitions, ..EngineSettings::default() };
        let cx = self.context(records.as_ref(), &engine)?;
        let rows = self.build(flows, &cx)?;
        self.sink.check_columns(rows.schema())?;
        // A shard is an open file for each who writes rows to it.
        raise_open_files();
        let staging = staging_folder(out)?;
        let place = staging.path();
        let left = match (FlowShape::of(&rows)?, &records) {
            (FlowShape::Map, Some(records)) => self.run_tasks(records, place, runner)?,
            (_, records) => {
                let buckets = self.sink.shard_count(None);
                // DataFusion's own threads bring rows together in an order of chance.
                let mapped = if runner.is_shared() || depends_on_order(&rows)? {
                    self.run_stages(flows, records.as_ref(), buckets, place, runner)?
                } else {
                    whole::run(&rows, self, buckets, place, &|| runner.is_stopped())?
                };
                // Shards are sorted, since no other order would be the same every time.
                let sorted = self.sort(buckets, &mapped, place, runner)?;
                StageReports { mapped, sorted: Some(sorted) }
            }
        };
        assemble(self, place, out, &left)
    }

    /// Tasks on ranges of the input: as many as shards, or of a fixed size where rows are shuffled.
    fn run_tasks(
        &self,
        records: &Records,
        staging: &Path,
        runner: &mut dyn TaskRunner,
    ) -> Result<StageReports, Error> {
        let shards = self.sink.shard_count(Some(records.len()));
        let buckets = self.sink.is_shuffled().then_some(shards);
        let tasks = match buckets {
            Some(_) => shuffle_tasks(records.len()),
            None => shards,
        };
        let input = SharedRecords::of(records);
        let (job, types, records) = (self.clone(), records.types().clone(), records.len());
        let first = 0;
        let stage = MapStage { job, types, records, tasks, first, buckets, input };
        let stage = FlowStage::Map(stage);
        let mapped = runner.run(&stage, staging)?;
        let sorted = buckets.map(|buckets| self.sort(buckets, &mapped, staging, runner));
        Ok(StageReports { sorted: sorted.transpose()?, mapped })
    }

    fn sort(
        &self,
        buckets: u64,
        mapped: &[TaskReport],
        staging: &Path,
        runner: &mut dyn TaskRunner,
    ) -> Result<Vec<TaskReport>, Error> {
        runner.run(&FlowStage::Sort(sort_stage(self, buckets, mapped)?), staging)
    }
}

/// In how many tasks records are put into buckets.
fn shuffle_tasks(records: u64) -> u64 {
    let of_a_task = TASK_RECORDS.max(records.div_ceil(MOST_TASKS));
    records.div_ceil(of_a_task).max(1)
}

/// Does tasks on threads of this process.
pub struct TaskThreads<'a> {
    /// The program's flows.
    pub flows: &'a Flows,
    /// So many tasks at a time.
    pub threads: usize,
    /// Set by whoever wants it to end early.
    pub stop: &'a AtomicBool,
    /// Told how many tasks are done, of how many.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl TaskRunner for TaskThreads<'_> {
    fn is_shared(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self, stage: &FlowStage, folder: &Path) -> Result<Vec<TaskReport>, Error> {
        self.run_each(stage, folder, &mut |_| Ok(()))
    }

    fn run_each(
        &mut self,
        stage: &FlowStage,
        folder: &Path,
        each: &mut dyn FnMut(&TaskReport) -> Result<(), Error>,
    ) -> Result<Vec<TaskReport>, Error> {
        let (tasks, next, done) = (stage.tasks(), AtomicU64::new(0), AtomicU64::new(0));
        let work = |sender: Sender<(u64, Result<TaskReport, Error>)>| {
            while !self.stop.load(Ordering::Relaxed) {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    return;
                }
                let name = format!("{}-{task:06}", stage.word());
                let report = stage.run(self.flows, task, folder, &name);
                match report {
                    Ok(_) => (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, tasks),
                    Err(_) => next.store(tasks, Ordering::Relaxed),
                }
                // Who takes them waits until all threads have ended.
                let _ = sender.send((task, report));
            }
        };
        let (sender, reports) = channel();
        let (mut early, mut in_order, mut failed) = (BTreeMap::new(), Vec::new(), None);
        std::thread::scope(|scope| {
            let work = &work;
            for sender in vec![sender; self.threads.max(1)] {
                scope.spawn(move || work(sender));
            }
            for (task, report) in reports {
                match report {
                    Ok(report) => {
                        early.insert(task, report);
                    }
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
                while let Some(report) = early.remove(&(in_order.len() as u64)) {
                    if failed.is_none()
                        && let Err(error) = each(&report)
                    {
                        next.store(tasks, Ordering::Relaxed);
                        failed = Some(error);
                    }
                    in_order.push(report);
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None if (in_order.len() as u64) < tasks => Err(Error::Interrupted),
            None => Ok(in_order),
        }
    }
}

impl FlowStage {
    /// How the files of its tasks begin.
    pub fn word(&self) -> &'static str {
        match self {
            FlowStage::Map(_) => "map",
            FlowStage::Shuffle(_) => "shuffle",
            FlowStage::Sort(_) => "sort",
        }
    }
}

/// The folder that tasks write to, beside the output; removed in the end.
pub(crate) fn staging_folder(out: &Path) -> Result<LockedFolder, Error> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(Error::io(parent))?;
    let parent = fs::canonicalize(parent).map_err(Error::io(parent))?;
    LockedFolder::create(&parent, &format!(".{name}.flow-"), LOCK).map_err(Error::io(&parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_a_bounded_number_of_tasks() {
        let check = |records, expected| assert_eq!(shuffle_tasks(records), expected, "{records}");
        check(0, 1);
        check(8192, 1);
        check(8193, 2);
        check(256 * 8192, 256);
        check(256 * 8192 + 1, 256);
        check(10_000_000_000, 256);
    }
}
