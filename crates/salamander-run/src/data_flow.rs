//! The flow that makes a run's data while the run trains on it (`data.flow`): a process of the run, which ends with it
//! and is started again when it dies. What it refuses ends the run.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::experiment::{DataFlow, Experiment};
use salamander_core::layout::RunLayout;
use salamander_data::{GrowingFolder, Producer};

use crate::event::{Event, Forward};
use crate::roles::Processes;
use crate::{Error, Program};

#[cfg(feature = "flow")]
pub(crate) use producing::produce;

/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long it has to end when it is told to.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often it may die without a word.
const MOST_DEATHS: u32 = 5;
/// What its log is called.
const NAME: &str = "flow";

/// Refuses a flow that this program cannot run.
pub(crate) fn check(program: &Program, experiment: &Experiment) -> Result<(), Error> {
    let Some(flow) = &experiment.data.flow else { return Ok(()) };
    known(program, flow).map_err(|reason| Error::Invalid(format!("data.flow: {reason}")))
}

#[cfg(feature = "flow")]
fn known(program: &Program, flow: &DataFlow) -> Result<(), String> {
    let found = flow.run.as_deref().map(|name| program.flows().find(name));
    found.transpose().map(drop).map_err(|error| error.to_string())
}

#[cfg(not(feature = "flow"))]
fn known(_: &Program, _: &DataFlow) -> Result<(), String> {
    let reason = "this program was built without flows, which take some minutes more: build it with `cargo build \
                  --release --features flow`";
    Err(reason.to_string())
}

/// Refuses it where no process of this machine leads the run.
pub(crate) fn check_led_here(experiment: &Experiment) -> Result<(), Error> {
    let Some(flow) = &experiment.data.flow else { return Ok(()) };
    Err(Error::Invalid(format!(
        "data.flow: it is started by `train` on the machine that trains, and this run is led elsewhere: run the flow \
         {} by itself (`flow run --stream`), and leave data.flow out with data.stream: true",
        flow.name()
    )))
}

/// What a run is trained with.
pub(crate) struct FlowOfRun<'a> {
    pub(crate) run: &'a RunLayout,
    pub(crate) experiment: &'a Experiment,
    pub(crate) is_resumed: bool,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) events: &'a Forward,
}

impl FlowOfRun<'_> {
    /// Trains, with the flow of the run's data beside it if there is one.
    pub(crate) fn beside<T>(&self, train: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let data = &self.experiment.data;
        let (Some(flow), [folder]) = (&data.flow, data.training.0.as_slice()) else {
            return train();
        };
        let folder = Path::new(folder);
        // Whoever has begun a run has seen that the folder is its own.
        if self.is_resumed && GrowingFolder::is_ended(folder)? {
            return train();
        }
        let over = AtomicBool::new(false);
        let processes = Processes::new(self.run.folder(), self.run, self.experiment.workers.max)?;
        let log = self.run.log(NAME);
        let keeper = FlowKeeper {
            processes,
            log,
            flow,
            folder,
            silence: data.stream_timeout(),
            over: &over,
            events: self.events,
        };
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| {
                let kept = keeper.keep();
                if kept.is_err() {
                    self.stop.store(true, Ordering::Relaxed);
                }
                kept
            });
            let trained = {
                let _over = SetOnDrop(&over);
                train()
            };
            match kept.join() {
                Ok(Err(error)) => Err(error),
                _ => trained,
            }
        })
    }
}

/// Also when training panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has the flow run until its folder is complete, or the run is over.
struct FlowKeeper<'a> {
    processes: Processes,
    log: PathBuf,
    flow: &'a DataFlow,
    folder: &'a Path,
    /// Who is not heard for so long hangs.
    silence: Duration,
    over: &'a AtomicBool,
    events: &'a Forward,
}

/// How a process of the flow ended.
enum FlowEnd {
    /// The folder is complete, or nobody needs it any more.
    Done,
    /// For a reason that another process would have too.
    Refused(String),
    /// Without a word.
    Died(String),
}

