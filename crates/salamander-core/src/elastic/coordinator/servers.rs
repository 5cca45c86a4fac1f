//! The parameter servers of a synchronous run: they hold the rows of tables, and so a part of every member's state.
//!
//! A generation works with all servers that are wanted, and a member's state counts only together with the servers that
//! it was made with. When one is lost, or their number changes, the next generation begins with the last checkpoint.

use std::collections::BTreeMap;

use super::{Coordinator, Phase};
use crate::elastic::{Entry, Millis, Peer, WorkerId};

/// Who sits where.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    wanted: usize,
    seats: BTreeMap<u32, Peer>,
}

impl Servers {
    /// All that are wanted, by their seats, once all are there.
    pub(super) fn all(&self) -> Option<Vec<Peer>> {
        (0..self.wanted as u32).map(|seat| self.seats.get(&seat).cloned()).collect()
    }
}

impl Coordinator {
    /// So many servers are part of the run, unless another number was asked for since it began.
    pub fn with_servers(mut self, wanted: usize) -> Self {
        self.servers.wanted = self.history.wanted_servers.unwrap_or(wanted);
        self
    }

    /// How many servers are wanted.
    pub fn wanted_servers(&self) -> usize {
        self.servers.wanted
    }

    /// The servers that are there, by their seats.
    pub fn servers(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.servers.seats.iter().map(|(seat, peer)| (*seat, peer))
    }

    /// A server is ready, for the first time or after the master was away.
    pub fn server_up(&mut self, now: Millis, seat: u32, server: Peer) {
        self.servers.seats.insert(seat, server);
        self.look_at_servers(now);
    }

    /// A server has ended.
    pub fn server_lost(&mut self, now: Millis, id: WorkerId) {
        let before = self.servers.seats.len();
        self.servers.seats.retain(|_, server| server.id != id);
        if before != self.servers.seats.len() && self.history.servers.contains(&id) {
            self.leave_servers(now);
        }
    }

    /// Another number of servers is wanted.
    pub fn scale_servers(&mut self, now: Millis, wanted: usize) {
        self.servers.wanted = wanted;
        self.journal(Entry::ScaledServers(wanted));
        self.look_at_servers(now);
    }

    /// Whether the servers are those of the last generation. Those that the master has not heard of yet are taken to
    /// be.
    pub(super) fn same_servers(&self) -> bool {
        let known = &self.history.servers;
        let same = |(seat, server): (&u32, &Peer)| known.get(*seat as usize) == Some(&server.id);
        let wanted = self.servers.wanted;
        known.len() == wanted
            && self.servers.seats.iter().filter(|(seat, _)| **seat < wanted as u32).all(same)
    }

    fn look_at_servers(&mut self, now: Millis) {
        match self.phase {
            Phase::Preparing(_) => self.try_activate(now),
            Phase::Running(_) if !self.same_servers() => self.leave_servers(now),
            _ => {}
        }
    }

    /// The generation cannot go on: its members wait for the next one, which begins when all servers are there.
    fn leave_servers(&mut self, now: Millis) {
        if matches!(self.phase, Phase::Running(_)) {
            self.regroup(now);
        }
    }
}
