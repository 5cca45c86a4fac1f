//! Evaluation, prediction and flows by several workers: work in tasks that are leased, so that each counts exactly
//! once, whoever is killed. This process leads, and is the parent of the workers.

mod job;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_core::report::TaskResult;
use salamander_master::local::{LocalPlatform, LocalRole};
use salamander_master::{Config, ModePlan, PlatformKind, Sink, TaskPlan};
use salamander_proto::client::SessionOptions;
use salamander_train::evaluate::batches;
use tokio::sync::oneshot;

use crate::Error;
use crate::keys::ensure_keys;
use crate::roles::{Duty, Processes, runtime};
use crate::trained::{OpenedFiles, Predicted, TrainedFiles};
use job::TaskJob;

#[cfg(feature = "flow")]
pub(crate) use job::part_name;
pub(crate) use job::{ModelUse, Scratch};

/// How often somebody else's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Several tasks per worker, so that a slow one does not hold up the end,
const TASKS_PER_WORKER: u64 = 4;
/// and not too many batches in one, because a killed worker's task begins anew.
const MOST_BATCHES: u64 = 64;
/// How long a worker may take for a batch. Only the last resort: who dies or falls silent is noticed at once.
const PER_BATCH: Duration = Duration::from_secs(120);
const AT_LEAST: Duration = Duration::from_secs(600);

/// Who shares an evaluation, a prediction or a flow, and who hears of it.
pub struct Sharing<'a> {
    /// So many processes.
    pub workers: u32,
    /// Set by whoever wants it to end early.
    pub stop: &'a AtomicBool,
    /// Told how far it is.
    pub watch: &'a mut dyn FnMut(TaskEvent),
}

/// How far work is that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskEvent {
    /// It has so many tasks.
    Planned(u64),
    /// One more is done.
    Done,
    /// Something that people may want to know.
    Note(String),
}

/// Has a trained model used on all records of some files. `each` gets the files of the parts in the order of the
/// records.
pub(crate) fn run(
    work: ModelUse,
    found: &TrainedFiles,
    data: OpenedFiles,
    sharing: &mut Sharing<'_>,
    each: &mut dyn FnMut(&Path) -> Result<(), Error>,
) -> Result<Predicted, Error> {
    let experiment = &found.experiment;
    let OpenedFiles { files, dataset } = data;
    let job = TaskJob::new(work, found, files, &dataset);
    let scratch = Scratch::create(&job.folder)?;
    job.write(scratch.layout())?;
    let leading = Leading {
        scratch: &scratch,
        folder: &job.folder,
        plan: plan(batches(&dataset, work.over(experiment).batch), sharing.workers),
        max_restarts: experiment.max_restarts.0,
        duty: |master, slot, scratch| Duty::Tasks { master, slot, scratch },
    };
    let skipped = leading.run(sharing, each)?;
    Ok(Predicted { records: dataset.len() - skipped, skipped })
}

/// Work in tasks, whatever it is.
pub(crate) struct Leading<'a> {
    /// What workers are told, and where they leave their parts.
    pub(crate) scratch: &'a Scratch,
    /// The folder that it is about.
    pub(crate) folder: &'a Path,
    pub(crate) plan: TaskPlan,
    pub(crate) max_restarts: u64,
    /// What a worker is started for: the master's address, its slot and the scratch folder.
    pub(crate) duty: fn(String, u32, PathBuf) -> Duty,
}

impl Leading<'_> {
    /// Has all tasks done; `each` gets the files of the parts in the order of the tasks. Returns the records that were
    /// skipped.
    pub(crate) fn run(
        self,
        sharing: &mut Sharing<'_>,
        each: &mut dyn FnMut(&Path) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let folder = self.scratch.layout();
        let keys = ensure_keys(folder)?;
        let tasks = self.plan.records.div_ceil(self.plan.size);
        let workers = sharing.workers.min(tasks.try_into().unwrap_or(u32::MAX));
        let mut config = Config::new(folder.folder(), keys.token.to_hex(), workers as usize);
        config.platform = PlatformKind::Served;
        config.max_restarts = self.max_restarts;
        config.mode = ModePlan::Tasks(self.plan);
        let leader = Leader::start(config)?;
        let master = leader.address.to_string();
        let session = SessionOptions::of(&master, &keys);
        let (own, duty) = (folder.folder().to_path_buf(), self.duty);
        let processes = Processes::new(self.folder, folder, workers)?;
        let platform = LocalPlatform::start(processes.platform(session, move |role| {
            let slot = if let LocalRole::Worker(slot) = role { slot } else { 0 };
            duty(master.clone(), slot, own.clone())
        }))?;

        let folder = folder.folder();
        let mut parts = Parts { folder, early: BTreeMap::new(), next: 0, skipped: 0 };
        (sharing.watch)(TaskEvent::Planned(tasks));
        let ended = follow(&leader, sharing, &mut parts, each);
        // In any case: every process ends before the folder that they write to is removed.
        platform.shutdown();
        leader.end();
        match ended? {
            Some(Ending::Completed) if parts.next == tasks => Ok(parts.skipped),
            Some(Ending::Completed) => {
                let done = parts.next;
                Err(Error::Failed(format!("only {done} of {tasks} tasks were reported")))
            }
            Some(Ending::Failed(reason)) => Err(Error::Failed(reason)),
            Some(Ending::Interrupted) | None => Err(Error::Interrupted),
        }
    }
}

