//! A master's process around the dispatcher: it writes the journal, sends orders and validates epochs.

use salamander_core::asynchronous::{
    AsynchronousEntry, DispatchAction, Dispatcher, PartitionSource, Process, ReportVerdict,
    Settings,
};
use salamander_core::elastic::{Ending, Millis};

use crate::event::{Body, Event, Node};
use crate::faults::Fault;
use crate::mood::Theme;
use crate::simulation::Seeded;
use crate::truth::KEPT;
use crate::world::{Guard, World, say};

const TICK: Millis = 40;
const LEASE: Millis = 300;

/// A process.
pub(crate) struct Master {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) alive: bool,
    /// It dies after so many orders.
    pub(crate) fuse: Option<u64>,
}

impl World {
    pub(crate) fn start_master(&mut self) {
        let settings = Settings {
            names: self.job.names.clone(),
            epochs: self.job.epochs,
            consistency: self.job.consistency,
            servers: self.job.servers,
            lease: LEASE,
        };
        let dispatcher = Dispatcher::open(self.history.clone(), settings);
        let dispatcher = dispatcher.without(self.without_fence());
        let index = self.masters.len();
        say!(self, "master {} starts", dispatcher.term());
        self.stats.two_masters += u64::from(self.masters.iter().any(|master| master.alive));
        self.masters.push(Master { dispatcher, alive: true, fuse: None });
        self.perform(index);
        self.after(TICK, Event::Tick(index));
    }

    pub(crate) fn end_master(&mut self, index: usize) {
        if std::mem::take(&mut self.masters[index].alive) {
            say!(self, "master {} ends", self.masters[index].dispatcher.term());
            self.asleep.remove(&Node::Master(index));
            if index + 1 == self.masters.len() {
                let delay = self.between(20, 300);
                self.after(delay, Event::StartMaster);
            }
        }
    }

    pub(crate) fn tick(&mut self, index: usize) {
        self.after(TICK, Event::Tick(index));
        if self.mood.looks && self.is_replaced(index) {
            return self.end_master(index);
        }
        let now = self.now;
        let expired = self.masters[index].dispatcher.tick(now).len();
        self.stats.expired += expired as u64;
        let saves = self.mood.saves;
        if self.chance(saves) {
            self.masters[index].dispatcher.save();
        }
        self.perform(index);
    }

    pub(crate) fn master_hears(&mut self, index: usize, from: Node, body: Body) {
        let now = self.now;
        let dispatcher = &mut self.masters[index].dispatcher;
        let mut answer = None;
        match (from, body) {
            (Node::Worker(worker), Body::LeaseAsk(most)) => {
                answer = Some(Body::Answer(dispatcher.lease(now, worker, most)));
            }
            (Node::Worker(worker), Body::Report(report)) => {
                let verdict = dispatcher.report(now, worker, &report);
                self.stats.unacked += u64::from(matches!(verdict, ReportVerdict::NotAcked(_)));
                self.stats.other_map += u64::from(verdict == ReportVerdict::OtherMap);
                answer = Some(Body::Heard(report.fence));
            }
            (Node::Worker(worker), Body::GiveBack(fence)) => dispatcher.give_back(worker, fence),
            (Node::Server(process), Body::State(state)) => {
                dispatcher.server_up(process.server, state);
            }
            (_, Body::Replaced) => return self.end_master(index),
            (Node::Server(process), Body::Saved(id)) => dispatcher.saved(process, id),
            (from, body) => panic!("{from:?} does not say {body:?} to a master"),
        }
        // What an answer depends on is on disk before it is sent.
        self.perform(index);
        if let Some(answer) = answer.filter(|_| self.masters[index].alive) {
            self.send(Node::Master(index), from, answer);
        }
    }

