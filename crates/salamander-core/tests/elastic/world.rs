//! The world of a run: time, events, processes. Everything in it follows from the seed.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use salamander_core::elastic::{
    CheckpointMark, Ending, Entry, Fences, Generation, History, Millis, Term, Timeouts, WorkerId,
};

use crate::event::Event;
use crate::exchange::Exchange;
use crate::faults::Armed;
use crate::master::Master;
use crate::mood::Mood;
use crate::network::Network;
use crate::simulation::{Timeline, Violation, say};
use crate::stats::Stats;
use crate::truth::{Job, StateId, Truth};
use crate::worker::Worker;

/// How long a run may take once nothing goes wrong any more.
const PATIENCE: Millis = 30_000;
/// How long late messages are waited for after the end.
const AFTERMATH: Millis = 1_500;

pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { silence: 1_000, promise: 400, join: 60, first: 300 };

/// What is taken out of a run to show that it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards {
    pub(crate) fences: Fences,
    /// The journal takes nothing from a master that was replaced, and that master ends.
    pub(crate) owner: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self { fences: Fences::default(), owner: true }
    }
}

/// A run and everything around it.
pub(crate) struct World {
    timeline: Timeline<Event>,
    pub(crate) guards: Guards,
    pub(crate) job: Job,
    pub(crate) mood: Mood,
    pub(crate) masters: Vec<Master>,
    /// What is on disk.
    pub(crate) journal: Vec<(Term, Entry)>,
    /// What it says.
    pub(crate) history: History,
    pub(crate) store: BTreeMap<String, (CheckpointMark, StateId)>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) born: u64,
    pub(crate) exchanges: BTreeMap<(Generation, u64), Exchange>,
    pub(crate) network: Network,
    pub(crate) armed: Vec<Armed>,
    pub(crate) truth: Truth,
    pub(crate) stats: Stats,
    ended: Option<Millis>,
}

impl Deref for World {
    type Target = Timeline<Event>;

    fn deref(&self) -> &Self::Target {
        &self.timeline
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.timeline
    }
}

impl World {
    pub(crate) fn new(seed: u64, guards: Guards, trace: bool) -> Self {
        let mut timeline = Timeline::new(seed, 0x5a1a, trace);
        let rng = &mut timeline.rng;
        let batch = 3 + rng.below(8) as u32;
        let job = Job {
            records: batch * (3 + rng.below(4) as u32) + rng.below(u64::from(batch)) as u32,
            epochs: 2 + rng.below(3) as u32,
            batch,
            slices: 3 + rng.below(6) as u32,
            every: 2 + rng.below(5),
        };
        let mood = Mood::draw(rng);
        timeline.quiet = mood.quiet;
        let mut world = Self {
            timeline,
            guards,
            job,
            mood,
            masters: Vec::new(),
            journal: Vec::new(),
            history: History::default(),
            store: BTreeMap::new(),
            workers: BTreeMap::new(),
            born: 0,
            exchanges: BTreeMap::new(),
            network: Network::default(),
            armed: Vec::new(),
            truth: Truth::new(job),
            stats: Stats::default(),
            ended: None,
        };
        say!(world, "{job:?} {:?}", world.mood);
        world.after(0, Event::StartMaster);
        for _ in 0..world.mood.workers {
            let delay = world.between(0, 200);
            world.after(delay, Event::Spawn);
        }
        world.plan_faults();
        world
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self) -> (Stats, Option<Violation>) {
        while self.truth.violation.is_none() {
            let Some(event) = self.next_event() else { break };
            self.happen(event);
            self.note_end();
            let over = self.ended.is_some_and(|ended| self.now > ended + AFTERMATH);
            if over && self.workers.values().all(|worker| worker.finished()) {
                break;
            }
            if self.now > self.mood.quiet + PATIENCE {
                let phase = self.masters.last().map(|master| master.coordinator.phase().clone());
                self.truth.blame("the run ends", format!("the last master is in {phase:?}"));
            }
        }
        self.judge();
        (self.stats, self.truth.violation)
    }

