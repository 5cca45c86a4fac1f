//! Where a process's time goes while it trains, and what it takes of its machine: a line in the run's folder now and
//! then, for the profiler of the dashboard. A thread of its own writes them, so that no step waits for a disk.
//!
//! ```
//! use std::sync::Arc;
//! use salamander_train::profile::{Profiler, WorkTimes};
//!
//! # let run = tempfile::tempdir()?;
//! let profiler = Profiler::start(run.path(), "evaluation", Arc::new(WorkTimes::default()));
//! // .. whatever the process is there for ..
//! drop(profiler);
//! let lines = std::fs::read_to_string(run.path().join("profile/evaluation.jsonl"))?;
//! assert!(lines.lines().all(|line| line.contains("\"steps\":0")), "{lines}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use salamander_core::layout::RunLayout;
use salamander_core::report::Timings;
use serde_json::json;

/// The shortest stretch of time that has a line of its own: longer steps have one each.
const SHORTEST: Duration = Duration::from_millis(250);
/// A stretch is at least this part of all that went before, so that files of long runs stay small.
const STRETCHES: u32 = 2000;
/// Ticks of a second in which Linux counts the time of processes.
const TICKS: f64 = 100.0;

/// What a process has done since it was started; written by whoever trains, read by the thread that keeps it.
#[derive(Debug, Default)]
pub struct WorkTimes {
    steps: AtomicU64,
    /// Nanoseconds, in the order of [`KINDS`].
    spent: [AtomicU64; 5],
}

/// Kinds of work, as lines call them.
const KINDS: [&str; 5] = ["compute", "exchange", "data", "test", "save"];

impl WorkTimes {
    /// So many steps are done, and so much time was spent on them; `saving` is the time for checkpoints.
    pub(crate) fn note(&self, steps: u64, timings: &Timings, saving: Duration) {
        let Timings { compute, exchange, data, test, .. } = *timings;
        for (kept, spent) in self.spent.iter().zip([compute, exchange, data, test, saving]) {
            kept.store(spent.as_nanos() as u64, Ordering::Relaxed);
        }
        self.steps.store(steps, Ordering::Relaxed);
    }
}

/// Keeps what a process does, until it is dropped.
#[derive(Debug)]
pub struct Profiler {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Profiler {
    /// Begins for a process of the run in a folder, such as `worker-0`. What cannot be written is left out: nothing
    /// depends on it.
    pub fn start(folder: &Path, process: &str, work: Arc<WorkTimes>) -> Self {
        let path = RunLayout::new(folder).profile().join(format!("{process}.jsonl"));
        let (end, ended) = channel();
        let begun = Instant::now();
        let mut last = ProcessSample::take(&work);
        let keep = move || {
            loop {
                let pause = SHORTEST.max(begun.elapsed() / STRETCHES);
                let waited = ended.recv_timeout(pause);
                let now = ProcessSample::take(&work);
                if let Err(error) = append(&path, &now.line_since(&last)) {
                    tracing::debug!(%error, path = %path.display(), "no profile is kept");
                    return;
                }
                last = now;
                if waited != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = Builder::new().name("profile".to_string()).spawn(keep);
        Self { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn append(path: &PathBuf, line: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())
}

/// How a process stands at a moment.
#[derive(Clone, Debug)]
struct ProcessSample {
    at: Instant,
    steps: u64,
    spent: [u64; 5],
    machine: ProcessUsage,
}

impl ProcessSample {
    fn take(work: &WorkTimes) -> Self {
        Self {
            at: Instant::now(),
            steps: work.steps.load(Ordering::Relaxed),
            spent: std::array::from_fn(|at| work.spent[at].load(Ordering::Relaxed)),
            machine: ProcessUsage::now(),
        }
    }

    /// What has happened since another sample.
    fn line_since(&self, last: &Self) -> String {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = self.at.duration_since(last.at).as_secs_f64();
        let (now, before) = (&self.machine, &last.machine);
        let mut line = json!({
            "time": rounded(time.as_secs_f64()), "seconds": rounded(seconds), "steps": self.steps,
            "cpu": rounded((now.cpu - before.cpu).max(0.0)), "memory": now.memory,
            "received": now.received.saturating_sub(before.received), "sent": now.sent.saturating_sub(before.sent),
        });
        for (at, kind) in KINDS.iter().enumerate() {
            // A run that goes back to a checkpoint begins to count anew.
            let spent = self.spent[at].saturating_sub(last.spent[at]);
            line[kind] = rounded(spent as f64 / 1e9).into();
        }
        format!("{line}\n")
    }
}

/// To the millisecond's tenth.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e4).round() / 1e4
}

/// What the system says of this process.
#[derive(Clone, Debug, Default, PartialEq)]
struct ProcessUsage {
    /// Seconds of all its threads on processors.
    cpu: f64,
    /// Bytes.
    memory: u64,
    /// Bytes of the network that it sees, since that was there: its pod's, or its host's.
    received: u64,
    sent: u64,
}

impl ProcessUsage {
    fn now() -> Self {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::parse(&read("stat"), &read("status"), &read("net/dev"))
    }

    fn parse(stat: &str, status: &str, network: &str) -> Self {
        // The program's name is in brackets, and may have spaces.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks =
            fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let (mut received, mut sent) = (0, 0);
        for (_, counts) in network.lines().filter_map(|line| line.split_once(':')) {
            let count: Vec<u64> =
                counts.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            received += count.first().copied().unwrap_or(0);
            sent += count.get(8).copied().unwrap_or(0);
        }
        Self { cpu: ticks.sum::<f64>() / TICKS, memory: memory.unwrap_or(0) * 1024, received, sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        let network = "Inter-|   Receive\n face |bytes\n    lo: 10 1 0 0 0 0 0 0 20 1 0\n  \
            eth0: 5 1 0 0 0 0 0 0 7 1 0\n";
        let found = ProcessUsage::parse(stat, "Name:\tx\nVmRSS:\t    12 kB\n", network);
        assert_eq!(found, ProcessUsage { cpu: 3.0, memory: 12_288, received: 15, sent: 27 });
        assert_eq!(ProcessUsage::parse("", "", ""), ProcessUsage::default());
        assert!(ProcessUsage::now().memory > 0, "this process has memory");
    }

    #[test]
    fn what_was_done_is_kept_to_the_last_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let work = Arc::new(WorkTimes::default());
        let profiler = Profiler::start(folder.path(), "worker-3", Arc::clone(&work));
        let spent = |secs| Duration::from_secs(secs);
        let timings = Timings { compute: spent(2), exchange: spent(1), ..Timings::default() };
        work.note(5, &timings, spent(3));
        drop(profiler);
        let text = fs::read_to_string(folder.path().join("profile/worker-3.jsonl")).expect("kept");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_f64()).sum::<f64>();
        let last = lines.last().expect("one");
        assert_eq!(last["steps"], 5);
        assert!(last["memory"].as_u64() > Some(0), "{last}");
        assert_eq!(
            [sum("compute"), sum("exchange"), sum("data"), sum("save")],
            [2.0, 1.0, 0.0, 3.0]
        );
    }
}
