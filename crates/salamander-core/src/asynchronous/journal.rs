//! What the master writes down before anybody may depend on it: where partitions are and which checkpoint counts, but
//! never what is done, which the partitions know.

use serde::{Deserialize, Serialize};

use super::Map;
use crate::elastic::{Generation, Term};

/// Where the servers of a map get their partitions from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionSource {
    /// From the servers of the map before, which gave nothing away yet; what none of them holds any more comes
    /// from the last checkpoint.
    Servers(Map),
    /// From the last checkpoint; fresh when there is none.
    Checkpoint,
}

/// A map, and how it is brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Who holds what from now on.
    pub map: Map,
    /// Where it comes from.
    pub source: PartitionSource,
}

/// A checkpoint that is complete on all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCheckpoint {
    /// Its name.
    pub id: Generation,
    /// The map in force: whose servers wrote which files.
    pub map: Map,
    /// All names of so many epochs are in it, on every partition.
    pub epochs: u64,
}

/// One entry of the journal. Each carries the term of the master that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AsynchronousEntry {
    /// A master took over.
    Opened,
    /// Partitions are placed.
    Placed(Placement),
    /// A checkpoint counts.
    Kept(ServerCheckpoint),
    /// So many epochs are finished and validated.
    Finished(u64),
    /// An early end was asked for.
    Stopping,
    /// A run that was stopped goes on from its last checkpoint, with new processes.
    Resumed,
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The newest term of a master.
    pub term: Term,
    /// Where partitions are.
    pub placement: Option<Placement>,
    /// The newest checkpoint.
    pub checkpoint: Option<ServerCheckpoint>,
    /// The one before it, for what of it cannot be read any more.
    pub older: Option<ServerCheckpoint>,
    /// Epochs that are finished and validated; a lost server can still reopen them.
    pub finished: u64,
    /// Whether an early end was asked for.
    pub stopping: bool,
}

impl History {
    /// Takes in the next entry, written in this term.
    pub fn apply(&mut self, term: Term, entry: &AsynchronousEntry) {
        if !self.term.take_over(term) {
            return;
        }
        match entry {
            AsynchronousEntry::Opened => {}
            AsynchronousEntry::Placed(placement) => self.placement = Some(*placement),
            AsynchronousEntry::Kept(checkpoint) => {
                self.older = self.checkpoint.replace(*checkpoint)
            }
            AsynchronousEntry::Finished(epochs) => self.finished = *epochs,
            AsynchronousEntry::Stopping => self.stopping = true,
            AsynchronousEntry::Resumed => self.stopping = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_master_writes_in_vain() {
        let mut history = History::default();
        history.apply(Term(2), &AsynchronousEntry::Opened);
        history.apply(Term(1), &AsynchronousEntry::Finished(3));
        assert_eq!(history.finished, 0);
        history.apply(Term(2), &AsynchronousEntry::Finished(1));
        assert_eq!((history.term, history.finished), (Term(2), 1));
    }
}
