//! The processes of trials: as many at a time as there are slots.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::layout::RunLayout;
use salamander_master::local::Role;
use salamander_search::TrialId;

use crate::Error;
use crate::roles::{Duty, Exit, Processes};

/// How the process of a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialExit {
    /// It came to where it pauses.
    Done,
    /// It left on request, with a checkpoint.
    Left,
    /// Its run failed.
    Failed,
    /// It was killed by this signal.
    Fault(i32),
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

    pub(super) fn has_room(&self) -> bool {
        (self.running.len() as u32) < self.slots
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts the process of a trial; it ends together with this one.
    pub(super) fn start(&mut self, trial: TrialId, run: &RunLayout) -> Result<(), Error> {
        let processes = Processes::new(run.folder(), run, self.slots)?;
        let mut command = processes.command(Role::Worker(0), Duty::Trial);
        let mut child = command.spawn().map_err(Error::system("cannot start a trial"))?;
        self.running.insert(trial, child.id());
        let sender = self.sender.clone();
        let wait = move || {
            let outcome = child.wait().map_or(TrialExit::Failed, outcome);
            // Nobody listens any more: the search is gone.
            let _ = sender.send((trial, outcome));
        };
        let thread = Builder::new().name(format!("trial-{trial}")).spawn(wait);
        thread.map(drop).map_err(Error::system("cannot start a thread"))
    }

    /// The next process that ends, if one does within this time.
    pub(super) fn next(&mut self, longest: Duration) -> Option<(TrialId, TrialExit)> {
        let (trial, outcome) = self.ended.recv_timeout(longest).ok()?;
        self.running.remove(&trial);
        Some((trial, outcome))
    }

    /// Asks all to end with a checkpoint.
    pub(super) fn stop_all(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        for pid in self.running.values().filter_map(|pid| Pid::from_raw(*pid as i32)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn outcome(status: ExitStatus) -> TrialExit {
    match (status.code(), status.signal()) {
        (Some(0), _) => TrialExit::Done,
        (Some(code), _) if code == i32::from(Exit::Left.code()) => TrialExit::Left,
        (Some(_), _) => TrialExit::Failed,
        (None, signal) => TrialExit::Fault(signal.unwrap_or(0)),
    }
}
