//! Checkpoints: a round asks every server to write its partitions, and counts when all have and none was lost
//! meanwhile.

use std::collections::BTreeSet;

use super::{Dispatcher, Order};
use crate::elastic::{Ending, Generation};
use crate::push::{Checkpoint, Entry, Process, Source};

/// A checkpoint that is being taken.
#[derive(Clone, Debug)]
pub(super) struct Round {
    id: Generation,
    epochs: u64,
    version: Option<u64>,
    servers: u32,
    /// Nothing will be given out any more.
    last: bool,
    copied: BTreeSet<u32>,
    saved: BTreeSet<u32>,
}

impl Round {
    /// Whether training may go on: all servers have a copy of what they write.
    pub(super) fn is_copied(&self) -> bool {
        self.copied.len() == self.servers as usize
    }

    /// Whether some server is past the step of the checkpoint and has no copy of it any more.
    pub(super) fn is_before(&self, version: u64) -> bool {
        !self.is_copied() && self.version.is_some_and(|own| own < version)
    }
}

impl Dispatcher {
    /// A checkpoint is wanted: it is begun as soon as all servers are up, and where steps are applied as a whole, at
    /// the end of the step. False when one is being taken already.
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

    /// A server has copied what it is going to write: where steps are applied as a whole, work goes on when all have.
    pub fn copied(&mut self, process: Process, id: Generation) {
        if self.is_of_round(process, id)
            && let Some(round) = &mut self.round
        {
            round.copied.insert(process.server);
        }
        self.advance();
    }

    /// A server has written its part of a checkpoint.
    pub fn saved(&mut self, process: Process, id: Generation) {
        if !self.is_of_round(process, id) {
            return;
        }
        let Some(round) = &mut self.round else { return };
        round.copied.insert(process.server);
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
        let resizing = self.resizes_to().is_some() && !self.is_sync() && !self.history.stopping;
        let free = self.round.is_none() && self.is_ready() && !resizing;
        if !self.save_wanted || !free || self.is_sync() && !self.is_between_steps() {
            return;
        }
        self.save_wanted = false;
        self.rounds += 1;
        let round = Round {
            id: Generation { epoch: self.epoch, number: self.rounds },
            epochs: self.complete_epochs(),
            version: self.is_sync().then(|| self.complete_steps()),
            servers: self.map.servers,
            last: self.history.stopping && self.leases.is_empty(),
            copied: BTreeSet::new(),
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
            let (id, version) = (round.id, round.version);
            self.orders.push(Order::Save { to, id, map, version });
        }
    }

    /// Lets all servers forget which names of epochs below they have applied: all of them. Who applies steps as a whole
    /// keeps no names but those of the step in progress.
    pub(super) fn order_prune(&mut self, below: u64) {
        if below == 0 || self.is_sync() {
            return;
        }
        let servers = (0..self.map.servers).filter_map(|server| self.current(server));
        let orders: Vec<Order> = servers.map(|to| Order::Prune { to, below }).collect();
        self.orders.extend(orders);
    }

    pub(super) fn complete_steps(&self) -> u64 {
        self.settings.names.complete_steps(&self.done, self.settings.epochs)
    }

    /// A checkpoint is complete on all servers: from now on it is the one that is restored, so that names it has
    /// completely need not be told apart any more.
    fn keep(&mut self) {
        let Some(round) = self.round.take() else { return };
        let Round { id, epochs, version, last, .. } = round;
        self.journal(Entry::Kept(Checkpoint { id, map: self.map, epochs, version }));
        self.done.prune(epochs);
        self.order_prune(epochs);
        if self.is_complete() {
            self.end(Ending::Completed);
        } else if last {
            self.end(Ending::Interrupted);
        } else if self.is_sync()
            && let Some(servers) = self.resizes_to()
        {
            // What was done since goes back with the servers.
            self.place(servers, Source::Checkpoint);
        }
    }

    fn is_of_round(&self, process: Process, id: Generation) -> bool {
        let current = self.current(process.server) == Some(process) || !self.fences.round;
        current && self.round.as_ref().is_some_and(|round| round.id == id)
    }

    /// Whether all partitions are at the same step: nothing of the next one was given out.
    pub(super) fn is_between_steps(&self) -> bool {
        let Some((&epoch, ranges)) = self.pending.first_key_value() else {
            return self.leases.is_empty();
        };
        let names = &self.settings.names;
        let Some(first) = ranges.first() else { return self.leases.is_empty() };
        let step = names.name(epoch, first).step;
        let slices = u64::from(names.slices());
        let numbers = step * slices..(step + 1) * slices;
        let mut named = numbers.filter(|number| names.all().contains(*number));
        self.leases.is_empty() && named.all(|number| ranges.contains(number))
    }
}
