//! The world of a run: time, events, processes and what is between them. Everything in it follows from the seed.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::asynchronous::{Fence, History, Process};
use salamander_core::elastic::{Generation, Millis, WorkerId};

use crate::event::{Body, Event, Node};
use crate::master::Master;
use crate::mood::Mood;
use crate::server::Server;
pub(crate) use crate::simulation::say;
use crate::simulation::{Counts, Seeded, Timeline, Violation, on_timeline};
use crate::stats::Stats;
use crate::truth::{ALL, Job, StartFrom};
use crate::worker::Worker;

/// What is taken out of a run to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// One of the protocol's own.
    Fence(Fence),
    /// The journal takes nothing from a master that was replaced, and that master ends.
    Owner,
    /// A partition applies a name once.
    Once,
}

/// A run and everything around it.
pub(crate) struct World {
    timeline: Timeline<Event, Guard>,
    pub(crate) job: Job,
    pub(crate) mood: Mood,
    pub(crate) masters: Vec<Master>,
    /// What the journal says.
    pub(crate) history: History,
    /// Partitions in checkpoints,
    pub(crate) disk: BTreeMap<(Generation, usize), StartFrom>,
    /// and those of them that cannot be read any more.
    pub(crate) rotten: BTreeSet<(Generation, usize)>,
    pub(crate) servers: BTreeMap<Process, Server>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) born: u64,
    /// Processes that sleep, and what they will find when they wake.
    pub(crate) asleep: BTreeMap<Node, Vec<Event>>,
    /// Until when two processes do not reach each other.
    pub(crate) cuts: BTreeMap<(Node, Node), Millis>,
    violation: Option<Violation>,
    pub(crate) stats: Stats,
}

on_timeline!(World, Event, Guard);

impl Seeded for World {
    type Event = Event;
    type Guard = Guard;