    /// Follows the dispatcher's orders.
    pub(crate) fn perform(&mut self, index: usize) {
        for order in self.masters[index].dispatcher.take_orders() {
            if !self.masters[index].alive {
                return;
            }
            match self.masters[index].fuse.take() {
                Some(0) => {
                    self.stats.master_crashes += 1;
                    return self.end_master(index);
                }
                fuse => self.masters[index].fuse = fuse.map(|left| left - 1),
            }
            let term = self.masters[index].dispatcher.term();
            match order {
                DispatchAction::Journal(entry) => self.write(index, &entry),
                DispatchAction::Validate { epoch } => {
                    let delay = self.between(1, 60);
                    self.after(delay, Event::Validated { master: index, epoch });
                }
                DispatchAction::End(ending) => {
                    say!(self, "master {term} sees the end: {ending:?}");
                    if ending == Ending::Interrupted {
                        let delay = self.between(1, 300);
                        self.after(delay, Event::Resume);
                    }
                }
                DispatchAction::Place { to, .. }
                | DispatchAction::Settled { to, .. }
                | DispatchAction::Save { to, .. }
                | DispatchAction::Prune { to, .. }
                | DispatchAction::Dismiss { to, .. } => {
                    say!(self, "master {term} orders {order:?}");
                    self.send(
                        Node::Master(index),
                        Node::Server(to),
                        Body::DispatchAction(term, order),
                    );
                }
            }
        }
    }

    pub(crate) fn validated(&mut self, index: usize, epoch: u64) {
        let answer = self.masters[index].dispatcher.next_epoch(epoch);
        say!(self, "epoch {epoch} was validated: {answer:?}");
        self.stats.reopened += u64::from(answer.is_err());
        self.perform(index);
        // What was done a moment ago is in no checkpoint yet.
        if self.mood.theme == Theme::Moves && self.chance(0.4) {
            let (servers, delay) = (self.between(1, 3) as u32, self.between(0, 60));
            self.strike(Fault::ResizeAndKill(servers, delay));
        }
    }

    pub(crate) fn tell_gone(&mut self, node: Node) {
        let Some(index) = self.masters.iter().rposition(|master| master.alive) else { return };
        if self.asleep.contains_key(&Node::Master(index)) {
            return;
        }
        let dispatcher = &mut self.masters[index].dispatcher;
        match node {
            Node::Server(process) => dispatcher.server_lost(process),
            Node::Worker(worker) => drop(dispatcher.release(worker)),
            Node::Master(_) => {}
        }
        self.perform(index);
    }

    /// Somebody lets a run that was stopped go on.
    pub(crate) fn resume(&mut self) {
        if !self.history.stopping {
            return;
        }
        self.stats.resumed += 1;
        self.history.apply(self.history.term, &AsynchronousEntry::Resumed);
        (0..self.masters.len()).for_each(|index| self.end_master(index));
        if self.chance(0.5) {
            let all: Vec<Process> = self.servers.keys().copied().collect();
            all.into_iter().for_each(|process| self.end_server(process));
        }
    }

    fn is_replaced(&self, index: usize) -> bool {
        self.history.term > self.masters[index].dispatcher.term()
    }

    fn write(&mut self, index: usize, entry: &AsynchronousEntry) {
        let term = self.masters[index].dispatcher.term();
        if self.is_replaced(index) {
            if self.has(Guard::Owner) {
                self.stats.refused_entries += 1;
                return self.end_master(index);
            }
            self.history.apply(self.history.term, entry);
        }
        say!(self, "master {term} writes {entry:?}");
        self.history.apply(term, entry);
        match entry {
            AsynchronousEntry::Placed(placement) => {
                let moves = matches!(placement.source, PartitionSource::Servers(_));
                self.stats.moves += u64::from(moves);
            }
            AsynchronousEntry::Kept(checkpoint) => {
                self.stats.checkpoints += 1;
                for part in 0..self.job.partitions as usize {
                    let Some(kept) = self.disk.get(&(checkpoint.id, part)) else {
                        return self.blame(KEPT, format!("partition {part} is not in it"));
                    };
                    if let Some((name, count)) = self.job.wrong(kept, checkpoint.epochs) {
                        self.blame(KEPT, format!("{name:?} is {count} times in partition {part}"));
                    }
                }
            }
            _ => {}
        }
    }

    /// Somebody asks the newest master for something.
    pub(crate) fn ask_master(&mut self, ask: impl FnOnce(&mut Dispatcher)) {
        let Some(index) = self.masters.iter().rposition(|master| master.alive) else { return };
        if !self.asleep.contains_key(&Node::Master(index)) {
            ask(&mut self.masters[index].dispatcher);
            self.perform(index);
        }
    }

    /// Whether the run needs a process for a server.
    pub(crate) fn needs_server(&self, server: u32) -> bool {
        let map = self.history.placement.map_or(self.job.servers, |placed| placed.map.servers);
        server < map.max(self.job.servers)
    }

    pub(crate) fn lives_of(&self, server: u32) -> impl Iterator<Item = Process> + '_ {
        self.servers.keys().copied().filter(move |process| process.server == server)
    }
}
