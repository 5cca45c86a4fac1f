//! The parameter servers of a synchronous run: they hold the rows of tables, and so a part of every member's state.
//!
//! A member's state counts only together with the servers that it was made with. When one of them is lost, the next
//! generation begins with the last checkpoint. When another number of them is wanted and all are there, the next
//! generation begins by moving the rows, with the state that its members hold. Until they say that this is done, no
//! state counts.

use std::collections::BTreeMap;

use super::{Coordinator, Phase};
use crate::elastic::{Entry, Generation, History, Millis, Peer, Source, WorkerId};

/// Who sits where.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    wanted: usize,
    seats: BTreeMap<u32, Peer>,
}

/// What a generation does about the rows.
pub(super) struct Rows {
    /// Who holds them when it begins.
    pub(super) servers: Vec<Peer>,
    /// Who holds them when they have moved.
    pub(super) destination: Vec<Peer>,
    /// Since when they have been where they are.
    pub(super) since: Generation,
}

impl Servers {
    /// All that are wanted, by their seats, once all are there.
    fn all(&self) -> Option<Vec<Peer>> {
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

    /// How many have to run: those that are not wanted any more give their rows away first.
    pub fn needed_servers(&self) -> usize {
        let held = self.history.servers.len().max(self.history.destination.len());
        self.servers.wanted.max(held)
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
        self.servers.seats.retain(|_, server| server.id != id);
        let History { servers, destination, .. } = &self.history;
        if servers.contains(&id) || destination.contains(&id) {
            self.leave_servers(now);
        }
    }

    /// Another number of servers is wanted.
    pub fn scale_servers(&mut self, now: Millis, wanted: usize) {
        self.servers.wanted = wanted;
        self.journal(Entry::ScaledServers(wanted));
        self.look_at_servers(now);
    }

    /// The rows of a generation have moved.
    pub(super) fn moved(&mut self, now: Millis, generation: Generation) {
        if self.is_current(generation) && !self.history.destination.is_empty() {
            self.journal(Entry::Moved(generation));
            // Those that are not needed end soon, and are not to be taken for others that are started later.
            let needed = self.needed_servers() as u32;
            self.servers.seats.retain(|seat, _| *seat < needed);
            self.look_at_servers(now);
        }
    }

    /// Whether the rows are still where the last generation had them. Servers that the master has not heard of yet are
    /// taken to be there.
    pub(super) fn same_servers(&self) -> bool {
        self.history.destination.is_empty() && !self.is_replaced(&self.history.servers)
    }

    /// What a generation with this source of its state does about the rows, once all servers for it are there.
    pub(super) fn rows(&self, generation: Generation, source: &Source) -> Option<Rows> {
        match source {
            Source::Checkpoint { .. } => {
                let servers = self.servers.all()?;
                Some(Rows { servers, destination: Vec::new(), since: generation })
            }
            Source::Member { .. } => {
                let seats = 0..self.history.servers.len() as u32;
                let holders: Option<Vec<Peer>> =
                    seats.map(|seat| self.servers.seats.get(&seat).cloned()).collect();
                let destination = self.destination().unwrap_or_default();
                Some(Rows { servers: holders?, destination, since: self.history.rows })
            }
        }
    }

    /// The servers that the rows are to move to, once all are there.
    fn destination(&self) -> Option<Vec<Peer>> {
        let changes = self.servers.wanted != self.history.servers.len();
        let moves = changes && !self.history.stopping && !self.history.servers.is_empty();
        self.servers.all().filter(|_| moves)
    }

    /// Whether another process has the seat of one of these.
    fn is_replaced(&self, servers: &[WorkerId]) -> bool {
        let other = |(seat, server): (&u32, &Peer)| {
            servers.get(*seat as usize).is_some_and(|known| *known != server.id)
        };
        self.servers.seats.iter().any(other)
    }

    fn look_at_servers(&mut self, now: Millis) {
        let History { servers, destination, .. } = &self.history;
        let is_broken = self.is_replaced(servers) || self.is_replaced(destination);
        let is_moving = !destination.is_empty();
        match self.phase {
            Phase::Preparing(_) => self.try_activate(now),
            Phase::Running(_) if is_broken => self.leave_servers(now),
            Phase::Running(_) if !is_moving && self.destination().is_some() => self.regroup(now),
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
