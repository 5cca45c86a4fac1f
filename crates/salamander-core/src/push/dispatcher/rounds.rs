//! Checkpoints: a round asks every server to write its partitions, and counts when all have and none was lost
//! meanwhile.

use std::collections::BTreeSet;

use super::{Dispatcher, Order};
use crate::elastic::{Ending, Generation};
use crate::push::{Checkpoint, Entry, Process};

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
        if self.fences.round && self.round.take().is_some() {
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
            id: Generation { term: crate::elastic::Term(self.epoch), number: self.rounds },
            epochs: self.complete_epochs(),
            servers: self.map.servers,
            last: self.history.stopping && self.leases.is_empty(),
            saved: BTreeSet::new(),
        };
        self.round = Some(round);
        for process in (0..self.map.servers).filter_map(|s| self.current(s)).collect::<Vec<_>>() {
            self.order_save(process);
        }
    }

    /// Lets a server write its part, if it has not.
    pub(super) fn order_save(&mut self, to: Process) {
        let map = self.map.number;
        if let Some(round) = self.round.as_ref().filter(|r| !r.saved.contains(&to.server)) {
            let id = round.id;
            self.orders.push(Order::Save { to, id, map });
        }
    }

    /// Lets all servers forget which names of epochs below they have applied: all of them.
    fn order_prune(&mut self, below: u64) {
        if below == 0 {
            return;
        }
        let map = self.map.number;
        let servers = (0..self.map.servers).filter_map(|server| self.current(server));
        let orders: Vec<Order> = servers.map(|to| Order::Prune { to, map, below }).collect();
        self.orders.extend(orders);
    }

    /// A checkpoint is complete on all servers: from now on it is the one that is restored, so that names it has
    /// completely need not be told apart any more.
    fn keep(&mut self) {
        let Some(round) = self.round.take() else { return };
        let Round { id, epochs, last, .. } = round;
        self.journal(Entry::Kept(Checkpoint { id, map: self.map, epochs }));
        self.done.prune(epochs);
        self.order_prune(epochs);
        if self.is_complete() {
            self.end(Ending::Completed);
        } else if last {
            self.end(Ending::Interrupted);
        }
    }

    fn is_of_round(&self, process: Process, id: Generation) -> bool {
        let current = self.current(process.server) == Some(process) || !self.fences.round;
        current && self.round.as_ref().is_some_and(|round| round.id == id)
    }
}
