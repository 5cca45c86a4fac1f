//! Membership of a synchronous run: who takes part, whose state counts, and what may be told outside.
//!
//! Two state machines talk to each other: the master's [`Coordinator`] and each worker's [`Participant`]. Both are
//! pure: messages, losses and the time come in as arguments, decisions come out as values, so that the very code that
//! ships runs in seeded simulations. [`ProcessSet`] decides which processes run, [`Pace`] finds the stragglers.
//!
//! # A regroup
//! 1. The master journals a new generation number and sends [`ToMember::Prepare`].
//! 2. A member fences itself: no result of an older generation is applied from now on. It answers with what it
//!    holds; the answer is a promise.
//! 3. The master picks the state that survives (see [`Coordinator`]), journals the choice and sends
//!    [`ToMember::Activate`].
//! 4. Members that hold another state receive the chosen one before they take part in an exchange.

mod activity;
mod coordinator;
mod ids;
mod journal;
mod leaving;
mod message;
mod pace;
mod participant;
mod process_set;
mod reports;
mod run;
mod tasks;

use serde::{Deserialize, Serialize};

pub use activity::{Activity, TrainingFigures};
pub use coordinator::{Action, Coordinator, Phase, Timeouts};
pub use ids::{Generation, StateLineage, Term, Version, WorkerId};
pub use journal::{GenerationChain, History, MembershipEntry};
pub use leaving::LeavingServers;
pub use message::{Activation, FromMember, Hello, Peer, StateSource, ToMember};
pub use pace::{Beat, Pace, Slow, Work};
pub use participant::{Begun, Effect, Fenced, Participant, StartFrom};
pub use process_set::{Ended, Order, ProcessSet, SERVER_SLOTS, Seat, Slot};
pub use reports::{MemberReport, ReportPlace, ReportQueue, TakenReports};
pub use run::{RunState, WantedProcesses};
pub use tasks::{Count, Lease, Task, TaskQueue};

use crate::seed::mix;

/// Milliseconds on the clock of whoever asks.
pub type Millis = u64;

/// Which state a member holds. The version alone is not enough: two lineages can share a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// How many exchanges were committed to it.
    pub version: Version,
    /// The generation that committed the last one.
    pub generation: Generation,
    /// A hash over all commits that led here.
    pub lineage: StateLineage,
}

impl Identity {
    /// The identity of a state that a generation begins with: fresh, or read from a checkpoint.
    pub fn begin(version: Version, generation: Generation, digest: u64) -> Self {
        Self { version, generation, lineage: StateLineage(mix(digest ^ mix(version.0))) }
    }

    /// The identity after one more commit, whose result has this digest.
    pub fn next(&self, generation: Generation, digest: u64) -> Self {
        let lineage = mix(self.lineage.0 ^ mix(generation.to_u64()) ^ mix(digest).rotate_left(17));
        let version = Version(self.version.0 + 1);
        Self { version, generation, lineage: StateLineage(lineage) }
    }
}

/// What a member holds and how far that can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The state, if there is one.
    pub identity: Option<Identity>,
    /// The last generation in which the state was the chosen one: by holding it already, by receiving it or by
    /// committing to it.
    pub confirmed: Option<Generation>,
}

/// A checkpoint that counts: its folder is complete and the master has journaled it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMark {
    /// Its folder's name.
    pub id: String,
    /// The version in it.
    pub version: Version,
    /// The generation that wrote it.
    pub generation: Generation,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Completed,
    /// It was asked to stop, and can be resumed.
    Interrupted,
    /// It cannot go on.
    Failed(String),
}

/// What each side checks before it believes the other. A simulation takes one out to show that it is needed; programs
/// have them all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// A member applies nothing of an older generation after its promise.
    Promise,
    /// A member refuses a master of an older term.
    Term,
    /// A member promises nothing while its state is being changed.
    Whole,
    /// Only a state that the previous generation confirmed may be chosen.
    Lineage,
    /// A member takes part only with the chosen state.
    Adopted,
    /// A version is told outside only when every member of the generation holds it.
    AllHold,
    /// A checkpoint, or a report, of a line that was given up does not count.
    Checkpoint,
    /// Who says that it is busy with its state is waited for.
    Busy,
    /// Only a member's failure ends the run.
    Failure,
    /// A member's state counts only with the servers that hold its rows.
    Servers,
    /// A server that wants to leave is let go only when all members wait after a checkpoint.
    Leave,
    /// No generation begins before a server that was let go has left.
    Left,
}