impl FlowKeeper<'_> {
    fn keep(&self) -> Result<(), Error> {
        let mut seen = GrowingFolder::new(self.folder, None);
        let mut deaths = 0;
        while !self.is_over() {
            // Another run has the same flow: its partitions are as good.
            if seen.producer(Instant::now())? == Producer::AtWork {
                std::thread::sleep(LOOK);
                continue;
            }
            let end = self.run_once(&mut seen)?;
            let is_taken = seen.producer(Instant::now())? == Producer::AtWork;
            match end {
                FlowEnd::Done => return Ok(()),
                // Two runs have begun in the same moment.
                FlowEnd::Refused(_) if is_taken => {}
                FlowEnd::Refused(reason) => return Err(self.failed(&reason)),
                FlowEnd::Died(how) => {
                    deaths += 1;
                    if deaths > MOST_DEATHS {
                        return Err(self.failed(&format!("{how}, as {MOST_DEATHS} times before")));
                    }
                    let name = self.flow.name();
                    self.events.send(Event::Note(format!("the flow {name} {how}: started again")));
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn failed(&self, reason: &str) -> Error {
        let (name, log) = (self.flow.name(), self.log.display());
        Error::Failed(format!("data.flow: the flow {name} failed: {reason} (its log is {log})"))
    }

    /// Starts it, and follows it to its end.
    fn run_once(&self, seen: &mut GrowingFolder) -> Result<FlowEnd, Error> {
        let said = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        let mut child = self.start()?;
        let (mut has_worked, mut heard) = (false, Instant::now());
        loop {
            let ended = child.try_wait().map_err(Error::system("cannot follow the flow"))?;
            if let Some(status) = ended {
                return Ok(self.how(status, said));
            }
            if self.is_over() {
                end(&mut child);
                return Ok(FlowEnd::Done);
            }
            // Before it writes it looks at its input, however long that takes.
            let is_at_work = seen.producer(Instant::now())? == Producer::AtWork;
            has_worked |= is_at_work;
            if is_at_work || !has_worked {
                heard = Instant::now();
            }
            if heard.elapsed() >= self.silence {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = self.silence.as_secs();
                return Ok(FlowEnd::Died(format!("was silent for {seconds} s and was ended")));
            }
            std::thread::sleep(LOOK);
        }
    }

    #[cfg(feature = "flow")]
    fn start(&self) -> Result<Child, Error> {
        let mut command = self.processes.command_of(crate::roles::Duty::Produce {}, NAME);
        command.spawn().map_err(Error::system("cannot start the flow"))
    }

    #[cfg(not(feature = "flow"))]
    fn start(&self) -> Result<Child, Error> {
        // Refused before.
        Err(self.failed("this program has no flows"))
    }

    fn how(&self, status: ExitStatus, said: u64) -> FlowEnd {
        if status.success() {
            return FlowEnd::Done;
        }
        match last_error(&self.log, said) {
            Some(reason) if status.signal().is_none() => FlowEnd::Refused(reason),
            _ => FlowEnd::Died(format!("ended with {status}")),
        }
    }
}

/// Asks a process to end, and does not wait for ever.
fn end(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let asked = Instant::now();
    while asked.elapsed() < FAREWELL {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The last line of a log that says why a process ended, behind so many bytes that others have written.
fn last_error(log: &Path, said: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(said)).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let reason = text.lines().rev().find_map(|line| line.strip_prefix("error: "));
    reason.map(str::to_string)
}

#[cfg(feature = "flow")]
mod producing {
    //! What the process of the flow does.

    use std::sync::atomic::AtomicBool;

    use salamander_flow::flow::{
        Error as FlowError, FlowCall, FlowJob, Flows, SinkSettings, TaskRunner, TaskThreads,
    };
    use serde_json::Value;

    use super::*;
    use crate::experiment::load;
    use crate::flow::FlowWorkers;
    use crate::roles::{Exit, leave_on_signals};
    use crate::tasks::Sharing;

    /// Fills the folder that a run trains on.
    pub(crate) fn produce(run: &RunLayout, flows: &Flows) -> Result<Exit, Error> {
        let experiment = load(&run.experiment(), &[])?;
        let data = &experiment.data;
        let (Some(flow), [folder]) = (&data.flow, data.training.0.as_slice()) else {
            return Err(Error::Invalid("data.flow: this run has none".to_string()));
        };
        let stop = leave_on_signals()?;
        let stream =
            |runner: &mut dyn TaskRunner| job(flow).stream(flows, Path::new(folder), runner);
        let made = match flow.workers {
            Some(workers) => {
                let sharing = Sharing { workers, stop: &stop, watch: &mut |_| {} };
                stream(&mut FlowWorkers::new(sharing))
            }
            None => stream(&mut threads(flows, &stop)),
        };
        match made {
            Ok(made) => {
                tracing::info!(rows = made.rows, bad_rows = made.bad_rows, "the flow is complete");
                Ok(Exit::Done)
            }
            Err(FlowError::Interrupted) => Ok(Exit::Left),
            Err(error) => Err(Error::Failed(error.to_string())),
        }
    }

    /// Half of the processors: the other half trains.
    fn threads<'a>(flows: &'a Flows, stop: &'a AtomicBool) -> TaskThreads<'a> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        TaskThreads { flows, threads: (cores / 2).max(1), stop, progress: &|_, _| {} }
    }

    fn job(flow: &DataFlow) -> FlowJob {
        let inputs: Vec<&str> = flow.inputs.0.iter().map(String::as_str).collect();
        let named = FlowJob::named(flow.run.as_deref().unwrap_or_default(), &inputs);
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let sink = SinkSettings::default();
        FlowJob {
            call: flow.sql.clone().map_or(named.call, FlowCall::Sql),
            format: flow.in_format.clone(),
            parameters: flow.set.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            sink: SinkSettings {
                format: flow.to.clone().unwrap_or(sink.format),
                shard_records: flow.shard_records,
                ..SinkSettings::default()
            },
            ..named
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_end_is_the_last_that_was_said_since() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("flow.log");
        let said = "error: an older one\n";
        let text =
            format!("{said}\u{1b}[32m INFO\u{1b}[0m working\nerror: no column \"age\"\nbye\n");
        std::fs::write(&log, text).expect("written");
        assert_eq!(last_error(&log, said.len() as u64).as_deref(), Some("no column \"age\""));
        std::fs::write(&log, said).expect("written");
        assert_eq!(last_error(&log, said.len() as u64), None);
        assert_eq!(last_error(&folder.path().join("none"), 0), None);
    }
}
