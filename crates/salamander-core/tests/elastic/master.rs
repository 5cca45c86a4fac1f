//! A master's process around the coordinator: it journals, sends, sleeps, dies and is replaced.

use std::collections::{BTreeMap, VecDeque};

use salamander_core::elastic::{
    Action, Coordinator, Ending, FromMember, Generation, History, Identity, MembershipEntry,
    Millis, Phase, RunState, Term, ToMember, WantedProcesses, WorkerId,
};

use crate::event::{Down, Event, Up, Word};
use crate::simulation::{Seeded, say};
use crate::truth::NOTHING;
use crate::worker::Worker;
use crate::world::{Guard, TIMEOUTS, World};

const TICK: Millis = 40;

/// What befalls a master in the middle of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Crash,
    Pause(Millis),
    /// It sleeps, and another is started meanwhile.
    Replace(Millis),
}

/// A process.
pub(crate) struct Master {
    pub(crate) coordinator: Coordinator,
    pub(crate) alive: bool,
    pub(crate) paused: Option<Millis>,
    /// The newest connection of each worker.
    pub(crate) sessions: BTreeMap<WorkerId, usize>,
    pub(crate) deferred: Vec<Event>,
    /// What it was about to do when it fell asleep.
    pending: VecDeque<Task>,
    /// After so many more actions this befalls it.
    pub(crate) fuse: Option<(u64, Fate)>,
}

#[derive(Clone, Debug)]
enum Task {
    Act(Action),
    Receive(WorkerId, u64),
}

impl World {
    /// A process reads the journal and takes over, whether or not another one still runs.
    pub(crate) fn start_master(&mut self) {
        let mut history = History::default();
        self.journal.iter().for_each(|(term, entry)| history.apply(*term, entry));
        let wanted = WantedProcesses { workers: self.mood.workers, servers: self.mood.servers };
        let (run, min) = (RunState::open(history, wanted), self.mood.min);
        let coordinator = Coordinator::open(run, min, TIMEOUTS, self.now);
        let coordinator = coordinator.without(self.without_fence());
        say!(self, "master {} starts", coordinator.run().term());
        let others = self.masters.iter().filter(|master| master.alive).count();
        self.stats.masters += 1;
        self.stats.two_masters += u64::from(others > 0);
        self.masters.push(Master {
            coordinator,
            alive: true,
            paused: None,
            sessions: BTreeMap::new(),
            deferred: Vec::new(),
            pending: VecDeque::new(),
            fuse: None,
        });
        self.tick(self.masters.len() - 1);
    }

    /// A run that was stopped goes on, with new processes; who slept through its end is still there.
    pub(crate) fn resume(&mut self) {
        say!(self, "the run is resumed");
        self.stats.resumed += 1;
        for index in 0..self.masters.len() {
            self.end_master(index, "leaves");
        }
        self.workers.retain(|_, worker| !worker.finished());
        self.servers.clear();
        let term = self.history.term;
        self.history.apply(term, &MembershipEntry::Resumed);
        self.journal.push((term, MembershipEntry::Resumed));
        self.start_master();
        let wanted = self.history.workers.unwrap_or(self.mood.workers);
        (0..wanted).for_each(|_| self.spawn());
    }

    pub(crate) fn tick(&mut self, index: usize) {
        let (now, quiet) = (self.now, !self.is_wild());
        let replaced = self.history.term > self.masters[index].coordinator.run().term();
        if replaced && self.has(Guard::Owner) && (self.mood.looks || quiet) {
            return self.end_master(index, "sees that it was replaced");
        }
        self.masters[index].coordinator.tick(now);
        self.perform(index, None);
        self.end_the_superfluous(index);
        self.after(TICK, Event::Tick(index));
    }

