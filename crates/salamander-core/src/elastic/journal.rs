//! What the master writes down before anybody may depend on it, and what a restarted master reads from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CheckpointMark, Ending, Generation, Identity, Term, Version, WorkerId};

/// One entry of the journal. Each carries the term of the master that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipEntry {
    /// A master took over.
    Opened,
    /// A generation's number was given out.
    Prepared(Generation),
    /// A generation began.
    Activated {
        /// Its number.
        generation: Generation,
        /// Its members in their order, each with the state it promised where that state may be chosen again.
        members: Vec<(WorkerId, Option<Identity>)>,
        /// The parameter servers that hold the other part of the state.
        #[serde(default)]
        servers: Vec<WorkerId>,
        /// The generation since which they hold it.
        #[serde(default)]
        rows: Generation,
        /// The servers that their part moves to, before anything else happens.
        #[serde(default)]
        destination: Vec<WorkerId>,
    },
    /// A generation has moved that part.
    Moved(Generation),
    /// A checkpoint counts.
    Checkpoint(CheckpointMark),
    /// How many workers are wanted.
    Scaled(usize),
    /// How many parameter servers are wanted.
    ScaledServers(usize),
    /// The run is over.
    Ended(Ending),
    /// An early end was asked for.
    Stopping,
    /// An ended run goes on from its last checkpoint, with new workers.
    Resumed,
}

/// A row of generations, each of which began with a state of members of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationChain {
    /// The first, which began with a checkpoint, or anew: what came before was given up.
    pub generation: Generation,
    /// The version that it began with.
    pub from: Version,
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The newest term of a master.
    pub term: Term,
    /// The newest number given out.
    pub prepared: Generation,
    /// The newest generation that began, and its members.
    pub activated: Option<(Generation, BTreeMap<WorkerId, Option<Identity>>)>,
    /// What is still in force.
    pub line: GenerationChain,
    /// The members' order.
    pub order: Vec<WorkerId>,
    /// Generations that began.
    pub generations: u64,
    /// The newest checkpoint.
    pub checkpoint: Option<CheckpointMark>,
    /// How many workers are wanted, when that was changed.
    pub workers: Option<usize>,
    /// The parameter servers of the newest generation.
    pub servers: Vec<WorkerId>,
    /// The generation since which they hold the rows.
    pub rows: Generation,
    /// The parameter servers that the newest generation moves the rows to, and has not said to be done.
    pub destination: Vec<WorkerId>,
    /// How many parameter servers are wanted, when that was changed.
    pub wanted_servers: Option<usize>,
    /// Whether an early end was asked for.
    pub stopping: bool,
    /// How it ended.
    pub ending: Option<Ending>,
}

impl History {
    /// Whether what a generation made known to all its members is still in force: every generation since has begun with
    /// a state of members of the one before.
    pub fn is_on_line(&self, generation: Generation) -> bool {
        let newest = self.activated.as_ref().map(|(newest, _)| *newest);
        self.line.generation <= generation && newest.is_some_and(|newest| generation <= newest)
    }

    /// Takes in the next entry, written in this term.
    pub fn apply(&mut self, term: Term, entry: &MembershipEntry) {
        if !self.term.take_over(term) {
            return;
        }
        match entry {
            MembershipEntry::Opened => {}
            MembershipEntry::Prepared(generation) => self.prepared = *generation,
            MembershipEntry::Activated { generation, members, servers, rows, destination } => {
                self.servers.clone_from(servers);
                self.destination.clone_from(destination);
                self.rows = *rows;
                if members.iter().all(|(_, state)| state.is_none()) {
                    let from = self.checkpoint.as_ref().map_or(Version(0), |mark| mark.version);
                    self.line = GenerationChain { generation: *generation, from };
                }
                self.activated = Some((*generation, members.iter().copied().collect()));
                self.order = members.iter().map(|(id, _)| *id).collect();
                self.generations += 1;
            }
            MembershipEntry::Moved(generation) => {
                self.servers = std::mem::take(&mut self.destination);
                self.rows = *generation;
            }
            MembershipEntry::Checkpoint(mark) => self.checkpoint = Some(mark.clone()),
            MembershipEntry::Scaled(workers) => self.workers = Some(*workers),
            MembershipEntry::ScaledServers(servers) => self.wanted_servers = Some(*servers),
            MembershipEntry::Stopping => self.stopping = true,
            MembershipEntry::Resumed => {
                (self.stopping, self.ending, self.activated) = (false, None, None);
                self.order.clear();
                self.servers.clear();
                self.destination.clear();
            }
            MembershipEntry::Ended(ending) => self.ending = Some(ending.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_master_writes_in_vain() {
        let mut history = History::default();
        history.apply(Term(1), &MembershipEntry::Opened);
        history.apply(Term(2), &MembershipEntry::Opened);
        history.apply(Term(1), &MembershipEntry::Ended(Ending::Completed));
        assert_eq!(history.ending, None);
        history.apply(Term(2), &MembershipEntry::Prepared(Generation { term: Term(2), number: 1 }));
        assert_eq!(history.prepared, Generation { term: Term(2), number: 1 });
    }
}
