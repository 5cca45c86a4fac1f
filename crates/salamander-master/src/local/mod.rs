//! A whole run on one machine: this process is the parent of the master and of all workers, starts them as the master
//! says, starts the master again when it dies, and leaves nothing behind.

mod child;
mod parent;
mod supervisor;

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_core::elastic::{Ending, Order, SERVER_SLOTS, Seat};
use salamander_proto::client::{self, PlatformClient, PlatformHandler, SessionOptions};
use tracing::warn;

pub use child::{DEPOSED, LEFT_ON_REQUEST, MISTAKE};
pub use parent::{Error as ParentError, die_with_parent};

use supervisor::{Supervisor, SupervisorMessage};

/// Orders and ends that may wait for the supervisor.
const WAITING: usize = 1_024;

/// What goes wrong when a run is started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The session with the master cannot be opened.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The supervisor's thread cannot start.
    #[error("cannot start the supervisor's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalRole {
    /// The master.
    Master,
    /// The worker of a slot.
    Worker(u32),
    /// The parameter server of a seat.
    Server(u32),
}

impl LocalRole {
    fn of(slot: u32) -> Self {
        match Seat::of(slot) {
            Seat::Worker(slot) => LocalRole::Worker(slot),
            Seat::Server(seat) => LocalRole::Server(seat),
        }
    }

    /// The master's name for it.
    fn slot(self) -> Option<u32> {
        match self {
            LocalRole::Master => None,
            LocalRole::Worker(slot) => Some(slot),
            LocalRole::Server(seat) => Some(SERVER_SLOTS + seat),
        }
    }
}

/// How to run a run.
pub struct LocalOptions {
    /// How to reach the master.
    pub session: SessionOptions,
    /// The command of a worker or a parameter server.
    pub process: Box<dyn FnMut(LocalRole) -> Command + Send>,
    /// The command of the master, which always listens on the same address; it is given how often a master was started
    /// before, since only the first may resume a run. Without it somebody else runs the master.
    pub master: Option<Box<dyn FnMut(u64) -> Command + Send>>,
    /// Where a process writes its log, to be quoted when it crashes.
    pub log: Box<dyn Fn(LocalRole) -> Option<PathBuf> + Send>,
    /// How long a process has to end by itself.
    pub grace: Duration,
    /// How many crashes of the master in a row are tolerated; being killed is none.
    pub max_master_crashes: u32,
}

impl LocalOptions {
    /// With a grace of 5 s.
    pub fn new(
        session: SessionOptions,
        process: impl FnMut(LocalRole) -> Command + Send + 'static,
    ) -> Self {
        Self {
            session,
            process: Box::new(process),
            master: None,
            log: Box::new(|_| None),
            grace: Duration::from_secs(5),
            max_master_crashes: 5,
        }
    }
}

/// What others see of the supervisor.
#[derive(Debug, Default)]
struct SupervisorState {
    state: Mutex<RunningProcesses>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RunningProcesses {
    running: Vec<(LocalRole, u32)>,
    master_restarts: u64,
    ending: Option<Ending>,
}

impl SupervisorState {
    fn lock(&self) -> MutexGuard<'_, RunningProcesses> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The platform of one machine. Dropping it ends every process that it has started.
pub struct LocalPlatform {
    shared: Arc<SupervisorState>,
    orders: SyncSender<SupervisorMessage>,
    supervisor: Option<JoinHandle<()>>,
    /// Ends after the supervisor, which still has ends to tell.
    _client: PlatformClient,
}

impl LocalPlatform {
    /// Starts the master, if it is to, and does what it says.
    pub fn start(options: LocalOptions) -> Result<Self, Error> {
        let (orders, messages) = sync_channel(WAITING);
        let shared = Arc::new(SupervisorState::default());
        let handler = Handler { shared: shared.clone(), orders: orders.clone() };
        let client = PlatformClient::open_with(&options.session, |_| handler)?;
        let ends = client.ends();
        let supervisor = Supervisor::new(options, shared.clone(), ends, orders.clone());
        let thread = std::thread::Builder::new().name("supervisor".into());
        let thread = thread.spawn(move || supervisor.work(&messages))?;
        Ok(Self { shared, orders, supervisor: Some(thread), _client: client })
    }

    /// Waits for the end of the run and of all its processes, but not longer than this.
    pub fn wait(&self, longest: Duration) -> Option<Ending> {
        let runs =
            |state: &mut RunningProcesses| state.ending.is_none() || !state.running.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), longest, runs);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.ending.clone().filter(|_| !waited.timed_out())
    }

    /// The processes that run now.
    pub fn running(&self) -> Vec<(LocalRole, u32)> {
        self.shared.lock().running.clone()
    }

    /// How often the master was started again.
    pub fn master_restarts(&self) -> u64 {
        self.shared.lock().master_restarts
    }

    /// Ends all processes, gently first, and returns when none is left.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for LocalPlatform {
    fn drop(&mut self) {
        // A supervisor that is gone has ended its processes.
        let _ = self.orders.send(SupervisorMessage::Shutdown);
        if self.supervisor.take().is_some_and(|supervisor| supervisor.join().is_err()) {
            warn!("the supervisor's thread panicked");
        }
    }
}

/// Passes the master's orders on.
struct Handler {
    shared: Arc<SupervisorState>,
    orders: SyncSender<SupervisorMessage>,
}

impl PlatformHandler for Handler {
    fn inventory(&mut self) -> Vec<(u32, u32)> {
        let state = self.shared.lock();
        state.running.iter().filter_map(|(role, pid)| Some((role.slot()?, *pid))).collect()
    }

    fn order(&mut self, order: Order) {
        // Without a supervisor there is nobody to do it, and nothing runs.
        let _ = self.orders.send(SupervisorMessage::Order(order));
    }

    fn over(&mut self, ending: Ending) {
        let _ = self.orders.send(SupervisorMessage::Over(ending));
    }
}
