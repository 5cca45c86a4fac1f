//! Training on parameter servers: who computes which micro-batch, and how each is applied exactly once on every
//! partition, whoever dies.
//!
//! Three state machines talk to each other: the master's [`Dispatcher`], each server's [`Gate`] and each worker's
//! [`Work`]. All are pure: messages, losses and the time come in as arguments, decisions come out as values.
//!
//! # The truth is on the partitions
//! A push is named by its micro-batch, and a partition keeps the names it has applied ([`Applied`]) together with
//! its parameters: in memory, in checkpoints, on moves. The master journals no names. What is done is what all
//! partitions say; a name that one of them lacks, for whatever reason, is given out again, and those that had it ignore
//! it. So a lost worker, server or master needs no repair but to look again.
//!
//! # What the master may believe
//! It believes an ack only from the process that still holds the partition, in the placement that still holds: acks
//! carry the server's *incarnation* and the *map's number*. The number is raised by every move of partitions;
//! it is also the [`Lineage`] that pushes carry, and a server refuses another one, since a push that was cut for
//! another map would mark names on partitions for which it has no rows.
//!
//! # What a server may believe
//! Orders carry the master's *term*, the incarnation that they are for and the *map's number*. A server refuses an
//! older term than it has heard of, orders for another life of itself and orders of another map. An order to forget
//! names, say, is true only of the process whose names the master knew, and of that process only as long as it does not
//! begin a map with what a checkpoint has. Within one map a process never loses a name, so that nothing else is needed.
//!
//! # Leases
//! The fencing number of a lease says which one a report is for, so that the count of what is leased is right. It
//! guards nothing else: work that is done twice is applied once. A worker that hangs with one is noticed when others
//! have waited for it ([`HangWatch`]).
//!
//! # A run
//! One server, one worker, two steps:
//! ```
//! use salamander_core::elastic::{Ending, WorkerId};
//! use salamander_core::plan::Plan;
//! use salamander_core::asynchronous::*;
//!
//! let names = Numbering::of(&Plan { records: 8, batch: 4, aggregation: 1, slices: 2 });
//! let consistency = Consistency::Async;
//! let settings = Settings { names, epochs: 1, consistency, servers: 1, lease: 10_000 };
//! let mut master = Dispatcher::open(History::default(), settings);
//!
//! // The server starts, is told to get its partitions, and says what they have applied.
//! let server = Process { server: 0, incarnation: 77 };
//! let mut gate = Gate::new(77);
//! master.server_up(0, ServerState { incarnation: 77, placed: None });
//! let orders = master.take_orders();
//! let Some(DispatchAction::Place { to, placement, .. }) = orders.last() else { panic!("{orders:?}") };
//! let order = Envelope { term: master.term(), to: to.incarnation };
//! let map = placement.map.number;
//! assert_eq!(gate.reset(order, map.into())?, Resetting::Begin);
//! gate.hold(Holds::All(map.into()));
//! let mut applied = Applied::new(2);
//! let placed = Placed { map, applied: applied.clone() };
//! master.server_up(0, ServerState { incarnation: 77, placed: Some(placed) });
//!
//! // The worker pushes every name that it is given, and the server applies each once.
//! let worker = WorkerId(1);
//! while let Lease::Leased(task) = master.lease(0, worker, 3) {
//!     let mut work = Work::new(task);
//!     while let Some(name) = work.name() {
//!         gate.admit(work.task().map.number.into())?;
//!         assert!(applied.insert(name));
//!         work.acked(map, name, server);
//!     }
//!     assert_eq!(master.report(0, worker, &work.report()), ReportVerdict::Done);
//! }
//!
//! // The epoch is validated; the run ends when a checkpoint has all of it.
//! assert!(master.take_orders().contains(&DispatchAction::Validate { epoch: 0 }));
//! master.next_epoch(0)?;
//! let id = master.saving().expect("the last checkpoint is taken by itself");
//! master.saved(server, id);
//! assert_eq!(master.ending(), Some(&Ending::Completed));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod applied;
mod dispatcher;
mod gate;
mod hang_watch;
mod journal;
mod lease_messages;
mod map;
mod numbering;
mod placement;
mod step_order;
mod work;

use serde::{Deserialize, Serialize};

use crate::experiment::{Ps, PsMode};

pub use applied::Applied;
pub use dispatcher::{
    DispatchAction, Dispatcher, Lease, NotYet, Placed, ReportVerdict, ServerState, Settings,
    Waiting,
};
pub use gate::{Envelope, Gate, HeldPartitions, Holds, Refused, Resetting};
pub use hang_watch::HangWatch;
pub use journal::{AsynchronousEntry, History, PartitionSource, Placement, ServerCheckpoint};
pub use lease_messages::{LeaseAnswer, LeaseAsk};
pub use map::{Lineage, Map, MapVersion};
pub use numbering::Numbering;
pub use placement::spread;
pub use step_order::{OutOfStep, StepOrder};
pub use work::{Report, Task, Work};

/// How far workers may run apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Any name of the epoch may be given out at any time.
    Async,
    /// A name of step t is given out when all names of steps before t - n are done.
    Bounded(u64),
}

impl Consistency {
    /// As an experiment says. Mode `sync` is another name for strategy `hybrid`, and is followed there: here it would
    /// be no step apart.
    pub fn of(ps: &Ps) -> Self {
        match ps.mode {
            PsMode::Async => Self::Async,
            PsMode::Bounded => Self::Bounded(ps.staleness),
            PsMode::Sync => Self::Bounded(0),
        }
    }

    /// By how many steps names that are given out may be ahead of the first step that is not done.
    pub fn staleness(self) -> Option<u64> {
        match self {
            Self::Async => None,
            Self::Bounded(steps) => Some(steps),
        }
    }
}

/// One life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its place in the map.
    pub server: u32,
    /// The number it drew when it started.
    pub incarnation: u64,
}

/// What each side checks before it believes the other. A simulation takes one out to show that it is needed; programs
/// have them all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Acks of a process that is not the current one do not count.
    Acks,
    /// A server follows only orders to its own process.
    Orders,
    /// A server refuses a master of an older term.
    Master,
    /// A server refuses pushes and orders of another map.
    Map,
    /// Acks for another map do not count.
    Replies,
    /// Reports of another map do not count.
    Reports,
    /// A server that comes back is believed what it has, not what it had.
    Restored,
    /// A checkpoint counts only if no server was lost while it was taken.
    Round,
    /// A report closes only the lease it names.
    Lease,
    /// A server completes the steps of synchronous training in their order, each once.
    Step,
}
