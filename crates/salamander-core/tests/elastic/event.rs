//! What can happen.

use std::collections::BTreeSet;

use salamander_core::asynchronous::Lineage;
use salamander_core::elastic::{
    CheckpointMark, FromMember, Generation, Hello, Identity, MemberReport, ReportQueue, Term,
    ToMember, WorkerId,
};

use crate::calls::RowSave;
use crate::faults::Fault;
use crate::rows::{Asker, RowAsk, RowParts, RowReply};
use crate::truth::{Content, StateId};

/// From a worker to a master.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Hello(Hello),
    Beat,
    /// What is sent anew at each connection has a number.
    Say(u64, Word),
}

/// What a worker says.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Member(FromMember),
    Report(MemberReport<Content>),
    /// Its data or model is wrong, it thinks.
    Failed,
}

/// A state that takes the place of a worker's own.
#[derive(Clone, Debug)]
pub(crate) enum NewState {
    /// Read from a checkpoint of this one.
    Read(StateId),
    /// Received, with the reports that its holder may not have told.
    Received { identity: Identity, state: StateId, content: Content, reports: ReportQueue<Content> },
}

/// From a master to a worker.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    Order(ToMember),
    /// Everything up to this number has been acted on.
    Received(u64),
}

/// What happens at some time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Spawn,
    Connect(WorkerId),
    Beat(WorkerId),
    /// A message arrives at a worker. A stray one comes from a connection that is over.
    Down {
        worker: WorkerId,
        session: usize,
        stray: bool,
        term: Term,
        message: Down,
    },
    /// A worker notices that its connection is lost.
    Lost {
        worker: WorkerId,
        session: usize,
    },
    /// A worker has computed its part of an exchange.
    Computed {
        worker: WorkerId,
        generation: Generation,
        op: u64,
    },
    /// The result of an exchange arrives.
    Result {
        worker: WorkerId,
        generation: Generation,
        op: u64,
    },
    /// The result that a worker has committed is in its state.
    Applied {
        worker: WorkerId,
        generation: Generation,
    },
    /// A worker's trainer looks for a generation to begin.
    Begin(WorkerId),
    Loaded {
        worker: WorkerId,
        generation: Generation,
        mark: Option<CheckpointMark>,
    },
    /// A worker asks another for the state.
    Fetch {
        worker: WorkerId,
        generation: Generation,
    },
    /// All of a state is there,
    Arrived {
        worker: WorkerId,
        generation: Generation,
        new: NewState,
    },
    /// has taken the place of the one before,
    Restored {
        worker: WorkerId,
        generation: Generation,
        new: NewState,
    },
    /// and gets its name.
    Adopted {
        worker: WorkerId,
        generation: Generation,
        new: NewState,
    },
    Written {
        worker: WorkerId,
        mark: CheckpointMark,
        state: StateId,
        last: bool,
    },
    /// A worker asks itself whether it has waited too long.
    Stuck {
        worker: WorkerId,
        generation: Generation,
        progress: u64,
    },
    Wake(WorkerId),
    Tick(usize),
    /// A message arrives at a master.
    Up {
        master: usize,
        worker: WorkerId,
        session: usize,
        message: Up,
    },
    /// A master notices that a connection is lost.
    Dropped {
        master: usize,
        worker: WorkerId,
        session: usize,
    },
    /// The platform tells that a process has ended.
    Gone {
        worker: WorkerId,
    },
    WakeMaster(usize),
    StartMaster,
    /// The platform starts a parameter server in this seat.
    StartServer(u32),
    ServerBeat(WorkerId),
    /// A server tells a master of itself.
    ServerHello {
        master: usize,
        server: WorkerId,
    },
    /// The platform tells that a server has ended.
    ServerGone(WorkerId),
    WakeServer(WorkerId),
    /// A server hears that the master of this term lets it go,
    LetGo {
        server: WorkerId,
        term: Term,
    },
    /// and ends, or its platform waits no longer.
    Leave(WorkerId),
    /// A member's request arrives at a server,
    Ask {
        server: WorkerId,
        asker: Asker,
        lineage: Lineage,
        ask: RowAsk,
    },
    /// and its answer at the member.
    Answer {
        asker: Asker,
        reply: RowReply,
    },
    /// A member asks those that have not answered.
    AskAgain {
        worker: WorkerId,
        call: u64,
    },
    /// A member looks whether servers have written their parts of a checkpoint.
    AwaitRows {
        worker: WorkerId,
        save: RowSave,
        servers: Vec<WorkerId>,
    },
    /// A server has read its rows of a checkpoint.
    RowsRead {
        server: WorkerId,
        asker: Asker,
        lineage: Lineage,
        step: u64,
        mark: Option<String>,
        share: BTreeSet<usize>,
    },
    /// A server has written its part of a checkpoint.
    RowsWritten {
        server: WorkerId,
        copy: String,
        parts: RowParts,
    },
    /// A server looks for partitions that it lacks,
    Seek {
        server: WorkerId,
        lineage: Lineage,
    },
    /// asks another for one,
    Take {
        server: WorkerId,
        by: WorkerId,
        lineage: Lineage,
        part: usize,
    },
    /// and gets it, as it is after so many steps.
    Given {
        server: WorkerId,
        lineage: Lineage,
        part: usize,
        content: Content,
        step: u64,
    },
    /// Somebody lets a run that was stopped go on.
    Resume,
    Fault(Fault),
    /// From now on nothing goes wrong.
    Quiet,
}