    /// A message arrives.
    pub(crate) fn hear(&mut self, index: usize, id: WorkerId, session: usize, message: Up) {
        let now = self.now;
        let master = &mut self.masters[index];
        let newest = master.sessions.get(&id).copied();
        let mut received = None;
        if self.network.sessions[session].is_over {
            return;
        }
        match message {
            Up::Hello(hello) if newest.is_none_or(|newest| newest <= session) => {
                master.sessions.insert(id, session);
                master.coordinator.hello(now, hello);
            }
            _ if newest != Some(session) => return,
            Up::Hello(_) => {}
            Up::Beat => master.coordinator.heard(now, id),
            Up::Say(number, message) => {
                received = (number > 0).then_some((id, number));
                self.take_word(index, id, message);
            }
        }
        self.perform(index, received);
    }

    fn take_word(&mut self, index: usize, id: WorkerId, word: Word) {
        let (now, newest) = (self.now, index + 1 == self.masters.len());
        let coordinator = &mut self.masters[index].coordinator;
        match word {
            Word::Member(message) => {
                let broken = message.clone();
                let term = coordinator.run().term();
                coordinator.message(now, id, message);
                if let FromMember::Broken(generation, Some(accused)) = broken {
                    // One that has nothing puts nobody out who has the state.
                    let has_state = self.workers.get(&id).is_none_or(|worker| {
                        worker.machine.holding().confirmed == Some(generation)
                    });
                    if has_state || accused == id || generation.term != term {
                        self.hinder(accused);
                    }
                }
            }
            // The file is the newest master's.
            Word::Report(told) if newest && coordinator.is_on_line(told.generation) => {
                coordinator.worked(told.generation);
                let line = coordinator.run().history().line;
                self.take_report(line, told);
            }
            Word::Report(_) => {}
            Word::Failed => {
                let is_member = coordinator.members().iter().any(|(member, _)| *member == id);
                let was_over = coordinator.run().ending().is_some();
                coordinator.failed(now, id, "it says so".to_string());
                let has_failed = matches!(coordinator.phase(), Phase::Ended(Ending::Failed(_)));
                if !is_member && has_failed && !was_over {
                    self.truth.blame("only a member's failure ends the run", id.to_string());
                }
            }
        }
    }

    /// The platform ends those that are too many, but for those that have something to hand over.
    fn end_the_superfluous(&mut self, index: usize) {
        let coordinator = &self.masters[index].coordinator;
        let wanted = coordinator.run().wanted().workers as u32;
        let needed = coordinator.needed_slots();
        let is_over = coordinator.run().ending().is_some();
        let Master { alive, paused, pending, .. } = &self.masters[index];
        // What it decided is on disk before the platform hears of it.
        let is_done = *alive && paused.is_none() && pending.is_empty();
        let is_newest = index + 1 == self.masters.len() && is_done;
        if is_newest && !is_over {
            self.look_after_servers(index);
        }
        if !self.mood.scales_down || !is_newest || is_over {
            return;
        }
        let has_to_go = |(id, worker): (&WorkerId, &Worker)| {
            let kept = needed.as_ref().is_none_or(|needed| needed.contains(&worker.slot));
            let kept = kept && self.has(Guard::HandOver);
            (worker.slot >= wanted && !kept && worker.session.is_some()).then_some(*id)
        };
        let gone: Vec<WorkerId> = self.workers.iter().filter_map(has_to_go).collect();
        for id in gone {
            let last = self.history.activated.as_ref().map(|(last, _)| *last);
            let holds = self.workers[&id].machine.holding().confirmed == last && last.is_some();
            let is_member = self.history.order.contains(&id);
            // One that the master does not reach is given up as lost.
            let Worker { paused, hindered, .. } = self.workers[&id];
            let in_reach = !paused && hindered + 2 * TIMEOUTS.silence < self.now;
            if holds && is_member && in_reach {
                self.truth.blame("who has to go hands over first", id.to_string());
            }
            say!(self, "{id} is not wanted any more");
            self.stats.handed_over += 1;
            self.end_worker(id);
        }
    }

