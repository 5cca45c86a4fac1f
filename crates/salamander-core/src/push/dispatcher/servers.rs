//! Servers that come, go and come back with less than they had, and partitions that move between them.

use super::{Dispatcher, Order, Placed, ServerState};
use crate::elastic::Generation;
use crate::push::{Applied, Entry, Map, Placement, Process, Source};

/// A server as the master sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) incarnation: u64,
    /// It has its partitions of the map in force.
    pub(super) up: bool,
}

impl Dispatcher {
    /// A server says what it has: at each connection, and when it has got its partitions. What the server holds of
    /// the map in force counts; if it holds nothing of it, it is told what to get.
    pub fn server_up(&mut self, server: u32, state: ServerState) {
        let process = Process { server, incarnation: state.incarnation };
        if !self.has_place_for(server) {
            self.dismiss(process, "there is no place for it in the map");
            return;
        }
        match state.placed.filter(|placed| placed.map == self.map.number) {
            Some(placed) if server < self.map.servers => self.welcome(process, &placed),
            // It has said so before it got its partitions, and is heard late.
            _ if self.current(server) == Some(process) => {}
            _ => self.introduce(process),
        }
        self.advance();
    }

    /// A server's connection is over or its process has ended; it may come back.
    pub fn server_lost(&mut self, process: Process) {
        let known = self.servers.get(&process.server);
        if known.is_some_and(|known| known.incarnation == process.incarnation) {
            self.servers.remove(&process.server);
            self.void_round();
        }
    }

    /// Another number of servers is wanted. When all of them have come, nothing more is leased until the partitions
    /// have moved; where steps are applied as a whole, a checkpoint is taken first and the servers begin from it.
    pub fn resize(&mut self, servers: u32) {
        self.journal(Entry::Resized(servers.max(1)));
        self.advance();
    }

    /// How many servers have to run: those of the map, of the one before while partitions move, and of the one to come.
    pub fn needed_servers(&self) -> u32 {
        let before = match self.source {
            Source::Servers(before) if !self.settled => before.servers,
            _ => 0,
        };
        self.map.servers.max(before).max(self.wanted_servers().unwrap_or(0))
    }

    /// All servers go back to the last checkpoint that is complete on all of them. Returns the step it is of. Called by
    /// itself where steps are applied as a whole and a server was lost.
    pub fn rollback(&mut self) -> u64 {
        self.place(self.map.servers, Source::Checkpoint);
        self.history.checkpoint.and_then(|last| last.version).unwrap_or(0)
    }

    /// The number of servers to be reached, once all of them are there: work goes on while they start.
    pub(super) fn resizes_to(&self) -> Option<u32> {
        let present =
            |servers: &u32| (0..*servers).all(|server| self.servers.contains_key(&server));
        self.wanted_servers().filter(present)
    }

    fn wanted_servers(&self) -> Option<u32> {
        self.history.servers.filter(|servers| *servers != self.map.servers)
    }

    pub(super) fn try_resize(&mut self) {
        let Some(servers) = self.resizes_to() else { return };
        let busy = !self.leases.is_empty() || self.round.is_some() || self.history.stopping;
        if !self.is_ready() || busy {
            return;
        }
        if self.is_sync() {
            // A checkpoint of a step boundary is taken first; see `keep`.
            self.save_wanted = true;
        } else {
            self.place(servers, Source::Servers(self.map));
        }
    }

    /// Puts a new map into force. The number is on disk before anybody hears of it.
    pub(super) fn place(&mut self, servers: u32, source: Source) {
        let number = Generation { epoch: self.epoch, number: self.map.number.number + 1 };
        self.map = Map { number, servers };
        self.source = source;
        self.journal(Entry::Placed(Placement { map: self.map, source }));
        self.void_round();
        (self.settled, self.inherited) = (false, false);
        self.placed.clear();
        self.leases.clear();
        self.pending.clear();
        self.done = Applied::everything(self.settings.names.slices(), self.settings.epochs);
        for server in self.servers.keys().copied().collect::<Vec<_>>() {
            if let Some(known) = self.servers.get_mut(&server) {
                known.up = false;
                let process = Process { server, incarnation: known.incarnation };
                self.order_place(process);
            }
        }
    }

