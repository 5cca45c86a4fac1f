//! A search whose events are kept before anything follows from them.

use crate::journal::HeardEvent;
use crate::machine::{Search, SearchEvent, TrialAction};

/// Where events are kept.
pub trait EventLog {
    /// Why they cannot be kept.
    type Error;

    /// Adds whole lines; when this returns, they are there for good.
    fn append(&mut self, lines: &str) -> Result<(), Self::Error>;
}

/// A search with its journal: nothing follows from an event that is not kept.
#[derive(Debug)]
pub struct JournaledSearch<L> {
    search: Search,
    log: L,
    seconds: f64,
}

impl<L: EventLog> JournaledSearch<L> {
    /// Begins a search and hears again what was heard; gives all actions since the beginning.
    pub fn open(mut search: Search, heard: &[HeardEvent], log: L) -> (Self, Vec<TrialAction>) {
        let (actions, seconds) = search.hear_again(heard);
        (Self { search, log, seconds }, actions)
    }

    /// Hears events: they are kept, all with one append, before `each` is told what follows from them one after the
    /// other. `seconds` is how long the search has taken so far.
    pub fn hear(
        &mut self,
        events: &[SearchEvent],
        seconds: f64,
        mut each: impl FnMut(&Search, &SearchEvent, Vec<TrialAction>) -> Result<(), L::Error>,
    ) -> Result<(), L::Error> {
        let line = |event: &SearchEvent| HeardEvent { event: *event, seconds }.to_line() + "\n";
        self.log.append(&events.iter().map(line).collect::<String>())?;
        self.seconds = seconds;
        for event in events {
            let actions = self.search.arrive(*event);
            each(&self.search, event, actions)?;
        }
        Ok(())
    }

    /// The search.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// The search without its journal.
    pub fn into_search(self) -> Search {
        self.search
    }

    /// How many seconds it had taken when something was last heard.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

impl Search {
    /// Begins, and hears everything again; gives all actions, and the seconds that the search had taken.
    pub fn hear_again(&mut self, heard: &[HeardEvent]) -> (Vec<TrialAction>, f64) {
        let mut actions = self.begin();
        for HeardEvent { event, .. } in heard {
            actions.extend(self.arrive(*event));
        }
        (actions, heard.last().map_or(0.0, |last| last.seconds))
    }
}