    fn note_end(&mut self) {
        if self.history.ending.is_none() {
            self.ended = None;
        } else if self.ended.is_none() {
            self.ended = Some(self.now);
            let stopped = self.history.ending == Some(Ending::Interrupted);
            if stopped && std::mem::take(&mut self.mood.resumes) {
                let delay = self.between(100, AFTERMATH - 1);
                self.after(delay, Event::Resume);
            }
        }
    }

    fn judge(&mut self) {
        if self.truth.violation.is_some() {
            return;
        }
        let completed = self.history.ending == Some(Ending::Completed);
        let mark = self.history.checkpoint.clone();
        match mark.and_then(|mark| self.store.get(&mark.id).cloned()) {
            Some((_, state)) => self.truth.judge(state, completed),
            // It was stopped before it began.
            None if !completed && self.history.activated.is_none() => {}
            None => self.truth.blame("an ended run has its checkpoint", "there is none".into()),
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        let Some(event) = self.awake(event) else { return };
        match event {
            Event::Spawn => self.spawn(),
            Event::Connect(worker) => self.connect(worker),
            Event::Beat(worker) => self.beat(worker),
            Event::Down { worker, session, stray, term, message } => {
                if stray || self.workers[&worker].session == Some(session) {
                    self.order(worker, term, message);
                }
            }
            Event::Lost { worker, session } => self.lose_session(worker, session),
            Event::Computed { worker, generation, op } => self.contribute(worker, generation, op),
            Event::Result { worker, generation, op } => self.result(worker, generation, op),
            Event::Applied { worker, generation } => self.applied(worker, generation),
            Event::Begin(worker) => self.begin(worker),
            Event::Loaded { worker, generation, mark } => self.loaded(worker, generation, mark),
            Event::Fetch { worker, generation } => self.fetch(worker, generation),
            Event::Received { worker, generation, identity, state } => {
                self.received(worker, generation, identity, state);
            }
            Event::Written { worker, mark, state, last } => {
                self.written(worker, mark, state, last);
            }
            Event::Stuck { worker, generation, progress } => {
                self.stuck(worker, generation, progress);
            }
            Event::Wake(worker) => self.wake(worker),
            Event::Tick(master) => self.tick(master),
            Event::Up { master, worker, session, message } => {
                self.hear(master, worker, session, message);
            }
            Event::Dropped { master, worker, session } => {
                self.disconnected(master, worker, session);
            }
            Event::Gone { worker } => self.tell_gone(worker),
            Event::WakeMaster(master) => self.wake_master(master),
            Event::StartMaster => self.start_master(),
            Event::Resume => self.resume(),
            Event::Fault(fault) => self.strike(fault),
            Event::Quiet => self.calm(),
        }
    }

    /// The event, unless it is for a process that is gone, or asleep and gets it later.
    fn awake(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Connect(worker)
            | Event::Beat(worker)
            | Event::Down { worker, .. }
            | Event::Lost { worker, .. }
            | Event::Computed { worker, .. }
            | Event::Result { worker, .. }
            | Event::Applied { worker, .. }
            | Event::Begin(worker)
            | Event::Loaded { worker, .. }
            | Event::Fetch { worker, .. }
            | Event::Received { worker, .. }
            | Event::Written { worker, .. }
            | Event::Stuck { worker, .. } => {
                let worker = self.workers.get_mut(worker)?;
                if worker.paused {
                    worker.deferred.push(event);
                    return None;
                }
            }
            Event::Tick(master) | Event::Up { master, .. } | Event::Dropped { master, .. } => {
                let master = &mut self.masters[*master];
                if !master.alive {
                    return None;
                }
                if master.paused.is_some() {
                    master.deferred.push(event);
                    return None;
                }
            }
            _ => {}
        }
        Some(event)
    }
}