    /// A server has its partitions of the map in force.
    fn welcome(&mut self, process: Process, placed: &Placed) {
        let Process { server, incarnation } = process;
        let known = self.servers.get(&server).copied();
        if known.is_some_and(|known| known.up && known.incarnation == incarnation) {
            self.learn(placed.version);
            self.order_save(process);
            return;
        }
        let other = known.filter(|known| known.incarnation != incarnation);
        self.replace(process, other);
        let first = self.placed.get(&server).is_none_or(|first| *first == incarnation);
        if self.goes_back() && !first {
            self.servers.insert(server, Server { incarnation, up: false });
            self.rollback();
            return;
        }
        self.placed.insert(server, incarnation);
        self.servers.insert(server, Server { incarnation, up: true });
        if self.fences.restored || !self.settled {
            self.done = self.done.intersect(&placed.applied);
        }
        self.learn(placed.version);
        self.try_settle();
    }

    /// A server has nothing of the map in force.
    fn introduce(&mut self, process: Process) {
        let Process { server, incarnation } = process;
        let known = self.servers.get(&server).copied();
        self.replace(process, known.filter(|known| known.incarnation != incarnation));
        self.servers.insert(server, Server { incarnation, up: false });
        if server < self.map.servers && self.goes_back() && self.is_taken(process) {
            self.rollback();
        } else {
            self.order_place(process);
        }
    }

    /// A server has applied so many steps as a whole: somebody had the proof that they are complete everywhere. An
    /// earlier master may have seen to it, or what was heard of a server was old.
    fn learn(&mut self, version: u64) {
        if !self.is_sync() || version <= self.complete_steps() {
            return;
        }
        let names = &self.settings.names;
        let (epoch, step) = (version / names.steps(), version % names.steps());
        self.done.prune(epoch);
        self.done.add(epoch, 0..step * u64::from(names.slices()));
        self.requeue();
        if self.round.as_ref().is_some_and(|round| round.is_before(version)) {
            self.void_round();
        }
    }

    /// Whether another process may have had the server's partitions of this map. Where steps are applied as a whole,
    /// only one ever has: another would lack what was staged on the first, and the first would still let in what
    /// is meant for the other.
    fn is_taken(&self, process: Process) -> bool {
        match self.placed.get(&process.server) {
            Some(first) => *first != process.incarnation,
            None => self.inherited,
        }
    }

    fn goes_back(&self) -> bool {
        self.is_sync() && self.fences.rollback
    }

    /// Another life of the server takes the place of the one that was known.
    fn replace(&mut self, process: Process, other: Option<Server>) {
        if process.server < self.map.servers {
            self.void_round();
        }
        if let Some(Server { incarnation, .. }) = other {
            let before = Process { server: process.server, incarnation };
            self.dismiss(before, "another process took its place");
        }
    }

    /// All servers of the map are up: work can begin, or go on.
    fn try_settle(&mut self) {
        let servers = 0..self.map.servers;
        if !servers.clone().all(|server| self.current(server).is_some()) {
            return;
        }
        if !self.settled {
            self.settled = true;
            let map = self.map.number;
            for process in servers.filter_map(|server| self.current(server)).collect::<Vec<_>>() {
                self.orders.push(Order::Settled { to: process, map });
            }
            let outside = self.servers.split_off(&self.map.servers);
            for (server, Server { incarnation, .. }) in outside {
                self.dismiss(Process { server, incarnation }, "the map has no place for it");
            }
        }
        self.told = None;
        self.requeue();
    }

    /// Whether a server has a place in the map, in the one before, or in the one to come.
    fn has_place_for(&self, server: u32) -> bool {
        server < self.needed_servers()
    }

    fn order_place(&mut self, to: Process) {
        // A place that is only to come is taken when the map is in force.
        let gives = matches!(self.source, Source::Servers(before) if to.server < before.servers);
        if to.server >= self.map.servers && (self.settled || !gives) {
            return;
        }
        let source = if self.settled { Source::Checkpoint } else { self.source };
        self.placed.insert(to.server, to.incarnation);
        let placement = Placement { map: self.map, source };
        let checkpoint = self.history.checkpoint;
        self.orders.push(Order::Place { to, placement, checkpoint });
    }

    fn dismiss(&mut self, to: Process, reason: &'static str) {
        self.orders.push(Order::Dismiss { to, reason });
    }
}
