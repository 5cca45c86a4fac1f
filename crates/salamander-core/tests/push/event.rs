//! What can happen, who is concerned, and the queue in which it waits for its time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use salamander_core::elastic::{Generation, Millis, WorkerId};
use salamander_core::plan::MicroBatch;
use salamander_core::push::{Lease, Order, Process, Report, ServerState};

use crate::faults::Fault;
use crate::truth::{Part, Shares};

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
    Ask(usize),
    Answer(Lease),
    Report(Report),
    /// The report of this lease was heard.
    Heard(u64),
    GiveBack(u64),
    Push(Push),
    Ack(Generation, MicroBatch),
    Refuse(MicroBatch),
    State(ServerState),
    Copied(Generation),
    Saved(Generation),
    Order(u32, Order),
    /// The master was replaced.
    Replaced,
    /// Give me this partition for this map.
    Take(Generation, usize),
    Given(Generation, usize, Option<Part>),
}

/// A gradient on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Push {
    pub(crate) name: MicroBatch,
    pub(crate) map: Generation,
    /// The partitions it has rows for.
    pub(crate) shares: Shares,
    pub(crate) version: Option<u64>,
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
        version: u64,
        parts: BTreeMap<usize, Part>,
    },
    /// A server has read a partition from its checkpoint.
    Read {
        server: Process,
        map: Generation,
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

/// Events in the order of their time, and of equal times in the order in which they were put in.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Timed>,
    count: u64,
}

impl Queue {
    pub(crate) fn put(&mut self, time: Millis, event: Event) {
        self.count += 1;
        self.heap.push(Timed(Reverse((time, self.count)), event));
    }

    pub(crate) fn next(&mut self) -> Option<(Millis, Event)> {
        self.heap.pop().map(|Timed(Reverse((time, _)), event)| (time, event))
    }
}

struct Timed(Reverse<(Millis, u64)>, Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
