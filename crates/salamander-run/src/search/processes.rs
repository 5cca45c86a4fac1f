//! The processes of trials: as many at a time as there are slots.
//!
//! A trial that came to where it pauses says so and stays for a while: if it may go on, it does so without the cost of
//! a new process. Whatever becomes of it then, its checkpoint is on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::layout::RunLayout;
use salamander_master::local::LocalRole;
use salamander_search::TrialId;

use super::trial::{GO_ON, PAUSED};
use crate::roles::{Duty, Exit, Processes};
use crate::{Error, TrainsOn};

/// How long trials have to write their checkpoints when the search fails.
const FAREWELL: Duration = Duration::from_secs(20);

/// How the process of a trial ended, or came to a pause.
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
    /// What it trains is no number any more, and would be none again.
    Diverged,
    /// The system has failed it.
    System,
    /// There was no room on its disk.
    DiskFull,
    /// It was killed by this signal.
    Killed(i32),
}

/// What a process is doing.
#[derive(Debug)]
enum Doing {
    /// It trains its trial.
    Training(TrialId),
    /// It has paused, and can be told to go on with its trial.
    Staying(TrialId),
    /// It was told to end.
    Ending,
}

/// A process.
struct TrialProcess {
    pid: u32,
    doing: Doing,
    /// The slot that its trial trains in, or trained in last.
    slot: u32,
    /// Closed when it is to end.
    line: Option<UnixStream>,
}

/// What a process's thread has heard.
enum ProcessNews {
    Paused,
    Ended(TrialExit),
}

/// The processes.
pub(super) struct TrialProcesses {
    slots: u32,
    /// By numbers of our own.
    processes: BTreeMap<u64, TrialProcess>,
    started: u64,
    stopped: bool,
    sender: Sender<(u64, ProcessNews)>,
    news: Receiver<(u64, ProcessNews)>,
    on: TrainsOn,
}

