//! Evaluation and prediction by several workers: batches in tasks that are leased, so that each record counts exactly
//! once, whoever is killed. This process leads, and is the parent of the workers.

mod job;
pub(super) mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_core::elastic::Ending;
use salamander_core::experiment::Experiment;
use salamander_master::local::{LocalPlatform, Options, Role};
use salamander_master::{Config, PlatformKind, Sink, TaskPlan};
use salamander_proto::client::SessionOptions;
use serde_json::Value;
use tokio::sync::oneshot;

use super::distributed::{log_file, role, share_cores};
use super::keys::ensure_keys;
use super::signals::Signals;
use crate::ui::TaskBar;
use job::{Finished, Scratch};

pub(super) use job::{Job, Work};

/// How often signals are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Several tasks per worker, so that a slow one does not hold up the end,
const TASKS_PER_WORKER: u64 = 4;
/// and not too many batches in one, because a killed worker's task begins anew.
const MOST_BATCHES: u64 = 64;
/// How long a worker may take for a batch. Only the last resort: who dies or falls silent is noticed at once.
const PER_BATCH: Duration = Duration::from_secs(120);
const AT_LEAST: Duration = Duration::from_secs(600);

/// A job and who does it.
pub(super) struct Launch<'a> {
    pub(super) job: &'a Job,
    pub(super) experiment: &'a Experiment,
    pub(super) batches: u64,
    pub(super) workers: u32,
}

/// How it went.
pub(super) enum Outcome {
    /// With so many records skipped.
    Completed { skipped: u64 },
    /// By Ctrl-C or SIGTERM, with the exit code.
    Interrupted(ExitCode),
}

/// Has all batches worked through. `each` gets the files of the parts in the order of the records.
pub(super) fn run(
    launch: &Launch<'_>,
    each: &mut dyn FnMut(&Path) -> Result<()>,
) -> Result<Outcome> {
    let signals = Signals::install()?;
    let scratch = Scratch::create(&launch.job.folder)?;
    let keys = ensure_keys(scratch.path())?;
    fs::create_dir(scratch.path().join("logs"))?;
    launch.job.write(scratch.path())?;
    let plan = plan(launch.batches, launch.workers);
    let tasks = plan.records.div_ceil(plan.size);
    let workers = launch.workers.min(tasks.try_into().unwrap_or(u32::MAX));

    let mut config = Config::new(scratch.path(), keys.token.to_hex(), workers as usize);
    config.platform = PlatformKind::Served;
    config.max_restarts = launch.experiment.max_restarts.0;
    config.tasks = Some(plan);
    let leader = Leader::start(config)?;
    let session = SessionOptions::of(leader.address.to_string(), &keys);
    let platform = start_workers(launch, scratch.path(), session, workers)?;

    let word = match launch.job.work {
        Work::Evaluate => "evaluating",
        Work::Predict => "predicting",
    };
    let mut parts = Parts { folder: scratch.path(), early: BTreeMap::new(), next: 0, skipped: 0 };
    let mut bar = TaskBar::new(word, tasks);
    let ended = follow(&leader, &signals, &mut parts, &mut bar, each);
    bar.finish();
    // In any case: every process ends before the folder that they write to is removed.
    platform.shutdown();
    leader.end();
    match ended? {
        Some(Ending::Completed) if parts.next == tasks => {
            Ok(Outcome::Completed { skipped: parts.skipped })
        }
        Some(Ending::Completed) => bail!("only {} of {tasks} tasks were reported", parts.next),
        Some(Ending::Failed(reason)) => bail!("{reason}"),
        Some(Ending::Interrupted) | None => {
            Ok(Outcome::Interrupted(ExitCode::from(signals.exit_code())))
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
    signals: &Signals,
    parts: &mut Parts<'_>,
    bar: &mut TaskBar,
    each: &mut dyn FnMut(&Path) -> Result<()>,
) -> Result<Option<Ending>> {
    loop {
        match leader.news.recv_timeout(LOOK) {
            Ok(News::Result(task, json)) => {
                bar.done();
                parts.take(task, json, each)?;
            }
            Ok(News::Note(text)) => bar.note(&text),
            Ok(News::Over(ending)) => return Ok(Some(ending?)),
            Err(RecvTimeoutError::Disconnected) => bail!("the master's thread panicked"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if signals.asked() {
            return Ok(None);
        }
    }
}

/// Puts parts in order and removes them when they are added.
struct Parts<'a> {
    folder: &'a Path,
    early: BTreeMap<u64, Finished>,
    next: u64,
    skipped: u64,
}

impl Parts<'_> {
    fn take(
        &mut self,
        task: u64,
        json: Value,
        each: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<()> {
        let finished = serde_json::from_value(json).with_context(|| format!("task {task}"))?;
        self.early.insert(task, finished);
        while let Some(Finished { file, skipped }) = self.early.remove(&self.next) {
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

fn start_workers(
    launch: &Launch<'_>,
    scratch: &Path,
    session: SessionOptions,
    workers: u32,
) -> Result<LocalPlatform> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let (folder, scratch) = (launch.job.folder.clone(), scratch.to_path_buf());
    let (address, logs) = (session.master.clone(), scratch.join("logs"));
    let command = move |process: Role| {
        let mut command = role(&program, &folder, &scratch.join("logs"), process);
        let slot = if let Role::Worker(slot) = process { slot } else { 0 };
        command.args(["--master", &address, "--slot", &slot.to_string()]);
        command.arg("--tasks").arg(&scratch);
        share_cores(&mut command, workers);
        command
    };
    let mut options = Options::new(session, command);
    options.log = Box::new(move |role| Some(log_file(&logs, role)));
    Ok(LocalPlatform::start(options)?)
}

/// What the master says.
enum News {
    Result(u64, Value),
    Note(String),
    /// The last word.
    Over(Result<Ending>),
}

/// The master, on a thread of this process: who kills this process ends the job anyway.
struct Leader {
    address: SocketAddr,
    news: Receiver<News>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Leader {
    fn start(mut config: Config) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (sender, news) = channel();
        let (stop, stopped) = oneshot::channel();
        config.sink = Box::new(Told(sender.clone()));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let lead = move || {
            let led = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let shutdown = async { drop(stopped.await) };
                Ok(salamander_master::run(config, listener, shutdown).await?)
            });
            // Nobody listens after an interrupt.
            let _ = sender.send(News::Over(led));
        };
        let thread = std::thread::Builder::new().name("leader".to_string()).spawn(lead)?;
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
struct Told(Sender<News>);

impl Sink for Told {
    fn report(&mut self, task: u64, json: &Value) {
        let _ = self.0.send(News::Result(task, json.clone()));
    }

    fn note(&mut self, text: &str) {
        let _ = self.0.send(News::Note(text.to_string()));
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
            let json = serde_json::json!({"file": format!("task-{task}"), "skipped": task});
            let mut each = |part: &Path| {
                seen.push(part.to_path_buf());
                Ok(())
            };
            parts.take(task, json, &mut each).expect("taken");
        }
        let expected: Vec<_> = (0..4).map(|task| folder.join(format!("task-{task}"))).collect();
        assert_eq!((seen, parts.skipped), (expected, 6));
    }
}
