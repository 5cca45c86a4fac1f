//! A worker's process around the participant: it carries orders to it, does what it wants done, and is its trainer.

use salamander_core::elastic::{
    Begun, Effect, FromMember, Generation, Holding, Millis, Participant, ReportQueue, StartFrom,
    Term, ToMember, Version, WorkerId,
};

use crate::calls::MemberRows;
use crate::event::{Down, Event, Up, Word};
use crate::simulation::say;
use crate::truth::{Content, NOTHING, StateId};
use crate::world::World;

const BEAT: Millis = 120;
/// How long a worker waits for a master that does not answer.
const DEAF: Millis = 300;

/// A process.
pub(crate) struct Worker {
    pub(crate) machine: Participant,
    /// What the member's identity stands for.
    pub(crate) state: StateId,
    /// What it really has in it; none while it is being changed.
    pub(crate) content: Option<Content>,
    /// What it will have when that is done.
    pub(crate) changing: Option<Content>,
    /// The platform's place for it.
    pub(crate) slot: u32,
    pub(crate) reports: ReportQueue<Content>,
    /// The generation that its trainer works in, which may be over.
    pub(crate) began: Option<Generation>,
    part: Option<StartFrom>,
    pub(crate) session: Option<usize>,
    /// Messages that must not be lost.
    pub(crate) outbox: Vec<(u64, Word)>,
    /// What a master of this term has acted on and another hears again.
    pub(crate) acted_on: (Option<Term>, Vec<(u64, Word)>),
    numbered: u64,
    pub(crate) paused: bool,
    pub(crate) deferred: Vec<Event>,
    /// When it was last kept from answering.
    pub(crate) hindered: Millis,
    /// The exchange it is in, counted within the generation.
    pub(crate) op: u64,
    /// It computes for an exchange, waits for its result or applies it.
    pub(crate) busy: bool,
    /// Its gift is given.
    pub(crate) gave: bool,
    /// The result is on its way but will not arrive.
    pub(crate) unlucky: bool,
    pub(crate) progress: u64,
    /// The version at which all members met.
    pub(crate) met: Option<Version>,
    /// All members know that the run is to stop.
    pub(crate) agreed: bool,
    /// All members know that a server wants to leave.
    pub(crate) holds: bool,
    pub(crate) rows: MemberRows,
}

impl Worker {
    fn new(machine: Participant, slot: u32) -> Self {
        Self {
            machine,
            state: NOTHING,
            content: None,
            changing: None,
            slot,
            reports: ReportQueue::default(),
            began: None,
            part: None,
            session: None,
            outbox: Vec::new(),
            acted_on: (None, Vec::new()),
            numbered: 0,
            paused: false,
            deferred: Vec::new(),
            hindered: 0,
            op: 0,
            busy: false,
            gave: false,
            unlucky: false,
            progress: 0,
            met: None,
            agreed: false,
            holds: false,
            rows: MemberRows::default(),
        }
    }

    pub(crate) fn rank(&self) -> Option<usize> {
        let members = &self.machine.activation()?.members;
        members.iter().position(|peer| peer.id == self.machine.id())
    }

    /// It knows that the run is over.
    pub(crate) fn finished(&self) -> bool {
        self.machine.ending().is_some()
    }
}

impl World {
    /// The platform starts a process.
    pub(crate) fn spawn(&mut self) {
        self.born += 1;
        let id = WorkerId(self.rng.below(0xff) << 16 | self.born);
        let taken = |slot: &u32| self.workers.values().any(|worker| worker.slot == *slot);
        let slot = (0..).find(|slot| !taken(slot)).expect("there are many");
        say!(self, "{id} starts");
        let machine = Participant::new(id).without(self.without_fence());
        self.workers.insert(id, Worker::new(machine, slot));
        self.connect(id);
        self.after(BEAT, Event::Beat(id));
    }

