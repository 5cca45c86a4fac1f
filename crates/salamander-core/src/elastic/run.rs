//! What every run has, whatever its mode: the master's term, how many processes are wanted, which parameter servers are
//! there, and how it ends. Each change is one entry of the journal, written once.

use std::collections::BTreeMap;

use super::{Ending, History, MembershipEntry, Peer, Term, WorkerId};

/// How many processes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedProcesses {
    /// Workers, at least 1.
    pub workers: usize,
    /// Parameter servers.
    pub servers: usize,
}

/// The part of a run's state that does not depend on how work is given out.
#[derive(Clone, Debug)]
pub struct RunState {
    pub(super) term: Term,
    pub(super) history: History,
    pub(super) wanted: WantedProcesses,
    /// The parameter servers that are there.
    pub(super) seats: BTreeMap<u32, Peer>,
}

impl RunState {
    /// Takes over a run, which may be new, from its journal. What was asked for since it began goes before `wanted`.
    pub fn open(history: History, wanted: WantedProcesses) -> Self {
        let wanted = WantedProcesses {
            workers: history.workers.unwrap_or(wanted.workers).max(1),
            servers: history.wanted_servers.unwrap_or(wanted.servers),
        };
        Self { term: history.term.next(), history, wanted, seats: BTreeMap::new() }
    }

    /// The master's own term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// What is journaled.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How many processes are wanted.
    pub fn wanted(&self) -> WantedProcesses {
        self.wanted
    }

    /// How the run ended, once it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.history.ending.as_ref()
    }

    /// The servers that are there, by their seats.
    pub fn servers(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.seats.iter().map(|(seat, peer)| (*seat, peer))
    }

    /// Another number of workers is wanted.
    #[must_use]
    pub fn scale(&mut self, workers: usize) -> MembershipEntry {
        self.wanted.workers = workers.max(1);
        self.enter(MembershipEntry::Scaled(self.wanted.workers))
    }

    /// Another number of servers is wanted.
    #[must_use]
    pub fn scale_servers(&mut self, servers: usize) -> MembershipEntry {
        self.wanted.servers = servers;
        self.enter(MembershipEntry::ScaledServers(servers))
    }

    /// An early end is wanted. None: that is known, or the run is over.
    #[must_use]
    pub fn stop(&mut self) -> Option<MembershipEntry> {
        let news = !self.history.stopping && self.history.ending.is_none();
        news.then(|| self.enter(MembershipEntry::Stopping))
    }

    /// The run is over. None: it was before.
    #[must_use]
    pub fn end(&mut self, ending: Ending) -> Option<MembershipEntry> {
        self.history.ending.is_none().then(|| self.enter(MembershipEntry::Ended(ending)))
    }

    /// A server is ready.
    pub fn server_up(&mut self, seat: u32, server: Peer) {
        self.seats.insert(seat, server);
    }

    /// A server has ended.
    pub fn server_lost(&mut self, id: WorkerId) {
        self.seats.retain(|_, server| server.id != id);
    }

    /// Takes in an entry that is to be written.
    pub(super) fn enter(&mut self, entry: MembershipEntry) -> MembershipEntry {
        self.history.apply(self.term, &entry);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_still_wanted_of_the_next_master() {
        let wanted = WantedProcesses { workers: 2, servers: 1 };
        let mut run = RunState::open(History::default(), wanted);
        let entries = [run.scale(3), run.scale_servers(4)];
        let mut history = History::default();
        entries.iter().for_each(|entry| history.apply(Term(1), entry));
        let next = RunState::open(history, wanted);
        assert_eq!(
            (next.term(), next.wanted()),
            (Term(2), WantedProcesses { workers: 3, servers: 4 })
        );
    }

    #[test]
    fn a_run_ends_once() {
        let mut run = RunState::open(History::default(), WantedProcesses::default());
        assert_eq!(run.stop(), Some(MembershipEntry::Stopping));
        assert_eq!(run.stop(), None);
        assert_eq!(run.end(Ending::Interrupted), Some(MembershipEntry::Ended(Ending::Interrupted)));
        assert_eq!((run.end(Ending::Completed), run.ending()), (None, Some(&Ending::Interrupted)));
    }
}
