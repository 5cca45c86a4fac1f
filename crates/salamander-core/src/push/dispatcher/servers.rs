//! Servers that come, go and come back with less than they had, and partitions that move between them.

use super::{Dispatcher, Order, Placed, ServerState};
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
    /// have moved. The caller has journaled the number.
    pub fn resize(&mut self, servers: u32) {
        self.wanted = servers.max(1);
        self.advance();
    }

    /// How many servers have to run: those of the map, of the one before while partitions move, and of the one to come.
    pub fn needed_servers(&self) -> u32 {
        let before = match self.source {
            Source::Servers(before) if !self.settled => before.servers,
            _ => 0,
        };
        self.map.servers.max(before).max(self.wanted)
    }

    /// The number of servers to be reached, once all of them are there: work goes on while they start.
    pub(super) fn resizes_to(&self) -> Option<u32> {
        let present =
            |servers: &u32| (0..*servers).all(|server| self.servers.contains_key(&server));
        Some(self.wanted).filter(|wanted| *wanted != self.map.servers).filter(present)
    }

    pub(super) fn try_resize(&mut self) {
        let Some(servers) = self.resizes_to() else { return };
        let busy = !self.leases.is_empty() || self.round.is_some() || self.history.stopping;
        if self.is_ready() && !busy {
            self.place(servers);
        }
    }

    /// Puts a new map into force, whose servers get their partitions from those of the map before. The number is on
    /// disk before anybody hears of it.
    fn place(&mut self, servers: u32) {
        self.source = Source::Servers(self.map);
        self.map = Map { number: self.map.number.next(self.epoch), servers };
        self.journal(Entry::Placed(Placement { map: self.map, source: self.source }));
        self.void_round();
        self.settled = false;
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
            self.order_save(process);
            return;
        }
        let other = known.filter(|known| known.incarnation != incarnation);
        self.replace(process, other);
        self.servers.insert(server, Server { incarnation, up: true });
        if self.fences.restored || !self.settled {
            self.done = self.done.intersect(&placed.applied);
        }
        self.try_settle();
    }

    /// A server has nothing of the map in force.
    fn introduce(&mut self, process: Process) {
        let Process { server, incarnation } = process;
        let known = self.servers.get(&server).copied();
        self.replace(process, known.filter(|known| known.incarnation != incarnation));
        self.servers.insert(server, Server { incarnation, up: false });
        self.order_place(process);
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
        let placement = Placement { map: self.map, source };
        let checkpoint = self.history.checkpoint;
        self.orders.push(Order::Place { to, placement, checkpoint });
    }

    fn dismiss(&mut self, to: Process, reason: &'static str) {
        self.orders.push(Order::Dismiss { to, reason });
    }
}
