//! The world of a run: time, events, processes. Everything in it follows from the seed.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::asynchronous;
use salamander_core::elastic::{
    CheckpointMark, Ending, Fence, Generation, History, MembershipEntry, Millis, TakenReports,
    Term, Timeouts, Version, WorkerId,
};

use crate::event::Event;
use crate::exchange::Exchange;
use crate::faults::Armed;
use crate::leaving::ArmedLeave;
use crate::master::Master;
use crate::mood::Mood;
use crate::network::Network;
use crate::rows::{Asker, RowFolder, RowServer, RowsOf};
use crate::simulation::{Counts, Seeded, Timeline, Violation, on_timeline, say};
use crate::stats::Stats;
use crate::truth::{Content, Job, PARTITIONS, StateId, Truth};
use crate::worker::Worker;

/// How long late messages are waited for after the end.
const AFTERMATH: Millis = 1_500;

pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { silence: 1_000, promise: 400, apply: 8_000, join: 60, first: 300 };

/// What is taken out of a run to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// One of the protocol's own.
    Fence(Fence),
    /// What a message depends on is journaled before it is sent.
    Journal,
    /// The journal takes nothing from a master that was replaced, and that master ends.
    Owner,
    /// Who has to go hands its state over first.
    HandOver,
    /// Reports go along with the state that they are about.
    Reports,
    /// One of the servers' own.
    Server(asynchronous::Fence),
    /// Rows are brought to a state that all members have met at.
    Meeting,
    /// A member gives only when servers have kept its gradients.
    Settled,
}

/// A run and everything around it.
pub(crate) struct World {
    timeline: Timeline<Event, Guard>,
    pub(crate) job: Job,
    pub(crate) mood: Mood,
    pub(crate) masters: Vec<Master>,
    /// What is on disk.
    pub(crate) journal: Vec<(Term, MembershipEntry)>,
    /// What it says.
    pub(crate) history: History,
    pub(crate) store: BTreeMap<String, (CheckpointMark, StateId)>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) born: u64,
    pub(crate) exchanges: BTreeMap<(Generation, u64), Exchange>,
    pub(crate) network: Network,
    pub(crate) armed: Vec<Armed>,
    pub(crate) servers: BTreeMap<WorkerId, RowServer>,
    /// Seats whose server is being started.
    pub(crate) starting: BTreeSet<u32>,
    /// The rows of checkpoints, by their folders.
    pub(crate) row_files: BTreeMap<String, RowFolder>,
    undisturbed: Vec<[Content; PARTITIONS]>,
    /// Requests to servers so far.
    pub(crate) calls: u64,
    /// So many servers die as soon as rows move.
    pub(crate) armed_moves: u64,
    /// So many as soon as they copy their rows.
    pub(crate) armed_copies: u64,
    /// Faults that wait until a server that was asked to leave is so far.
    pub(crate) armed_leaves: Vec<ArmedLeave>,
    /// Servers that have left since the master of this term let them go.
    pub(crate) let_go: BTreeMap<WorkerId, Term>,
    /// Which reports the masters took: a file,
    pub(crate) taken: TakenReports,
    /// and another: what was told.
    pub(crate) log: Vec<(Version, Content)>,
    pub(crate) truth: Truth,
    pub(crate) stats: Stats,
    ended: Option<Millis>,
}

on_timeline!(World, Event, Guard);

impl Seeded for World {
    type Event = Event;
    type Guard = Guard;

    const GUARDS: &'static [Guard] = &[
        Guard::Fence(Fence::Promise),
        Guard::Fence(Fence::Whole),
        Guard::Fence(Fence::Busy),
        Guard::Fence(Fence::Failure),
        Guard::Fence(Fence::Term),
        Guard::Fence(Fence::Lineage),
        Guard::Fence(Fence::Adopted),
        Guard::Fence(Fence::AllHold),
        Guard::Fence(Fence::Checkpoint),
        Guard::Journal,
        Guard::Owner,
        Guard::HandOver,
        Guard::Reports,
        Guard::Fence(Fence::Servers),
        Guard::Fence(Fence::Leave),
        Guard::Fence(Fence::Left),
        Guard::Server(asynchronous::Fence::Map),
        Guard::Server(asynchronous::Fence::Step),
        Guard::Meeting,
        Guard::Settled,
    ];
    const STREAM: u64 = 0x5a1a;
    const SEEDS: u64 = 20_000;
    const ENOUGH: u64 = 1_000;
    const PATIENCE: Millis = 60_000;

    fn new(mut timeline: Timeline<Event, Guard>) -> Self {
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
            servers: BTreeMap::new(),
            starting: BTreeSet::new(),
            row_files: BTreeMap::new(),
            undisturbed: job.undisturbed_rows(),
            calls: 0,
            armed_moves: 0,
            armed_copies: 0,
            armed_leaves: Vec::new(),
            let_go: BTreeMap::new(),
            taken: TakenReports::default(),
            log: Vec::new(),
            truth: Truth::new(job),
            stats: Stats::default(),
            ended: None,
        };
        say!(world, "{job:?} {:?}", world.mood);
        world.stats.crowds = u64::from(world.mood.workers >= 6);
        world.stats.slow_links = u64::from(world.mood.slow_link > 0);
        world.after(0, Event::StartMaster);
        for _ in 0..world.mood.workers {
            let delay = world.between(0, 200);
            world.after(delay, Event::Spawn);
        }
        world.plan_faults();
        world
    }

    fn is_over(&mut self) -> bool {
        self.note_end();
        let over = self.ended.is_some_and(|ended| self.now > ended + AFTERMATH);
        over && self.workers.values().all(|worker| worker.finished())
    }

    fn standing(&self) -> String {
        let phase = self.masters.last().map(|master| master.coordinator.phase().clone());
        format!("the last master is in {phase:?}")
    }

    fn judge(&mut self) {
        // Where a member failed there may be no state at all; that it was one is looked at elsewhere.
        if matches!(self.history.ending, Some(Ending::Failed(_))) {
            return;
        }
        let completed = self.history.ending == Some(Ending::Completed);
        let mark = self.history.checkpoint.clone();
        match mark.and_then(|mark| self.store.get(&mark.id).cloned()) {
            Some((_, state)) => {
                self.truth.judge(state, completed);
                let log = std::mem::take(&mut self.log);
                self.truth.check_reports(state, &log);
            }
            // It was stopped before it began.
            None if !completed && self.history.activated.is_none() => {}
            None => self.truth.blame("an ended run has its checkpoint", "there is none".into()),
        }
    }

    fn happen(&mut self, event: Event) {
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
            Event::Arrived { worker, generation, new } => self.arrived(worker, generation, new),
            Event::Restored { worker, generation, new } => self.restored(worker, generation, new),
            Event::Adopted { worker, generation, new } => self.adopted(worker, generation, new),
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
            event => self.happen_to_rows(event),
        }
    }

    fn counts(&self) -> Counts {
        self.stats.rows()
    }

    fn violation(&mut self) -> &mut Option<Violation> {
        &mut self.truth.violation
    }
}

