//! What can happen, and who is concerned.

use std::collections::BTreeMap;

use salamander_core::asynchronous::{
    DispatchAction, Lease, MapVersion, Process, Report, ServerState,
};
use salamander_core::elastic::{Generation, Term, WorkerId};
use salamander_core::plan::MicroBatch;

use crate::faults::Fault;
use crate::truth::{Shares, StartFrom};

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Master(usize),
    Server(Process),
    Worker(WorkerId),
}

/// What processes say to each other.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    LeaseAsk(usize),
    Answer(Lease),
    Report(Report),
    /// The report of this lease was heard.
    Heard(u64),
    GiveBack(u64),
    Push(Push),
    Ack(MapVersion, MicroBatch),
    Refuse(MicroBatch),
    State(ServerState),
    Saved(Generation),
    DispatchAction(Term, DispatchAction),
    /// The master was replaced.
    Replaced,
    /// Give me this partition for this map.
    Take(MapVersion, usize),
    Given(MapVersion, usize, Option<StartFrom>),
}

/// A gradient on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Push {
    pub(crate) name: MicroBatch,
    pub(crate) map: MapVersion,
    /// The partitions it has rows for.
    pub(crate) shares: Shares,
}

/// What happens at some time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    StartMaster,
    StartServer(u32),
    StartWorker,
    Message {
        from: Node,
        to: Node,
        body: Body,
    },
    Tick(usize),
    Beat(Process),
    Nudge(WorkerId),
    Computed {
        worker: WorkerId,
        fence: u64,
        name: MicroBatch,
    },
    Written {
        server: Process,
        id: Generation,
        parts: BTreeMap<usize, StartFrom>,
    },
    /// A server has read a partition from its checkpoint.
    Read {
        server: Process,
        map: MapVersion,
        part: usize,
    },
    Validated {
        master: usize,
        epoch: u64,
    },
    /// The platform tells that a server or a worker is gone.
    Gone(Node),
    Wake(Node),
    Resume,
    Fault(Fault),
}

impl Event {
    /// Whose event it is.
    pub(crate) fn subject(&self) -> Option<Node> {
        match self {
            Event::Message { to, .. } => Some(*to),
            Event::Tick(master) | Event::Validated { master, .. } => Some(Node::Master(*master)),
            Event::Beat(server) | Event::Written { server, .. } | Event::Read { server, .. } => {
                Some(Node::Server(*server))
            }
            Event::Nudge(worker) | Event::Computed { worker, .. } => Some(Node::Worker(*worker)),
            _ => None,
        }
    }
}
