//! A worker's process around the member: it follows orders, gets its state and tells outside what may be told.

use salamander_core::elastic::{
    Activation, FromMember, Generation, Member, Millis, Part, ToMember, WorkerId,
};

use crate::event::{Down, Event, Up};
use crate::truth::{NOTHING, StateId};
use crate::world::{World, say};

const BEAT: Millis = 120;
/// How long a worker waits for a master that does not answer.
const DEAF: Millis = 300;

/// A process.
pub(crate) struct Worker {
    pub(crate) member: Member,
    /// What the member's identity stands for.
    pub(crate) state: StateId,
    pub(crate) activation: Option<Activation>,
    part: Option<Part>,
    pub(crate) session: Option<usize>,
    /// Messages that must not be lost.
    pub(crate) outbox: Vec<(u64, FromMember)>,
    numbered: u64,
    pub(crate) paused: bool,
    pub(crate) deferred: Vec<Event>,
    pub(crate) finished: bool,
    /// When it was last kept from answering.
    pub(crate) hindered: Millis,
    /// The exchange it is in, counted within the generation.
    pub(crate) op: u64,
    /// It computes for an exchange, or waits for its result.
    pub(crate) busy: bool,
    /// Its gift is given.
    pub(crate) gave: bool,
    /// The result is on its way but will not arrive.
    pub(crate) unlucky: bool,
    pub(crate) progress: u64,
    /// The version at which all members met.
    pub(crate) met: Option<u64>,
    pub(crate) stop: bool,
    /// All members know that the run is to stop.
    pub(crate) agreed: bool,
}

impl Worker {
    fn new(member: Member) -> Self {
        Self {
            member,
            state: NOTHING,
            activation: None,
            part: None,
            session: None,
            outbox: Vec::new(),
            numbered: 0,
            paused: false,
            deferred: Vec::new(),
            finished: false,
            hindered: 0,
            op: 0,
            busy: false,
            gave: false,
            unlucky: false,
            progress: 0,
            met: None,
            stop: false,
            agreed: false,
        }
    }

    pub(crate) fn generation(&self) -> Option<Generation> {
        self.activation.as_ref().map(|activation| activation.generation)
    }

    pub(crate) fn rank(&self) -> Option<usize> {
        let members = &self.activation.as_ref()?.members;
        members.iter().position(|peer| peer.id == self.member.id())
    }
}

impl World {
    /// The platform starts a process.
    pub(crate) fn spawn(&mut self) {
        self.born += 1;
        let id = WorkerId(self.rng.below(0xff) << 8 | self.born);
        say!(self, "{id} starts");
        let member = Member::with_fences(id, self.guards.fences);
        self.workers.insert(id, Worker::new(member));
        self.connect(id);
        self.after(BEAT, Event::Beat(id));
    }

    pub(crate) fn worker(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).expect("events of dead workers are dropped")
    }

    pub(crate) fn beat(&mut self, id: WorkerId) {
        if self.workers[&id].finished {
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
        if deaf {
            self.lose_session(id, session);
        } else {
            self.send_up(id, Up::Beat);
        }
    }

    /// Notes that a worker is kept from answering.
    pub(crate) fn hinder(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.hindered = worker.hindered.max(self.now);
        }
    }

    /// Sends what must not be lost: it is sent again at each connection.
    pub(crate) fn send_firmly(&mut self, id: WorkerId, message: FromMember) {
        let worker = self.worker(id);
        worker.numbered += 1;
        let number = worker.numbered;
        worker.outbox.push((number, message.clone()));
        self.send_up(id, Up::Say(number, message));
    }

    /// A message of a master.
    pub(crate) fn order(&mut self, id: WorkerId, epoch: u32, message: Down) {
        let worker = self.worker(id);
        if worker.member.welcome(epoch).is_err() {
            self.stats.refused_masters += 1;
            return;
        }
        let message = match message {
            Down::Received(number) => {
                return worker.outbox.retain(|(sent, _)| *sent > number);
            }
            Down::Order(message) => message,
        };
        self.check_order(&message);
        match message {
            ToMember::Prepare(generation) => {
                let promise = self.worker(id).member.prepare(generation);
                say!(self, "{id} prepares {generation}: {promise:?}");
                if let Ok(holding) = promise {
                    self.send_up(id, Up::Say(0, FromMember::Promise(generation, holding)));
                }
            }
            ToMember::Activate(activation) => self.activate(id, activation),
            ToMember::Kept(mark) => self.tidy(&mark),
            ToMember::Stop => self.worker(id).stop = true,
            ToMember::Ended(ending) => {
                say!(self, "{id} ends: {ending:?}");
                self.worker(id).finished = true;
            }
        }
    }

    fn activate(&mut self, id: WorkerId, activation: Activation) {
        let generation = activation.generation;
        let worker = self.worker(id);
        let Ok(part) = worker.member.activate(&activation) else { return };
        (worker.part, worker.activation) = (Some(part), Some(activation));
        (worker.op, worker.busy, worker.gave) = (0, false, false);
        (worker.met, worker.agreed) = (None, false);
        say!(self, "{id} activates {generation}: {:?}", self.workers[&id].part);
        self.progress(id, generation);
        self.enter(id, generation);
    }

    /// The members of a generation are connected: the state comes next.
    pub(crate) fn take_part(&mut self, id: WorkerId, generation: Generation) {
        match self.worker(id).part.take() {
            Some(Part::Keep) => self.confirm(id, generation),
            Some(Part::Load(mark)) => {
                let delay = self.between(5, 60);
                self.after(delay, Event::Loaded { worker: id, generation, mark });
            }
            Some(Part::Receive { .. }) => self.fetch(id, generation),
            None => {}
        }
        self.enter(id, generation);
    }

    pub(crate) fn confirm(&mut self, id: WorkerId, generation: Generation) {
        self.send_up(id, Up::Say(0, FromMember::Confirmed(generation)));
        self.progress(id, generation);
        self.enter(id, generation);
    }

    /// Something went on: the worker looks again after a while.
    pub(crate) fn progress(&mut self, id: WorkerId, generation: Generation) {
        let worker = self.worker(id);
        worker.progress += 1;
        let progress = worker.progress;
        let patience = self.between(300, 500);
        self.after(patience, Event::Stuck { worker: id, generation, progress });
    }

    /// Nothing went on for a while: the generation is broken.
    pub(crate) fn stuck(&mut self, id: WorkerId, generation: Generation, progress: u64) {
        let worker = &self.workers[&id];
        let waits = worker.gave || worker.op > 0 && !worker.busy && !self.is_done(id);
        if worker.member.active() != Some(generation) || worker.progress != progress || !waits {
            return;
        }
        let accused = self.absent(id);
        say!(self, "{id} finds {generation} broken, by {accused:?}");
        self.send_firmly(id, FromMember::Broken(generation, accused));
        self.progress(id, generation);
    }
}
