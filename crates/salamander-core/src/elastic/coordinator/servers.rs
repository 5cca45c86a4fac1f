//! The parameter servers of a synchronous run: they hold the rows of tables, and so a part of every member's state.
//!
//! A member's state counts only together with the servers that it was made with. When one of them is lost, the next
//! generation begins with the last checkpoint. When another number of them is wanted and all are there, the next
//! generation begins by moving the rows, with the state that its members hold. Until they say that this is done, no
//! state counts.

use super::{Action, Coordinator, Phase};
use crate::elastic::{Generation, History, MembershipEntry, Millis, Peer, StateSource, WorkerId};

/// What a generation does about the rows.
pub(super) struct RowsPlan {
    /// Who holds them when it begins.
    pub(super) servers: Vec<Peer>,
    /// Who holds them when they have moved.
    pub(super) destination: Vec<Peer>,
    /// Since when they have been where they are.
    pub(super) since: Generation,
}

impl Coordinator {
    /// How many have to run: those that are not wanted any more give their rows away first.
    pub fn needed_servers(&self) -> usize {
        let held = self.run.history.servers.len().max(self.run.history.destination.len());
        self.run.wanted.servers.max(held)
    }

    /// Those that are not needed are told to end now, and are not to be taken for others that are started later. Until
    /// then they may be wanted again, and say nothing more of themselves.
    pub fn forget_superfluous_servers(&mut self) {
        let needed = self.needed_servers() as u32;
        self.run.seats.retain(|seat, _| *seat < needed);
    }

    /// A server is ready, for the first time or after the master was away.
    pub fn server_up(&mut self, now: Millis, seat: u32, server: Peer) {
        let id = server.id;
        self.run.server_up(seat, server);
        self.forget_leavers();
        self.tell_again(id);
        self.look_at_servers(now);
    }

    /// A server has ended.
    pub fn server_lost(&mut self, now: Millis, id: WorkerId) {
        self.run.server_lost(id);
        self.forget_leavers();
        let History { servers, destination, .. } = &self.run.history;
        if servers.contains(&id) || destination.contains(&id) {
            self.leave_servers(now);
        }
    }

    /// Another number of servers is wanted.
    pub fn scale_servers(&mut self, now: Millis, wanted: usize) {
        let entry = self.run.scale_servers(wanted);
        self.actions.push(Action::Journal(entry));
        self.look_at_servers(now);
    }

    /// The rows of a generation have moved.
    pub(super) fn moved(&mut self, now: Millis, generation: Generation) {
        if self.is_current(generation) && !self.run.history.destination.is_empty() {
            self.journal(MembershipEntry::Moved(generation));
            self.look_at_servers(now);
        }
    }

    /// Whether the rows are still where the last generation had them. Servers that the master has not heard of yet are
    /// taken to be there.
    pub(super) fn same_servers(&self) -> bool {
        self.run.history.destination.is_empty() && !self.is_replaced(&self.run.history.servers)
    }

    /// What a generation with this source of its state does about the rows, once all servers for it are there.
    pub(super) fn rows(&self, generation: Generation, source: &StateSource) -> Option<RowsPlan> {
        match source {
            StateSource::Checkpoint { .. } => {
                let servers = self.seated(self.run.wanted.servers)?;
                Some(RowsPlan { servers, destination: Vec::new(), since: generation })
            }
            StateSource::Member { .. } => {
                let servers = self.seated(self.run.history.servers.len())?;
                let destination = self.destination().unwrap_or_default();
                Some(RowsPlan { servers, destination, since: self.run.history.rows })
            }
        }
    }

    /// The servers that the rows are to move to, once all are there.
    fn destination(&self) -> Option<Vec<Peer>> {
        let changes = self.run.wanted.servers != self.run.history.servers.len();
        let moves = changes && !self.run.history.stopping && !self.run.history.servers.is_empty();
        self.seated(self.run.wanted.servers).filter(|_| moves)
    }

    /// The servers of the first so many seats, once all are there.
    fn seated(&self, seats: usize) -> Option<Vec<Peer>> {
        (0..seats as u32).map(|seat| self.run.seats.get(&seat).cloned()).collect()
    }

    /// Whether another process has the seat of one of these.
    fn is_replaced(&self, servers: &[WorkerId]) -> bool {
        let other = |(seat, server): (&u32, &Peer)| {
            servers.get(*seat as usize).is_some_and(|known| *known != server.id)
        };
        self.run.seats.iter().any(other)
    }

    fn look_at_servers(&mut self, now: Millis) {
        let History { servers, destination, .. } = &self.run.history;
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
