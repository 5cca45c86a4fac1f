//! Checkpoints: a round asks every server to write its partitions, and counts when all have and none was lost
//! meanwhile.

use std::collections::BTreeSet;

use super::{DispatchAction, Dispatcher};
use crate::asynchronous::{AsynchronousEntry, Fence, Process, ServerCheckpoint};
use crate::elastic::{Ending, Generation};

/// A checkpoint that is being taken.
#[derive(Clone, Debug)]
pub(super) struct Round {
    id: Generation,
    epochs: u64,
    servers: u32,
    /// Nothing will be given out any more.
    last: bool,
    saved: BTreeSet<u32>,
}

impl Dispatcher {
    /// A checkpoint is wanted: it is begun as soon as all servers are up. False when one is being taken already.
    pub fn save(&mut self) -> bool {
        let free = self.round.is_none() && self.ending.is_none();
        self.save_wanted |= free;
        self.advance();
        free
    }

    /// The checkpoint that is being taken.
    pub fn saving(&self) -> Option<Generation> {
        self.round.as_ref().map(|round| round.id)
    }

    /// A server has written its part of a checkpoint.
    pub fn saved(&mut self, process: Process, id: Generation) {
        if !self.is_of_round(process, id) {
            return;
        }
        let Some(round) = &mut self.round else { return };
        round.saved.insert(process.server);
        if round.saved.len() == round.servers as usize {
            self.keep();
        }
        self.advance();
    }

    /// A server was lost or partitions move: what was written so far is of no use.
    pub(super) fn void_round(&mut self) {
        if self.without != Some(Fence::Round) && self.round.take().is_some() {
            self.save_wanted = true;
        }
    }

    pub(super) fn try_save(&mut self) {
        let resizing = self.resizes_to().is_some() && !self.history.stopping;
        let free = self.round.is_none() && self.is_ready() && !resizing;
        if !self.save_wanted || !free {
            return;
        }
        self.save_wanted = false;
        self.rounds += 1;
        let round = Round {
            id: Generation { term: self.term, number: self.rounds },
            epochs: self.complete_epochs(),
            servers: self.map.servers,
            last: self.history.stopping && self.leases.is_empty(),
            saved: BTreeSet::new(),
        };
        self.round = Some(round);
        self.processes().into_iter().for_each(|process| self.order_save(process));
    }

    /// Lets a server write its part, if it has not.
    pub(super) fn order_save(&mut self, to: Process) {
        let map = self.map.number;
        if let Some(round) = self.round.as_ref().filter(|r| !r.saved.contains(&to.server)) {
            let id = round.id;
            self.orders.push(DispatchAction::Save { to, id, map });
        }
    }

    /// A checkpoint is complete on all servers: from now on it is the one that is restored, so that names it has
    /// completely need not be told apart any more.
    fn keep(&mut self) {
        let Some(round) = self.round.take() else { return };
        let Round { id, epochs, last, .. } = round;
        self.journal(AsynchronousEntry::Kept(ServerCheckpoint { id, map: self.map, epochs }));
        self.done.prune(epochs);
        if epochs > 0 {
            let (map, below) = (self.map.number, epochs);
            let prune = |to| DispatchAction::Prune { to, map, below };
            self.orders.extend(self.processes().into_iter().map(prune));
        }
        if self.is_complete() {
            self.end(Ending::Completed);
        } else if last {
            self.end(Ending::Interrupted);
        }
    }

    fn is_of_round(&self, process: Process, id: Generation) -> bool {
        let current =
            self.current(process.server) == Some(process) || self.without == Some(Fence::Round);
        current && self.round.as_ref().is_some_and(|round| round.id == id)
    }
}
