//! The master's side: which names are given to whom, and when they count as done.

mod answer;
mod epochs;
mod leases;
mod rounds;
mod servers;
#[cfg(test)]
mod tests;

use crate::progress::StepCount;
use std::collections::BTreeMap;

pub use answer::{DispatchAction, Lease, NotYet, Placed, ReportVerdict, ServerState, Waiting};

use super::{
    Applied, AsynchronousEntry, Consistency, Fence, History, Map, MapVersion, Numbering,
    PartitionSource, Placement, Process,
};
use crate::elastic::{Ending, Millis, Term};
use crate::ranges::Ranges;
use crate::status::MicroBatchStatus;
use leases::Leases;
use rounds::Round;
use servers::KnownServer;

/// What a run on parameter servers is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The names of an epoch.
    pub names: Numbering,
    /// How many epochs there are.
    pub epochs: u64,
    /// How far workers may run apart.
    pub consistency: Consistency,
    /// How many servers are wanted; whoever opens the dispatcher keeps that number.
    pub servers: u32,
    /// How long a lease is. Each report for it gives it as much time again.
    pub lease: Millis,
}

/// The names of a run as the master sees them: done, leased or to be given out.
///
/// It holds a lower bound of what the servers have applied, taken from what they said when they came and from
/// acks since; it journals none of it. [`take_orders`](Dispatcher::take_orders) is to be called after every input, and
/// its orders are to be followed in order.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    term: Term,
    settings: Settings,
    without: Option<Fence>,
    history: History,
    map: Map,
    source: PartitionSource,
    servers: BTreeMap<u32, KnownServer>,
    /// What all servers that are up have applied, as far as is known.
    done: Applied,
    /// Names that are neither done nor leased, by epoch; only the epochs that are open.
    pending: BTreeMap<u64, Ranges>,
    leases: Leases,
    /// All servers of the map have been up.
    settled: bool,
    round: Option<Round>,
    /// The number of the last checkpoint that was begun in this life.
    rounds: u32,
    /// A checkpoint is to be begun as soon as possible.
    save_wanted: bool,
    /// The epoch whose end was told and not yet answered.
    told: Option<u64>,
    /// How many servers are wanted.
    wanted: u32,
    ending: Option<Ending>,
    orders: Vec<DispatchAction>,
}

impl Dispatcher {
    /// Takes over a run, which may be new, from its journal.
    pub fn open(history: History, settings: Settings) -> Self {
        let term = history.term.next();
        let wanted = settings.servers.max(1);
        let begin = Placement {
            map: Map { number: MapVersion::default().next(term), servers: wanted },
            source: PartitionSource::Checkpoint,
        };
        let placement = history.placement.unwrap_or(begin);
        let mut dispatcher = Self {
            term,
            without: None,
            map: placement.map,
            source: placement.source,
            servers: BTreeMap::new(),
            done: Applied::everything(settings.names.slices(), settings.epochs),
            pending: BTreeMap::new(),
            leases: Leases::new(settings.lease, u64::from(term.0) << 32),
            settled: false,
            round: None,
            rounds: 0,
            save_wanted: false,
            told: None,
            wanted,
            ending: None,
            orders: Vec::new(),
            settings,
            history,
        };
        dispatcher.journal(AsynchronousEntry::Opened);
        if dispatcher.history.placement.is_none() {
            dispatcher.journal(AsynchronousEntry::Placed(begin));
        }
        if dispatcher.is_complete() {
            dispatcher.end(Ending::Completed);
        }
        dispatcher
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// The master's own term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Who holds what.
    pub fn map(&self) -> Map {
        self.map
    }

    /// What is journaled.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What is to be done since the last call, in this order: everything journaled is on disk before the next is
    /// sent.
    pub fn take_orders(&mut self) -> Vec<DispatchAction> {
        std::mem::take(&mut self.orders)
    }

    /// How the run ended, once it has: everything that was done is in the last checkpoint.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// How far the run is.
    pub fn status(&self) -> MicroBatchStatus {
        let left = |epoch| self.done.lacks(epoch, self.settings.names.all()).len();
        MicroBatchStatus {
            epochs: self.history.finished,
            left: self.open_epochs().map(left).sum(),
            leased: self.leases.count(),
            servers: self.servers.values().filter(|server| server.up).count(),
            map: self.map.number,
        }
    }

    /// Steps from the beginning of the run that are completely done.
    pub fn version(&self) -> StepCount {
        self.settings.names.complete_steps(&self.done, self.settings.epochs)
    }

    /// Whether all servers are there, and nobody works.
    pub fn is_idle(&self) -> bool {
        self.is_ready() && self.leases.is_empty()
    }

    /// Why nothing can be given out at all.
    fn obstacle(&self) -> Option<Waiting> {
        let absent = (0..self.map.servers).find(|server| self.current(*server).is_none());
        match () {
            () if absent.is_some() => absent.map(Waiting::Server),
            () if !self.settled => Some(Waiting::Placing),
            () if self.resizes_to().is_some() => Some(Waiting::Resizing),
            () if self.history.stopping => Some(Waiting::Stopping),
            () => None,
        }
    }

    /// Names that are neither done nor leased, anew.
    fn requeue(&mut self) {
        let names = self.settings.names.all();
        let left = |epoch| (epoch, self.leases.without(epoch, self.done.lacks(epoch, names)));
        let pending = self.open_epochs().map(left).filter(|(_, ranges)| !ranges.is_empty());
        self.pending = pending.collect();
    }

    /// The epochs whose names may be given out: those that were begun. Who has pruned one has all of it.
    fn open_epochs(&self) -> std::ops::Range<u64> {
        self.done.pruned()..(self.history.finished + 1).min(self.settings.epochs)
    }

    fn put_back(&mut self, epoch: u64, numbers: impl IntoIterator<Item = u64>) {
        let open = self.open_epochs();
        for number in numbers {
            let done = self.done.contains(self.settings.names.name(epoch, number));
            if open.contains(&epoch) && !done {
                self.pending.entry(epoch).or_default().insert(number);
            }
        }
    }

    /// Everything that may have become possible by what was heard.
    fn advance(&mut self) {
        self.try_resize();
        self.try_save();
        self.try_end_epoch();
        self.try_end();
    }

    /// The process of a server of the map that has its partitions.
    fn current(&self, server: u32) -> Option<Process> {
        let found = self.servers.get(&server).filter(|server| server.up)?;
        Some(Process { server, incarnation: found.incarnation })
    }

    /// The processes of the map that have their partitions.
    fn processes(&self) -> Vec<Process> {
        (0..self.map.servers).filter_map(|server| self.current(server)).collect()
    }

    fn is_ready(&self) -> bool {
        self.settled && self.processes().len() == self.map.servers as usize
    }

    fn journal(&mut self, entry: AsynchronousEntry) {
        self.history.apply(self.term, &entry);
        self.orders.push(DispatchAction::Journal(entry));
    }
}