impl TrialProcesses {
    pub(super) fn new(slots: u32, on: TrainsOn) -> Self {
        let (sender, news) = channel();
        let processes = BTreeMap::new();
        Self { slots: slots.max(1), processes, started: 0, stopped: false, sender, news, on }
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn has_room(&self) -> bool {
        (self.training().len() as u32) < self.slots
    }

    /// The trials that train, in the order of their numbers.
    pub(super) fn training(&self) -> Vec<TrialId> {
        let trial = |process: &TrialProcess| match process.doing {
            Doing::Training(trial) => Some(trial),
            Doing::Staying(_) | Doing::Ending => None,
        };
        let mut trials: Vec<TrialId> = self.processes.values().filter_map(trial).collect();
        trials.sort_unstable();
        trials
    }

    /// The first slot that no trial trains in: where there are several devices, each slot has its own.
    fn free_slot(&self) -> u32 {
        let trains = |process: &&TrialProcess| matches!(process.doing, Doing::Training(_));
        let taken: BTreeSet<u32> =
            self.processes.values().filter(trains).map(|process| process.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(0)
    }

    /// Whether no process is left.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Lets a trial train, in the process that it had or in a new one, which ends together with this one.
    pub(super) fn start(&mut self, trial: TrialId, run: &RunLayout) -> Result<(), Error> {
        let slot = self.free_slot();
        let stays = |process: &&mut TrialProcess| matches!(process.doing, Doing::Staying(who) if who == trial);
        if let Some(process) = self.processes.values_mut().find(stays) {
            let word = format!("{GO_ON}{slot}\n");
            let told = process.line.as_mut().map(|line| line.write_all(word.as_bytes()));
            if let Some(Ok(())) = told {
                (process.doing, process.slot) = (Doing::Training(trial), slot);
                return Ok(());
            }
            // It has gone.
            process.end();
        }
        let processes = Processes::new(run.folder(), run, self.slots)?;
        let duty = Duty::Trial { on: self.on.clone(), slot };
        let mut command = processes.command(LocalRole::Worker(0), duty);
        let cannot = || Error::system("cannot start a trial");
        let (line, its) = UnixStream::pair().map_err(cannot())?;
        let heard = line.try_clone().map_err(cannot())?;
        command.stdin(Stdio::from(OwnedFd::from(its)));
        let child = command.spawn().map_err(cannot())?;
        // The command holds the other end of the line as well.
        drop(command);
        self.started += 1;
        let (number, sender) = (self.started, self.sender.clone());
        let (pid, doing, line) = (child.id(), Doing::Training(trial), Some(line));
        let process = TrialProcess { pid, doing, slot, line };
        self.processes.insert(number, process);
        let follow = move || follow(child, heard, |news| sender.send((number, news)).is_ok());
        let thread = Builder::new().name(format!("trial-{trial}")).spawn(follow);
        thread.map(drop).map_err(Error::system("cannot start a thread"))
    }

    /// All trials that have ended or paused; waits for one of them, but no longer than this.
    pub(super) fn ended(&mut self, longest: Duration) -> Vec<(TrialId, TrialExit)> {
        let first = self.news.recv_timeout(longest).ok();
        let news: Vec<_> = first.into_iter().chain(self.news.try_iter()).collect();
        let mut ended = Vec::new();
        for (number, news) in news {
            match news {
                ProcessNews::Paused => {
                    let Some(process) = self.processes.get_mut(&number) else { continue };
                    let Doing::Training(trial) = process.doing else { continue };
                    process.doing = Doing::Staying(trial);
                    ended.push((trial, TrialExit::Done));
                }
                ProcessNews::Ended(exit) => {
                    let process = self.processes.remove(&number);
                    // The trial of one that stayed had come to where it pauses, which was heard.
                    if let Some(TrialProcess { doing: Doing::Training(trial), .. }) = process {
                        ended.push((trial, exit));
                    }
                }
            }
        }
        ended
    }

    /// Ends the processes of trials that need not go on, and of more than there are slots for.
    pub(super) fn end_staying(&mut self, mut may_go_on: impl FnMut(TrialId) -> bool) {
        let mut left = self.slots;
        for process in self.processes.values_mut() {
            let Doing::Staying(trial) = process.doing else { continue };
            match left > 0 && may_go_on(trial) {
                true => left -= 1,
                false => process.end(),
            }
        }
    }

    /// Ends a trial that trains, at once.
    pub(super) fn kill(&self, trial: TrialId) {
        let trains =
            |process: &&TrialProcess| matches!(process.doing, Doing::Training(who) if who == trial);
        let process = self.processes.values().find(trains);
        if let Some(pid) = process.and_then(|process| Pid::from_raw(process.pid as i32)) {
            // It may have ended by itself; its number is its own until it was waited for.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Asks all to end with a checkpoint.
    pub(super) fn stop_all(&mut self) {
        self.end_staying(|_| false);
        if !std::mem::replace(&mut self.stopped, true) {
            self.signal_all(Signal::TERM);
        }
    }

    /// Ends all, and waits for them: nobody may train on in the folder of a search that has failed.
    pub(super) fn end_all(&mut self) {
        self.stop_all();
        let asked = Instant::now();
        while !self.is_empty() && asked.elapsed() < FAREWELL {
            self.ended(Duration::from_millis(50));
            self.end_staying(|_| false);
        }
        self.signal_all(Signal::KILL);
        while !self.is_empty() {
            self.ended(Duration::from_millis(50));
        }
    }

    fn signal_all(&self, signal: Signal) {
        let pids = self.processes.values().map(|process| process.pid as i32);
        for pid in pids.filter_map(Pid::from_raw) {
            // It may have ended by itself; its number is its own until it was waited for.
            let _ = kill_process(pid, signal);
        }
    }
}

impl TrialProcess {
    /// Tells it to end.
    fn end(&mut self) {
        self.doing = Doing::Ending;
        if let Some(line) = self.line.take() {
            // Not only dropped: its thread listens on the same line.
            let _ = line.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// Tells what becomes of a process, to its end.
fn follow(mut child: Child, line: UnixStream, tell: impl Fn(ProcessNews) -> bool) {
    for word in BufReader::new(line).lines() {
        match word {
            Ok(word) if word == PAUSED => drop(tell(ProcessNews::Paused)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let exit = child.wait().map_or(TrialExit::Failed, exit);
    // Nobody listens any more: the search is gone.
    tell(ProcessNews::Ended(exit));
}

fn exit(status: ExitStatus) -> TrialExit {
    let is = |exit: Exit| status.code() == Some(i32::from(exit.code()));
    match status.signal() {
        Some(signal) => TrialExit::Killed(signal),
        None if is(Exit::Done) => TrialExit::Done,
        None if is(Exit::Left) => TrialExit::Left,
        None if is(Exit::Refused) => TrialExit::Refused,
        None if is(Exit::Diverged) => TrialExit::Diverged,
        None if is(Exit::SystemFailed) => TrialExit::System,
        None if is(Exit::DiskFull) => TrialExit::DiskFull,
        None => TrialExit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_that_train_have_slots_of_their_own() {
        let mut all = TrialProcesses::new(3, TrainsOn::default());
        let begin = |all: &mut TrialProcesses, number: u64, doing| {
            let slot = all.free_slot();
            all.processes.insert(number, TrialProcess { pid: 0, doing, slot, line: None });
            slot
        };
        let trains = |trial| Doing::Training(TrialId(trial));
        assert_eq!([1, 2, 3].map(|number| begin(&mut all, number, trains(number))), [0, 1, 2]);
        // Who stays has lent its slot, and gets the one that is free when it goes on.
        let second = all.processes.get_mut(&2).expect("there");
        second.doing = Doing::Staying(TrialId(2));
        assert_eq!(begin(&mut all, 4, trains(4)), 1);
        all.processes.remove(&1);
        assert_eq!(all.free_slot(), 0);
    }
}