    const GUARDS: &'static [Guard] = &[
        Guard::Fence(Fence::Acks),
        Guard::Fence(Fence::Orders),
        Guard::Fence(Fence::Master),
        Guard::Fence(Fence::Map),
        Guard::Fence(Fence::Replies),
        Guard::Fence(Fence::Reports),
        Guard::Fence(Fence::Restored),
        Guard::Fence(Fence::Round),
        Guard::Owner,
        Guard::Once,
    ];
    const STREAM: u64 = 0x9054;
    const SEEDS: u64 = 12_000;
    const ENOUGH: u64 = 500;
    const PATIENCE: Millis = 20_000;

    fn new(mut timeline: Timeline<Event, Guard>) -> Self {
        let rng = &mut timeline.rng;
        let job = Mood::draw_job(rng);
        let mood = Mood::draw(rng);
        timeline.quiet = mood.quiet;
        let mut world = Self {
            timeline,
            job,
            mood,
            masters: Vec::new(),
            history: History::default(),
            disk: BTreeMap::new(),
            rotten: BTreeSet::new(),
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            born: 0,
            asleep: BTreeMap::new(),
            cuts: BTreeMap::new(),
            violation: None,
            stats: Stats::default(),
        };
        say!(world, "{:?}", world.job);
        say!(world, "{:?}", world.mood);
        world.after(0, Event::StartMaster);
        for server in 0..world.job.servers {
            let delay = world.between(0, 100);
            world.after(delay, Event::StartServer(server));
        }
        for _ in 0..world.mood.workers {
            let delay = world.between(0, 100);
            world.after(delay, Event::StartWorker);
        }
        world.plan_faults();
        world
    }

    fn is_over(&mut self) -> bool {
        let saved = self.history.checkpoint.is_some_and(|last| last.epochs >= self.job.epochs);
        saved && self.history.finished >= self.job.epochs
    }

    fn standing(&self) -> String {
        let status = self.masters.last().map(|master| master.dispatcher.status());
        format!("the last master sees {status:?}")
    }

    /// Every name exactly once on every partition: in the last checkpoint, and on all servers that are part of the
    /// run.
    fn judge(&mut self) {
        let Some(last) = self.history.checkpoint else { return };
        let epochs = self.job.epochs;
        for part in 0..self.job.partitions as usize {
            let wrong = self.disk.get(&(last.id, part)).map(|part| self.job.wrong(part, epochs));
            match wrong {
                None => self.blame(ALL, format!("partition {part} is not in the last checkpoint")),
                Some(Some((name, count))) => {
                    self.blame(ALL, format!("{name:?} is {count} times in partition {part}"));
                }
                Some(None) => {}
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.awake(event) else { return };
        match event {
            Event::StartMaster => self.start_master(),
            Event::StartServer(server) => self.start_server(server),
            Event::StartWorker => self.start_worker(),
            Event::Message { from, to, body } => self.hear(from, to, body),
            Event::Tick(master) => self.tick(master),
            Event::Beat(server) => self.beat(server),
            Event::Nudge(worker) => self.nudge(worker),
            Event::Computed { worker, fence, name } => self.computed(worker, fence, name),
            Event::Written { server, id, parts } => self.written(server, id, parts),
            Event::Read { server, map, part } => self.read(server, map, part),
            Event::Validated { master, epoch } => self.validated(master, epoch),
            Event::Gone(node) => self.tell_gone(node),
            Event::Wake(node) => self.wake(node),
            Event::Resume => self.resume(),
            Event::Fault(fault) => self.strike(fault),
        }
    }

    fn counts(&self) -> Counts {
        self.stats.rows()
    }

    fn violation(&mut self) -> &mut Option<Violation> {
        &mut self.violation
    }
}

impl World {
    /// The fence of the machines that is taken out.
    pub(crate) fn without_fence(&self) -> Option<Fence> {
        match self.without {
            Some(Guard::Fence(fence)) => Some(fence),
            _ => None,
        }
    }

    fn hear(&mut self, from: Node, to: Node, body: Body) {
        match to {
            Node::Master(master) => self.master_hears(master, from, body),
            Node::Server(server) => self.server_hears(server, from, body),
            Node::Worker(worker) => self.worker_hears(worker, from, body),
        }
    }

    /// The event, unless it is for a process that is gone, or asleep and gets it later.
    fn awake(&mut self, mut event: Event) -> Option<Event> {
        let Some(mut node) = event.subject() else { return Some(event) };
        if !self.is_alive(node) {
            node = self.redirect(&mut event)?;
        }
        match self.asleep.get_mut(&node) {
            Some(deferred) => {
                deferred.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// An order to a server that is gone is tried again at its address, where another process may listen.
    fn redirect(&mut self, event: &mut Event) -> Option<Node> {
        let Event::Message { to: Node::Server(gone), body: Body::DispatchAction(..), .. } = event
        else {
            return None;
        };
        let server = gone.server;
        let found = Node::Server(self.find_server(server)?);
        if let Event::Message { to, .. } = event {
            *to = found;
        }
        Some(found)
    }

    pub(crate) fn is_alive(&self, node: Node) -> bool {
        match node {
            Node::Master(master) => self.masters[master].alive,
            Node::Server(process) => self.servers.contains_key(&process),
            Node::Worker(worker) => self.workers.contains_key(&worker),
        }
    }

    /// Sends a message, which may get lost, come late, or come twice.
    pub(crate) fn send(&mut self, from: Node, to: Node, body: Body) {
        let loss = self.mood.loss;
        let cut = |one, other| self.cuts.get(&(one, other)).is_some_and(|until| *until > self.now);
        if cut(from, to) || cut(to, from) || self.is_wild() && self.chance(loss) {
            return;
        }
        let slow = self.chance(0.05);
        let delay = self.between(1, if slow { 90 } else { 10 });
        let strays = self.mood.strays;
        if self.is_wild() && self.chance(strays) {
            let late = delay + self.between(1, if slow { 1_000 } else { 400 });
            self.after(late, Event::Message { from, to, body: body.clone() });
        }
        self.after(delay, Event::Message { from, to, body });
    }

    /// To the master that somebody finds, if there is one. It may have been replaced: names of servers go on pointing
    /// to it.
    pub(crate) fn tell_master(&mut self, from: Node, body: Body) {
        let alive = (0..self.masters.len()).filter(|master| self.masters[*master].alive);
        let alive: Vec<usize> = alive.collect();
        let may_stray = self.is_wild() || matches!(body, Body::State(_));
        let stale = self.mood.stale;
        let found = if may_stray && self.chance(stale) { alive.first() } else { alive.last() };
        if let Some(master) = found {
            self.send(from, Node::Master(*master), body);
        }
    }

    /// The process of a server that somebody finds, who may have been replaced.
    pub(crate) fn find_server(&mut self, server: u32) -> Option<Process> {
        let alive = self.servers.iter().filter(|(process, _)| process.server == server);
        let mut alive: Vec<(u64, Process)> = alive.map(|(p, found)| (found.born, *p)).collect();
        alive.sort_unstable();
        let stale = self.mood.stale;
        let found = if self.is_wild() && self.chance(stale) { alive.first() } else { alive.last() };
        found.map(|(_, process)| *process)
    }
}
