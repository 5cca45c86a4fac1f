//! The processes of trials: as many at a time as there are slots.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::layout::RunLayout;
use salamander_master::local::Role;
use salamander_search::TrialId;

use crate::Error;
use crate::roles::{Duty, Exit, Processes};

/// How long trials have to write their checkpoints when the search fails.
const FAREWELL: Duration = Duration::from_secs(20);

/// How the process of a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialExit {
    /// It came to where it pauses.
    Done,
    /// It left on request, with a checkpoint.
    Left,
    /// Its run failed.
    Failed,
    /// The model has refused its hyperparameters.
    Refused,
    /// The system has failed it: a full disk, for example.
    System,
    /// It was killed by this signal.
    Killed(i32),
}

/// The processes.
pub(super) struct TrialProcesses {
    slots: u32,
    running: BTreeMap<TrialId, u32>,
    stopped: bool,
    sender: Sender<(TrialId, TrialExit)>,
    ended: Receiver<(TrialId, TrialExit)>,
}

impl TrialProcesses {
    pub(super) fn new(slots: u32) -> Self {
        let (sender, ended) = channel();
        Self { slots: slots.max(1), running: BTreeMap::new(), stopped: false, sender, ended }
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn has_room(&self) -> bool {
        (self.running.len() as u32) < self.slots
    }

    /// The trials that train, in the order of their numbers.
    pub(super) fn training(&self) -> Vec<TrialId> {
        self.running.keys().copied().collect()
    }

    /// Starts the process of a trial; it ends together with this one.
    pub(super) fn start(&mut self, trial: TrialId, run: &RunLayout) -> Result<(), Error> {
        let processes = Processes::new(run.folder(), run, self.slots)?;
        let mut command = processes.command(Role::Worker(0), Duty::Trial);
        let mut child = command.spawn().map_err(Error::system("cannot start a trial"))?;
        self.running.insert(trial, child.id());
        let sender = self.sender.clone();
        let wait = move || {
            let exit = child.wait().map_or(TrialExit::Failed, exit);
            // Nobody listens any more: the search is gone.
            let _ = sender.send((trial, exit));
        };
        let thread = Builder::new().name(format!("trial-{trial}")).spawn(wait);
        thread.map(drop).map_err(Error::system("cannot start a thread"))
    }

    /// All processes that have ended; waits for one of them, but no longer than this.
    pub(super) fn ended(&mut self, longest: Duration) -> Vec<(TrialId, TrialExit)> {
        let first = self.ended.recv_timeout(longest).ok();
        let ended: Vec<_> = first.into_iter().chain(self.ended.try_iter()).collect();
        for (trial, _) in &ended {
            self.running.remove(trial);
        }
        ended
    }

    /// Ends one at once.
    pub(super) fn kill(&self, trial: TrialId) {
        let pid = self.running.get(&trial).and_then(|pid| Pid::from_raw(*pid as i32));
        if let Some(pid) = pid {
            // It may have ended by itself; its number is its own until it was waited for.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Asks all to end with a checkpoint.
    pub(super) fn stop_all(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.signal_all(Signal::TERM);
        }
    }

    /// Ends all, and waits for them: nobody may train on in the folder of a search that has failed.
    pub(super) fn end_all(&mut self) {
        self.stop_all();
        let asked = Instant::now();
        while !self.running.is_empty() && asked.elapsed() < FAREWELL {
            self.ended(Duration::from_millis(50));
        }
        self.signal_all(Signal::KILL);
        while !self.running.is_empty() {
            self.ended(Duration::from_millis(50));
        }
    }

    fn signal_all(&self, signal: Signal) {
        for pid in self.running.values().filter_map(|pid| Pid::from_raw(*pid as i32)) {
            // It may have ended by itself; its number is its own until it was waited for.
            let _ = kill_process(pid, signal);
        }
    }
}

fn exit(status: ExitStatus) -> TrialExit {
    let is = |exit: Exit| status.code() == Some(i32::from(exit.code()));
    match status.signal() {
        Some(signal) => TrialExit::Killed(signal),
        None if is(Exit::Done) => TrialExit::Done,
        None if is(Exit::Left) => TrialExit::Left,
        None if is(Exit::Refused) => TrialExit::Refused,
        None if is(Exit::SystemFailed) => TrialExit::System,
        None => TrialExit::Failed,
    }
}
