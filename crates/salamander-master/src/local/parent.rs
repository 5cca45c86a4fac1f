//! Ties the life of a process to that of its parent, so that nothing of a run is left when its supervisor is killed.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Why a process cannot be tied to its parent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses.
    #[error("cannot ask to end with the parent: {0}")]
    Refused(#[from] rustix::io::Errno),
    /// The parent ended before it was asked.
    #[error("process {parent}, which started this one, is gone already")]
    Orphan {
        /// The parent.
        parent: u32,
    },
}

/// Asks the system to kill this process when its parent ends. For the first lines of a role that a supervisor started;
/// on an error the role should end.
///
/// The parent is the *thread* that started the process, which is why [`super::LocalPlatform`] starts all of them
/// from one thread that outlives them.
pub fn die_with_parent(parent: u32) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended just before; then no signal comes.
    let is_there = getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get() as u32 == parent);
    if is_there { Ok(()) } else { Err(Error::Orphan { parent }) }
}
