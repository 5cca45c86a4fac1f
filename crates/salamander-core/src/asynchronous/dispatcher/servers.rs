//! Servers that come, go and come back with less than they had, and partitions that move between them.

use super::{DispatchAction, Dispatcher, Placed, ServerState};
use crate::asynchronous::{
    Applied, AsynchronousEntry, Fence, Map, PartitionSource, Placement, Process,
};

/// A server as the master sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownServer {
    pub(super) incarnation: u64,
    /// It has its partitions of the map in force.
    pub(super) up: bool,
}

impl Dispatcher {
    /// A server says what it has: at each connection, and when it has got its partitions. What the server holds of
    /// the map in force counts; if it holds nothing of it, it is told what to get.
    pub fn server_up(&mut self, server: u32, state: ServerState) {
        let process = Process { server, incarnation: state.incarnation };
        if server >= self.needed_servers() {
            self.dismiss(process, "there is no place for it in the map");
            return;
        }
        let in_force = |placed: &Placed| placed.map == self.map.number && server < self.map.servers;
        let placed = state.placed.filter(in_force);
        if self.current(server) != Some(process) {
            self.seat(process, placed);
        } else if placed.is_some() {
            self.order_save(process);
        }
        // Else it has said so before it got its partitions, and is heard late.
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
            PartitionSource::Servers(before) if !self.settled => before.servers,
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
        self.source = PartitionSource::Servers(self.map);
        self.map = Map { number: self.map.number.next(self.term), servers };
        self.journal(AsynchronousEntry::Placed(Placement { map: self.map, source: self.source }));
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

    /// A process has got its partitions of the map in force, or has none of them yet and is told to get them.
    fn seat(&mut self, process: Process, placed: Option<Placed>) {
        let Process { server, incarnation } = process;
        if server < self.map.servers {
            self.void_round();
        }
        let before = self.servers.insert(server, KnownServer { incarnation, up: placed.is_some() });
        if let Some(before) = before.filter(|before| before.incarnation != incarnation) {
            let before = Process { server, incarnation: before.incarnation };
            self.dismiss(before, "another process took its place");
        }
        let Some(placed) = placed else { return self.order_place(process) };
        if self.without != Some(Fence::Restored) || !self.settled {
            self.done = self.done.intersect(&placed.applied);
        }
        self.try_settle();
    }

    /// All servers of the map are up: work can begin, or go on.
    fn try_settle(&mut self) {
        let processes = self.processes();
        if processes.len() < self.map.servers as usize {
            return;
        }
        if !self.settled {
            self.settled = true;
            let map = self.map.number;
            self.orders.extend(processes.into_iter().map(|to| DispatchAction::Settled { to, map }));
            let outside = self.servers.split_off(&self.map.servers);
            for (server, KnownServer { incarnation, .. }) in outside {
                self.dismiss(Process { server, incarnation }, "the map has no place for it");
            }
        }
        self.told = None;
        self.requeue();
    }

    fn order_place(&mut self, to: Process) {
        // A place that is only to come is taken when the map is in force.
        let gives =
            matches!(self.source, PartitionSource::Servers(before) if to.server < before.servers);
        if to.server >= self.map.servers && (self.settled || !gives) {
            return;
        }
        let source = if self.settled { PartitionSource::Checkpoint } else { self.source };
        let placement = Placement { map: self.map, source };
        let (checkpoint, older) = (self.history.checkpoint, self.history.older);
        self.orders.push(DispatchAction::Place { to, placement, checkpoint, older });
    }

    fn dismiss(&mut self, to: Process, reason: &'static str) {
        self.orders.push(DispatchAction::Dismiss { to, reason });
    }
}
