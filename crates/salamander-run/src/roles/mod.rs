//! The processes of a distributed run. Each is a function from what it is told to how it ended; whoever reads
//! arguments, sets up logs and ends the process is elsewhere.

mod assignment;
#[cfg(feature = "kube")]
mod health;
#[cfg(feature = "kube")]
mod journal_lock;
pub mod master;
pub mod ps;
pub mod worker;

use std::fmt::Display;
use std::io::{Write, stderr};
use std::net::IpAddr;
#[cfg(feature = "kube")]
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use salamander_core::layout::RunLayout;
use salamander_master::local::{LEFT_ON_REQUEST, MISTAKE};
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::keys::KeyFiles;

pub use assignment::Assignment;
pub(crate) use assignment::{Duty, Processes};

/// What a worker or a parameter server is told.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The run's folder.
    pub run: RunLayout,
    /// The master's address.
    pub master: String,
    /// Where its secrets are.
    pub keys: KeyFiles,
    /// Where others reach this process.
    pub listen: IpAddr,
    /// Its place among those of its role, from 0: a worker's slot, a server's seat.
    pub place: u32,
    /// Which device of this machine it takes; of fewer devices than this some are shared.
    pub device: u32,
    /// Where it answers probes and shows metrics; the environment may say so too.
    #[cfg(feature = "kube")]
    pub health: Option<SocketAddr>,
}

/// How a role ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The run is over.
    Done,
    /// This process left on request; the run goes on without it.
    Left,
    /// What it was given is wrong, and would be for another process as well.
    Mistaken,
    /// The model has refused its hyperparameters.
    Refused,
    /// What is trained is no number any more, and would be none in another process: it has the same bits.
    Diverged,
    /// The machine has failed this process, not the run.
    SystemFailed,
    /// There is no room on a disk.
    DiskFull,
    /// Another master still holds the run's journal.
    Locked,
    /// With a code that the platform of pods understands.
    Code(u8),
}

impl Exit {
    /// The exit code: that of a process that left must not be taken for that of a finished one.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Refused => 65,
            Exit::Diverged => 70,
            Exit::SystemFailed => 71,
            Exit::DiskFull => 74,
            Exit::Left => LEFT_ON_REQUEST as u8,
            Exit::Locked => 77,
            Exit::Mistaken => MISTAKE as u8,
            Exit::Code(code) => code,
        }
    }
}

/// Says why a process ends, as the last line of its log. On a full disk, or where nobody reads the log, it ends as it
/// would have: its exit code says whether to start another one.
pub(crate) fn say_why(reason: &dyn Display) {
    let _ = writeln!(stderr(), "error: {reason}");
}

/// SIGTERM asks this process to leave; Ctrl-C is meant for the parent, which hears it too and decides.
pub(crate) fn leave_on_signals() -> Result<Arc<AtomicBool>, Error> {
    let leave = Arc::new(AtomicBool::new(false));
    let ignored = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&leave))
        .and_then(|_| signal_hook::flag::register(SIGINT, ignored))
        .map_err(Error::system("cannot listen for signals"))?;
    Ok(leave)
}

/// Resolves when this process is told to leave.
pub(crate) fn terminated() -> Result<impl Future<Output = ()>, Error> {
    let terminate = signal(SignalKind::terminate());
    let mut terminate = terminate.map_err(Error::system("cannot listen for signals"))?;
    Ok(async move {
        terminate.recv().await;
    })
}

/// For connections; whoever computes has threads of its own.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(Error::system("cannot start threads"))
}