    pub(crate) fn disconnected(&mut self, index: usize, id: WorkerId, session: usize) {
        let now = self.now;
        self.network.sessions[session].is_over = true;
        let master = &mut self.masters[index];
        if master.sessions.get(&id) == Some(&session) {
            master.sessions.remove(&id);
            master.coordinator.disconnected(now, id);
            self.perform(index, None);
        }
    }

    /// The platform tells the newest master of a death, if it listens.
    pub(crate) fn tell_gone(&mut self, id: WorkerId) {
        let (index, now) = (self.masters.len() - 1, self.now);
        let master = &mut self.masters[index];
        if master.alive && master.paused.is_none() {
            master.coordinator.gone(now, id, "it was killed");
            self.perform(index, None);
        }
    }

    /// Does what the coordinator wants, in its order, until something befalls the process.
    pub(crate) fn perform(&mut self, index: usize, received: Option<(WorkerId, u64)>) {
        let mut actions = self.masters[index].coordinator.take_actions();
        if !self.has(Guard::Journal) {
            // What is sent goes out first.
            actions.sort_by_key(|action| matches!(action, Action::Journal(_)));
        }
        let tasks = actions.into_iter().map(Task::Act);
        let received = received.map(|(id, number)| Task::Receive(id, number));
        self.masters[index].pending.extend(tasks.chain(received));
        while let Some(task) = self.masters[index].pending.pop_front() {
            if self.burn(index) {
                self.masters[index].pending.push_front(task);
                return;
            }
            match task {
                Task::Act(Action::Journal(entry)) => self.append(index, entry),
                Task::Act(Action::Send(id, message)) if self.servers.contains_key(&id) => {
                    self.send_to_server(index, id, &message);
                }
                Task::Act(Action::Send(id, message)) => {
                    self.send_down(index, id, Down::Order(message));
                }
                Task::Act(Action::Dropped(id, reason)) => say!(self, "{id} is dropped: {reason}"),
                Task::Receive(id, number) => self.send_down(index, id, Down::Received(number)),
            }
            if !self.masters[index].alive {
                return;
            }
        }
    }

    /// Whether something befalls the master now.
    fn burn(&mut self, index: usize) -> bool {
        let master = &mut self.masters[index];
        let Some((left, fate)) = master.fuse else { return false };
        master.fuse = (left > 0).then(|| (left - 1, fate));
        if left == 0 {
            self.befall(index, fate);
        }
        left == 0
    }

    pub(crate) fn befall(&mut self, index: usize, fate: Fate) {
        if !self.masters[index].alive || self.masters[index].paused.is_some() {
            return;
        }
        say!(self, "master {}: {fate:?}", self.masters[index].coordinator.run().term());
        match fate {
            Fate::Crash => {
                self.stats.master_crashes += 1;
                self.end_master(index, "is killed");
            }
            Fate::Pause(millis) | Fate::Replace(millis) => {
                self.masters[index].paused = Some(self.now);
                self.after(millis, Event::WakeMaster(index));
            }
        }
        let replaced = matches!(fate, Fate::Crash | Fate::Replace(_));
        if replaced && index + 1 == self.masters.len() {
            let delay = self.between(20, 600);
            self.after(delay, Event::StartMaster);
        }
    }

    /// What was due meanwhile happens now, its own timer perhaps before the messages.
    pub(crate) fn wake_master(&mut self, index: usize) {
        if !self.masters[index].alive || self.masters[index].paused.take().is_none() {
            return;
        }
        say!(self, "master {} wakes", self.masters[index].coordinator.run().term());
        self.perform(index, None);
        let mut deferred = std::mem::take(&mut self.masters[index].deferred);
        if self.chance(0.5) {
            deferred.sort_by_key(|event| !matches!(event, Event::Tick(_)));
        }
        deferred.into_iter().for_each(|event| self.happen(event));
    }

