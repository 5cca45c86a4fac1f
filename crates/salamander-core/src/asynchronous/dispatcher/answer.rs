//! What the dispatcher hears of servers and what it answers and orders, with its reasons.

use crate::asynchronous::{
    Applied, AsynchronousEntry, MapVersion, Placement, Process, ServerCheckpoint, Task,
};
use crate::elastic::{Ending, Generation, Millis};

/// What a server says about itself, at each connection and when it has got its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// The number it drew when it started.
    pub incarnation: u64,
    /// What it holds; nothing when it has just started or gets its partitions.
    pub placed: Option<Placed>,
}

/// The partitions of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The map they are of.
    pub map: MapVersion,
    /// The names that all of them have applied.
    pub applied: Applied,
}

/// What the master has to do, in this order: everything journaled is on disk before the next is sent. Orders to servers
/// carry the master's term and the process they are for; those that get lost are given again when the server
/// says what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchAction {
    /// Write down.
    Journal(AsynchronousEntry),
    /// Let a server get the partitions of a map, then say what it has.
    Place {
        /// The server.
        to: Process,
        /// The map and where its partitions come from.
        placement: Placement,
        /// The checkpoint for what nobody holds; none: they begin fresh.
        checkpoint: Option<ServerCheckpoint>,
        /// The one before it, for parts of it that are damaged or missing. What those lack is given out again.
        older: Option<ServerCheckpoint>,
    },
    /// All servers of the map have their partitions: copies kept for others may go.
    Settled {
        /// The server.
        to: Process,
        /// The map.
        map: MapVersion,
    },
    /// Let a server write a checkpoint of all its partitions.
    Save {
        /// The server.
        to: Process,
        /// The checkpoint's name.
        id: Generation,
        /// The map it is of: the server refuses another one.
        map: MapVersion,
    },
    /// Names of epochs below may be forgotten.
    Prune {
        /// The server.
        to: Process,
        /// The map in force: the server refuses another one.
        map: MapVersion,
        /// The epoch.
        below: u64,
    },
    /// A server's process is to end.
    Dismiss {
        /// The server.
        to: Process,
        /// Why.
        reason: &'static str,
    },
    /// All names of the epoch are done and nothing is leased: validate, then call
    /// [`next_epoch`](super::Dispatcher::next_epoch).
    Validate {
        /// The epoch.
        epoch: u64,
    },
    /// All epochs are in a checkpoint, or all that was done when an early end was asked for.
    End(Ending),
}

/// The answer to a worker that wants to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This is for it.
    Leased(Task),
    /// There is nothing right now; ask again after so many milliseconds.
    Wait(Millis, Waiting),
    /// The run is over.
    Done,
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// This server is away.
    Server(u32),
    /// Partitions are being moved.
    Placing,
    /// Partitions will be moved when nothing is leased.
    Resizing,
    /// An early end was asked for.
    Stopping,
    /// Names of this step are not done.
    Step(u64),
    /// Others hold what is left of the epoch.
    Others,
    /// The epoch is being validated, or the last checkpoint written.
    EpochEnd,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportVerdict {
    /// All its names are done.
    Done,
    /// The pushes were made for another map: the names were put back.
    OtherMap,
    /// This server's ack is missing, or of a process that is not the current one: the names were put back.
    NotAcked(u32),
}

/// Why an epoch cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// It is not the one at hand.
    #[error("epoch {0} is not the one at hand")]
    OtherEpoch(u64),
    /// Names were lost with a server, and are done again first.
    #[error("epoch {0} was reopened: a server lost some of its names")]
    Reopened(u64),
}