    pub(crate) fn worker(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).expect("events of dead workers are dropped")
    }

    pub(crate) fn beat(&mut self, id: WorkerId) {
        if self.workers[&id].finished() {
            return;
        }
        self.after(BEAT, Event::Beat(id));
        let Some(session) = self.workers[&id].session else { return };
        let index = self.network.sessions[session].master;
        if index + 1 < self.masters.len() {
            // Only the newest master can know of it.
            self.hinder(id);
        }
        let deaf = self.masters[index].paused.is_some_and(|since| since + DEAF < self.now);
        // A cut in one direction is noticed by whoever waits for an answer.
        if deaf || self.is_half_cut(id, DEAF) {
            self.lose_session(id, session);
        } else {
            self.send_up(id, Up::Beat);
        }
    }

    /// Notes that a worker is kept from answering.
    pub(crate) fn hinder(&mut self, id: WorkerId) {
        let now = self.now;
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.hindered = worker.hindered.max(now);
        }
    }

    /// Sends what must not be lost: it is sent again at each connection.
    pub(crate) fn send_firmly(&mut self, id: WorkerId, message: Word) {
        let worker = self.worker(id);
        worker.numbered += 1;
        let number = worker.numbered;
        worker.outbox.push((number, message.clone()));
        self.send_up(id, Up::Say(number, message));
    }

    /// A message of a master.
    pub(crate) fn order(&mut self, id: WorkerId, term: Term, message: Down) {
        let worker = self.worker(id);
        if worker.machine.welcome(term).is_err() {
            self.stats.refused_masters += 1;
            return;
        }
        let message = match message {
            Down::Received(number) => {
                let acted_on = worker.outbox.extract_if(.., |(sent, _)| *sent <= number);
                let each = |word: &Word| {
                    matches!(word, Word::Report(_) | Word::Member(FromMember::Holds(_)))
                };
                let repeated = acted_on.filter(|(_, word)| each(word));
                return worker.acted_on.1.extend(repeated);
            }
            Down::Order(message) => message,
        };
        self.check_order(&message);
        say!(self, "{id} hears {message:?}");
        match &message {
            ToMember::Kept(mark) => self.tidy(mark),
            ToMember::Activate(_) => {
                let delay = self.between(0, 8);
                self.after(delay, Event::Begin(id));
            }
            _ => {}
        }
        self.worker(id).machine.message(message);
        self.act(id);
    }

    /// Does what the participant wants done. What is cancelled may still give a result.
    pub(crate) fn act(&mut self, id: WorkerId) {
        for effect in self.worker(id).machine.take_effects() {
            match effect {
                Effect::Send(message @ (FromMember::Promise(..) | FromMember::Busy(_))) => {
                    say!(self, "{id} says {message:?}");
                    self.stats.busy += u64::from(matches!(message, FromMember::Busy(_)));
                    if let FromMember::Promise(_, Holding { identity: Some(said), .. }) = message {
                        let held = self.workers[&id].content;
                        self.truth.check_holding(&id.to_string(), said, held);
                    }
                    self.send_up(id, Up::Say(0, Word::Member(message)));
                }
                Effect::Send(message) => self.send_firmly(id, Word::Member(message)),
                Effect::Cancel => {}
                Effect::Refused(fenced) => say!(self, "{id} refuses: {fenced}"),
            }
        }
    }

    /// The trainer is free for a generation that was announced.
    pub(crate) fn begin(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        let Some(Begun { activation, part, .. }) = worker.machine.begin() else { return };
        let generation = activation.generation;
        (worker.part, worker.began) = (Some(part), Some(generation));
        (worker.op, worker.busy, worker.gave) = (0, false, false);
        (worker.met, worker.agreed, worker.holds) = (None, false, false);
        worker.rows = MemberRows::default();
        say!(self, "{id} begins {generation}: {:?}", self.workers[&id].part);
        self.progress(id, generation);
        self.enter(id, generation);
    }

    /// The members of a generation are connected: the state comes next.
    pub(crate) fn take_part(&mut self, id: WorkerId, generation: Generation) {
        let part = self.worker(id).part.take();
        match part {
            Some(StartFrom::Keep) => {
                // A prepare may have come meanwhile; then there is nothing to confirm.
                if self.worker(id).machine.adopt(generation, 0).is_ok() {
                    self.repeat_reports(id);
                }
                self.confirmed(id, generation);
            }
            Some(StartFrom::Load(mark)) => {
                let delay = self.between(5, 60);
                let worker = self.worker(id);
                worker.content = None;
                worker.reports.forget();
                match self.is_hybrid() {
                    true => self.restore_rows(id, mark),
                    false => self.after(delay, Event::Loaded { worker: id, generation, mark }),
                }
            }
            Some(StartFrom::Receive { .. }) => self.fetch(id, generation),
            None => {}
        }
        self.enter(id, generation);
    }

    pub(crate) fn confirmed(&mut self, id: WorkerId, generation: Generation) {
        self.act(id);
        self.progress(id, generation);
        self.enter(id, generation);
    }

    /// Something went on: the worker looks again after a while.
    pub(crate) fn progress(&mut self, id: WorkerId, generation: Generation) {
        let worker = self.worker(id);
        worker.progress += 1;
        let progress = worker.progress;
        // Longer than another may take to apply.
        let slowest = if self.is_wild() { self.mood.apply } else { 0 };
        let patience = self.between(300, 500) + slowest;
        self.after(patience, Event::Stuck { worker: id, generation, progress });
    }

    /// Nothing went on for a while: the generation is broken.
    pub(crate) fn stuck(&mut self, id: WorkerId, generation: Generation, progress: u64) {
        let worker = &self.workers[&id];
        let rests = self.is_done(id) || self.is_holding(id);
        let waits = worker.gave || worker.op > 0 && !worker.busy && !rests;
        if worker.machine.generation() != Some(generation) || worker.progress != progress || !waits
        {
            return;
        }
        let accused = self.absent(id);
        say!(self, "{id} finds {generation} broken, by {accused:?}");
        self.worker(id).machine.broken(accused);
        self.act(id);
        self.progress(id, generation);
    }
}