impl World {
    /// Events of parameter servers, and of members that ask them.
    fn happen_to_rows(&mut self, event: Event) {
        match event {
            Event::StartServer(seat) => self.start_server(seat),
            Event::ServerBeat(server) => self.server_beat(server),
            Event::ServerHello { master, server } => self.server_hello(master, server),
            Event::ServerGone(server) => self.server_gone(server),
            Event::WakeServer(server) => self.wake_server(server),
            Event::LetGo { server, term } => self.may_go(server, term),
            Event::Leave(server) => self.leave(server),
            Event::Ask { server, asker, lineage, ask } => self.asked(server, asker, lineage, ask),
            Event::Answer { asker, reply } => self.answered(asker, reply),
            Event::AskAgain { worker, call } => self.ask(worker, call),
            Event::AwaitRows { worker, save, servers } => self.await_rows(worker, save, servers),
            Event::RowsRead { server, asker, lineage, step, mark, share } => {
                self.rows_read(server, asker, RowsOf { lineage, step, mark, share });
            }
            Event::RowsWritten { server, copy, parts } => self.rows_written(server, copy, parts),
            Event::Seek { server, lineage } => self.seek(server, lineage),
            Event::Take { server, by, lineage, part } => self.take(server, by, lineage, part),
            Event::Given { server, lineage, part, content, step } => {
                self.given(server, lineage, part, (step, content));
            }
            event => unreachable!("{event:?} happens to workers and masters"),
        }
    }

    /// The rows of a partition after so many steps of a run that nobody disturbs.
    pub(crate) fn undisturbed(&self, step: u64, part: usize) -> Option<Content> {
        self.undisturbed.get(step as usize).map(|rows| rows[part])
    }

    /// The fence of the servers that is taken out.
    pub(crate) fn without_row_fence(&self) -> Option<asynchronous::Fence> {
        match self.without {
            Some(Guard::Server(fence)) => Some(fence),
            _ => None,
        }
    }

    /// Nobody starts processes for a run that has ended.
    pub(crate) fn ended_for_good(&self) -> bool {
        self.history.ending.is_some()
    }

    /// The fence of the machines that is taken out.
    pub(crate) fn without_fence(&self) -> Option<Fence> {
        match self.without {
            Some(Guard::Fence(fence)) => Some(fence),
            _ => None,
        }
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
            | Event::Arrived { worker, .. }
            | Event::Restored { worker, .. }
            | Event::Adopted { worker, .. }
            | Event::Written { worker, .. }
            | Event::AskAgain { worker, .. }
            | Event::AwaitRows { worker, .. }
            | Event::Answer { asker: Asker { worker, .. }, .. }
            | Event::Stuck { worker, .. } => {
                let worker = self.workers.get_mut(worker)?;
                if worker.paused {
                    worker.deferred.push(event);
                    return None;
                }
            }
            Event::ServerBeat(server)
            | Event::LetGo { server, .. }
            | Event::Leave(server)
            | Event::Ask { server, .. }
            | Event::RowsRead { server, .. }
            | Event::RowsWritten { server, .. }
            | Event::Seek { server, .. }
            | Event::Take { server, .. }
            | Event::Given { server, .. } => {
                let server = self.servers.get_mut(server)?;
                if server.paused {
                    server.deferred.push(event);
                    return None;
                }
            }
            Event::Tick(master)
            | Event::Up { master, .. }
            | Event::ServerHello { master, .. }
            | Event::Dropped { master, .. } => {
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