fn plan(batches: u64, workers: u32) -> TaskPlan {
    let size = (batches / (TASKS_PER_WORKER * u64::from(workers))).clamp(1, MOST_BATCHES);
    let deadline = (PER_BATCH * size as u32).max(AT_LEAST);
    TaskPlan { records: batches, size, deadline }
}

/// Adds parts up until all are there; nothing if it was interrupted.
fn follow(
    leader: &Leader,
    sharing: &mut Sharing<'_>,
    parts: &mut Parts<'_>,
    each: &mut dyn FnMut(&Path) -> Result<(), Error>,
) -> Result<Option<Ending>, Error> {
    loop {
        match leader.news.recv_timeout(LOOK) {
            Ok(TaskNews::Result(task, result)) => {
                (sharing.watch)(TaskEvent::Done);
                parts.take(task, result, each)?;
            }
            Ok(TaskNews::Note(text)) => (sharing.watch)(TaskEvent::Note(text)),
            Ok(TaskNews::Over(ending)) => return Ok(Some(ending?)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Failed("the master's thread panicked".to_string()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if sharing.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}

/// Puts parts in order and removes them when they are added.
struct Parts<'a> {
    folder: &'a Path,
    early: BTreeMap<u64, TaskResult>,
    next: u64,
    skipped: u64,
}

impl Parts<'_> {
    fn take(
        &mut self,
        task: u64,
        result: TaskResult,
        each: &mut dyn FnMut(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.early.insert(task, result);
        while let Some(TaskResult { file, skipped }) = self.early.remove(&self.next) {
            let part = self.folder.join(file);
            each(&part)?;
            self.next += 1;
            self.skipped += skipped;
            // It would go with the folder; now there is room for others.
            let _ = fs::remove_file(&part);
        }
        Ok(())
    }
}

/// What the master says.
enum TaskNews {
    Result(u64, TaskResult),
    Note(String),
    /// The last word.
    Over(Result<Ending, Error>),
}

/// The master, on a thread of this process: who kills this process ends the job anyway.
struct Leader {
    address: SocketAddr,
    news: Receiver<TaskNews>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Leader {
    fn start(mut config: Config) -> Result<Self, Error> {
        let cannot = || Error::system("cannot lead the workers");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot())?;
        listener.set_nonblocking(true).map_err(cannot())?;
        let address = listener.local_addr().map_err(cannot())?;
        let (sender, news) = channel();
        let (stop, stopped) = oneshot::channel();
        config.sink = Box::new(TaskTold(sender.clone()));
        let runtime = runtime()?;
        let lead = move || {
            let led = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).map_err(cannot())?;
                let shutdown = async { drop(stopped.await) };
                Ok(salamander_master::run(config, listener, shutdown).await?)
            });
            // Nobody listens after an interrupt.
            let _ = sender.send(TaskNews::Over(led));
        };
        let thread = std::thread::Builder::new().name("leader".to_string()).spawn(lead);
        let thread = thread.map_err(Error::system("cannot start a thread"))?;
        Ok(Self { address, news, stop, thread })
    }

    fn end(self) {
        // It has ended by itself if all is done.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::warn!("the master's thread panicked");
        }
    }
}

/// Passes on what the master is told.
struct TaskTold(Sender<TaskNews>);

impl Sink for TaskTold {
    fn result(&mut self, task: u64, result: &TaskResult) {
        let _ = self.0.send(TaskNews::Result(task, result.clone()));
    }

    fn note(&mut self, text: &str) {
        let _ = self.0.send(TaskNews::Note(text.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(batches: u64, workers: u32, size: u64) {
        assert_eq!(plan(batches, workers).size, size, "{batches} batches, {workers} workers");
    }

    #[test]
    fn tasks_are_several_per_worker_and_not_too_long() {
        check(1, 3, 1);
        check(23, 3, 1);
        check(24, 3, 2);
        check(240, 3, 20);
        check(1_000_000, 3, 64);
    }

    #[test]
    fn parts_are_added_in_the_order_of_their_tasks() {
        let folder = Path::new("x");
        let mut parts = Parts { folder, early: BTreeMap::new(), next: 0, skipped: 0 };
        let mut seen = Vec::new();
        for task in [2u64, 0, 3, 1] {
            let result = TaskResult { file: format!("task-{task}"), skipped: task };
            let mut each = |part: &Path| {
                seen.push(part.to_path_buf());
                Ok(())
            };
            parts.take(task, result, &mut each).expect("taken");
        }
        let expected: Vec<_> = (0..4).map(|task| folder.join(format!("task-{task}"))).collect();
        assert_eq!((seen, parts.skipped), (expected, 6));
    }
}
