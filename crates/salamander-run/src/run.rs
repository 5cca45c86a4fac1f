//! A run that goes on: what it tells, what it can be asked, and how it ended.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use salamander_core::layout::RunLayout;
use salamander_master::local::LocalRole;
use salamander_train::trainer::Outcome;

use crate::Error;
use crate::connect::{self, Scale};
use crate::event::{Event, Forward};
use crate::facts::Facts;

/// As much as a main thread has: some models go deep.
const STACK: usize = 8 << 20;
/// Between two looks at a run that has nothing more to tell.
const MOMENT: Duration = Duration::from_millis(10);

/// A process of a distributed run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// What it does.
    pub role: LocalRole,
    /// The system's number for it.
    pub pid: u32,
}

impl Process {
    /// Kills it, as a machine that goes away would: for drills and tests.
    pub fn kill(&self) -> Result<(), Error> {
        let pid = rustix::process::Pid::from_raw(self.pid as i32);
        let killed =
            pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        let refused =
            |errno: rustix::io::Errno| Error::system("cannot kill a process")(errno.into());
        killed.unwrap_or(Ok(())).map_err(refused)
    }
}

/// How a run ended that did not fail.
#[derive(Debug)]
pub struct Finished {
    /// Where it is.
    pub run: RunLayout,
    /// What was trained.
    pub outcome: Outcome,
    /// What it has been through.
    pub facts: Facts,
}

/// A run that was started by this process. Dropping it stops the run, which can be resumed.
pub struct Run {
    layout: RunLayout,
    events: Receiver<Event>,
    shared: Arc<RunShared>,
    thread: Option<JoinHandle<Result<Finished, Error>>>,
}

/// What a run's handle and its thread share.
#[derive(Default)]
pub(crate) struct RunShared {
    pub(crate) stop: Arc<AtomicBool>,
    processes: Mutex<Vec<Process>>,
}

impl RunShared {
    pub(crate) fn set_processes(&self, processes: Vec<Process>) {
        *self.processes.lock().unwrap_or_else(PoisonError::into_inner) = processes;
    }
}

impl Run {
    /// Trains on a thread of its own.
    pub(crate) fn spawn(
        layout: RunLayout,
        train: impl FnOnce(&RunShared, Forward) -> Result<Finished, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (sender, events) = channel();
        let shared = Arc::new(RunShared::default());
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("run".to_string()).stack_size(STACK);
        let thread = thread.spawn(move || train(&own, Forward(sender)));
        let thread = Some(thread.map_err(Error::system("cannot start a thread"))?);
        Ok(Self { layout, events, shared, thread })
    }

    /// The run's folder.
    pub fn layout(&self) -> &RunLayout {
        &self.layout
    }

    /// What happens, until the run is over.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.events.iter()
    }

    /// What happens next, if it happens within this time.
    pub fn next_event(&self, longest: Duration) -> Option<Event> {
        let next = self.events.recv_timeout(longest);
        if let Err(RecvTimeoutError::Disconnected) = next {
            // Nothing comes any more, but the run may still be writing.
            std::thread::sleep(longest.min(MOMENT));
        }
        next.ok()
    }

    /// Whether it is over; [`Run::wait`] tells how it ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The processes of a distributed run.
    pub fn processes(&self) -> Vec<Process> {
        self.shared.processes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The workers of a distributed run.
    pub fn workers(&self) -> Vec<Process> {
        let is_worker = |process: &Process| matches!(process.role, LocalRole::Worker(_));
        self.processes().into_iter().filter(is_worker).collect()
    }

    /// Changes the number of workers or parameter servers of a distributed run.
    pub fn scale(&self, to: Scale) -> Result<(), Error> {
        connect::scale(&self.layout, to)
    }

    /// Ends it after the step that it is at; it can be resumed.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Result<Finished, Error> {
        let ended = self.thread.take().map(JoinHandle::join);
        let ended = ended.unwrap_or(Ok(Err(Error::Interrupted)));
        ended.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }
}

/// Why a run ended whose model panicked.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without a message");
    Error::Failed(format!("the thread of this run panicked: {text}"))
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
