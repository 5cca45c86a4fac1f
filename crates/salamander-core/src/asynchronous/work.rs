//! A worker's side: the names it was given, and who has acknowledged them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Fence, Map, MapVersion, Process};
use crate::elastic::Millis;
use crate::plan::MicroBatch;

/// Names that a worker holds for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Which lease it is.
    pub fence: u64,
    /// The map that pushes are made for.
    pub map: Map,
    /// The names, neighbours in one epoch.
    pub names: Vec<MicroBatch>,
    /// When the lease is over, on the master's clock.
    pub deadline: Millis,
}

/// What a worker tells the master about names that it has pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which lease it is.
    pub fence: u64,
    /// The map that the pushes were made for.
    pub map: Map,
    /// The names.
    pub names: Vec<MicroBatch>,
    /// Every process that acknowledged any of them. One that did not acknowledge all of them must not be here
    /// without the other processes of its server, as [`Work`] sees to.
    pub acks: BTreeSet<Process>,
}

/// A task in the hands of a worker, name by name.
#[derive(Clone, Debug)]
pub struct Work {
    task: Task,
    without: Option<Fence>,
    /// Names before this one have been acknowledged by all servers.
    at: usize,
    /// Who has acknowledged the name at hand.
    acked: BTreeSet<u32>,
    acks: BTreeSet<Process>,
}

impl Work {
    /// Begins a task.
    pub fn new(task: Task) -> Self {
        Self { task, without: None, at: 0, acked: BTreeSet::new(), acks: BTreeSet::new() }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// The task.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The name to be computed and pushed next.
    pub fn name(&self) -> Option<MicroBatch> {
        self.task.names.get(self.at).copied()
    }

    /// A process has acknowledged a name that was pushed for a map. Tells whether all servers have, and the next name
    /// is at hand. A late ack for an earlier map says nothing of the partitions that the server has in this one.
    pub fn acked(&mut self, map: MapVersion, name: MicroBatch, by: Process) -> bool {
        let other_map = map != self.task.map.number && self.without != Some(Fence::Replies);
        if other_map || self.name() != Some(name) || by.server >= self.task.map.servers {
            return false;
        }
        self.acked.insert(by.server);
        // Two lives of a server in one report tell the master that one of them is over.
        self.acks.insert(by);
        let complete = self.acked.len() == self.task.map.servers as usize;
        if complete {
            self.acked.clear();
            self.at += 1;
        }
        complete
    }

    /// Whether all names are acknowledged.
    pub fn is_done(&self) -> bool {
        self.at == self.task.names.len()
    }

    /// What to report: all names that every server has acknowledged.
    pub fn report(&self) -> Report {
        let names = self.task.names[..self.at].to_vec();
        Report { fence: self.task.fence, map: self.task.map, names, acks: self.acks.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elastic::Generation;

    fn map_version(number: u32) -> MapVersion {
        MapVersion(Generation { term: crate::elastic::Term(1), number })
    }

    #[test]
    fn a_report_names_every_life_that_acknowledged() {
        let names: Vec<MicroBatch> = (0..2).map(|k| MicroBatch { epoch: 0, step: 0, k }).collect();
        let map = Map { number: map_version(1), servers: 2 };
        let task = Task { fence: 1, map, names: names.clone(), deadline: 9 };
        let mut work = Work::new(task);
        let by = |server, incarnation| Process { server, incarnation };
        assert!(!work.acked(map.number, names[0], by(0, 10)));
        let earlier = map_version(0);
        assert!(!work.acked(earlier, names[0], by(1, 20)));
        assert!(!work.acked(map.number, names[1], by(1, 20)), "it is not at hand yet");
        assert!(work.acked(map.number, names[0], by(1, 20)));
        assert!(
            !work.acked(map.number, names[0], by(1, 20)),
            "an ack that comes twice is not one of the next"
        );
        assert!(!work.acked(map.number, names[1], by(0, 11)));
        assert!(work.acked(map.number, names[1], by(1, 20)) && work.is_done());
        let acks: Vec<Process> = work.report().acks.into_iter().collect();
        assert_eq!(acks, [by(0, 10), by(0, 11), by(1, 20)]);
    }
}