    fn end_master(&mut self, index: usize, why: &str) {
        let master = &mut self.masters[index];
        (master.alive, master.paused) = (false, None);
        master.pending.clear();
        say!(self, "master {} {why}", self.masters[index].coordinator.run().term());
        for session in 0..self.network.sessions.len() {
            if self.network.sessions[session].master == index {
                self.break_session(session);
            }
        }
    }

    /// Writes an entry, unless the journal belongs to another master by now.
    fn append(&mut self, index: usize, entry: MembershipEntry) {
        let term = self.masters[index].coordinator.run().term();
        if term < self.history.term {
            self.stats.refused_entries += 1;
            if self.has(Guard::Owner) {
                self.end_master(index, "may not write: it was replaced");
            }
            return;
        }
        say!(self, "journal {term}: {entry:?}");
        self.note(&entry);
        let line = self.history.line;
        self.history.apply(term, &entry);
        self.journal.push((term, entry));
        if self.history.line != line {
            // What was given up was told in vain.
            self.log.retain(|(version, _)| *version <= self.history.line.from);
        }
    }

    /// What the journal says is checked against what is true.
    fn note(&mut self, entry: &MembershipEntry) {
        match entry {
            MembershipEntry::Activated { generation, members, .. } => {
                self.stats.generations += 1;
                let restored = members.iter().all(|(_, identity)| identity.is_none());
                if restored && let Some((last, before)) = self.history.activated.clone() {
                    self.stats.restores += 1;
                    self.note_restore(generation.term, last, &before);
                }
                let stay = |id: &WorkerId| members.iter().any(|(member, _)| member == id);
                let asleep = |id: &&WorkerId| self.workers.get(id).is_some_and(|w| w.paused);
                let left = self.history.order.iter().filter(|id| !stay(id)).filter(asleep);
                self.stats.dropped_sleepers += left.count() as u64;
            }
            MembershipEntry::Checkpoint(mark) => {
                let state = self.store.get(&mark.id).map(|(_, state)| *state);
                if state.is_none() {
                    self.truth.blame("journaled checkpoints exist", mark.id.clone());
                }
                self.truth.checkpoints.push(state.unwrap_or(NOTHING));
                self.stats.checkpoints += 1;
            }
            MembershipEntry::Ended(Ending::Interrupted) => self.stats.interrupted += 1,
            MembershipEntry::Moved(_) => self.stats.moves += 1,
            _ => {}
        }
    }

    /// A checkpoint is about to be read, so that later states are given up.
    fn note_restore(
        &mut self,
        term: Term,
        last: Generation,
        before: &BTreeMap<WorkerId, Option<Identity>>,
    ) {
        let History { servers, destination, .. } = &self.history;
        let is_lost = |server: &WorkerId| !self.servers.contains_key(server);
        // A state does not count without its rows.
        if !destination.is_empty() || servers.iter().any(is_lost) {
            self.stats.rows_lost += 1;
            return self.check_leavers(term, last);
        }
        for (id, promised) in before {
            let Some(worker) = self.workers.get(id) else { continue };
            let holds = promised.is_some() || worker.machine.holding().confirmed == Some(last);
            let in_reach = !worker.paused && worker.hindered + 2 * TIMEOUTS.silence < self.now;
            if holds && in_reach && self.mood.strays == 0.0 {
                let what = format!("{id} still holds the state of generation {last}");
                self.truth.blame("a checkpoint is read only when all holders are lost", what);
            }
        }
    }

    /// An order that says something is on disk arrives: it must be.
    pub(crate) fn check_order(&mut self, message: &ToMember) {
        let on_disk =
            |wanted: &MembershipEntry| self.journal.iter().any(|(_, entry)| entry == wanted);
        let missing = match message {
            ToMember::Kept(mark) => !on_disk(&MembershipEntry::Checkpoint(mark.clone())),
            ToMember::Ended(ending) => !on_disk(&MembershipEntry::Ended(ending.clone())),
            _ => false,
        };
        if missing {
            self.truth.blame("what is told outside is journaled", format!("{message:?}"));
        }
    }
}
