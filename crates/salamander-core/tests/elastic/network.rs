//! Connections between workers and masters, and who can reach whom. A connection keeps its order, and one that loses a
//! message is over; stray messages, late, twice and out of order, come on top.

use std::collections::BTreeMap;

use salamander_core::elastic::{Hello, Millis, Peer, WorkerId};

use crate::event::{Down, Event, Up};
use crate::simulation::say;
use crate::world::World;

/// One connection.
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) master: usize,
    broken: bool,
    /// Its master knows that it is over, and takes nothing from it any more.
    pub(crate) is_over: bool,
    /// When the last message of each direction arrives.
    up: Millis,
    down: Millis,
}

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// All connections there ever were, and the cuts of now.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) sessions: Vec<Session>,
    /// Until when a worker does not reach a master.
    pub(crate) from_master: BTreeMap<(WorkerId, usize), Millis>,
    /// Since and until when what a worker says, or what it is told, does not arrive.
    pub(crate) half_cut: BTreeMap<(WorkerId, Direction), (Millis, Millis)>,
    /// Until when one worker does not reach another.
    pub(crate) between: BTreeMap<(WorkerId, WorkerId), Millis>,
    /// Until when a worker does not reach a parameter server.
    pub(crate) from_server: BTreeMap<(WorkerId, WorkerId), Millis>,
}

impl World {
    pub(crate) fn reaches_master(&self, worker: WorkerId, master: usize) -> bool {
        let cut = self.network.from_master.get(&(worker, master));
        cut.is_none_or(|until| *until <= self.now)
    }

    pub(crate) fn reaches(&self, one: WorkerId, other: WorkerId) -> bool {
        let first_two = |id: WorkerId| (1..=2).contains(&(id.0 & 0xffff));
        if self.mood.split && one != other && first_two(one) && first_two(other) {
            return false;
        }
        let cut = self.network.between.get(&(one, other));
        cut.is_none_or(|until| *until <= self.now)
    }

    /// Whether one direction has been cut for so long.
    pub(crate) fn is_half_cut(&self, worker: WorkerId, so_long: Millis) -> bool {
        [Direction::Up, Direction::Down].into_iter().any(|direction| {
            let cut = self.network.half_cut.get(&(worker, direction));
            cut.is_some_and(|(since, until)| since + so_long < self.now && self.now < *until)
        })
    }

    /// How much longer messages of a worker take.
    fn slowness(&mut self, worker: WorkerId) -> Millis {
        let is_slow = self.is_wild() && worker.0 & 3 == 1 && self.mood.slow_link > 0;
        if !is_slow {
            return 0;
        }
        self.hinder(worker);
        let longest = self.mood.slow_link;
        self.between(longest / 2, longest)
    }

    /// A worker looks for a master.
    pub(crate) fn connect(&mut self, id: WorkerId) {
        let worker = &self.workers[&id];
        if worker.session.is_some() || worker.finished() {
            return;
        }
        let again = self.between(20, 120);
        let alive = (0..self.masters.len()).filter(|master| self.masters[*master].alive);
        let alive: Vec<usize> = alive.collect();
        // Names may still point to a master that was replaced.
        let often = self.mood.stale;
        let stale = alive.len() > 1 && self.chance(often);
        let found = if stale { alive.first() } else { alive.last() }.copied();
        let usable = |master: usize| {
            self.masters[master].paused.is_none() && self.reaches_master(id, master)
        };
        let Some(master) = found.filter(|master| usable(*master)) else {
            return self.after(again, Event::Connect(id));
        };
        let term = self.masters[master].coordinator.run().term();
        let worker = self.workers.get_mut(&id).expect("it connects");
        if worker.machine.welcome(term).is_err() {
            self.stats.refused_masters += 1;
            self.hinder(id);
            return self.after(again, Event::Connect(id));
        }
        let session = self.network.sessions.len();
        worker.session = Some(session);
        let peer = Peer { id, endpoint: String::new() };
        let hello = Hello { peer, active: worker.machine.generation(), slot: Some(worker.slot) };
        // Another master hears again what is in no journal.
        let (met, reports) = &mut worker.acted_on;
        if met.replace(term).is_some_and(|met| met != term) {
            worker.outbox.splice(..0, std::mem::take(reports));
        }
        let unacked = worker.outbox.clone();
        let (up, down) = (self.now, self.now);
        self.network.sessions.push(Session {
            worker: id,
            master,
            broken: false,
            is_over: false,
            up,
            down,
        });
        say!(self, "{id} connects to master {term}, active in {:?}", hello.active);
        self.send_up(id, Up::Hello(hello));
        for (number, message) in unacked {
            self.send_up(id, Up::Say(number, message));
        }
    }

    /// From a worker over its connection, if it has one.
    pub(crate) fn send_up(&mut self, id: WorkerId, message: Up) {
        let Some(session) = self.workers.get(&id).and_then(|worker| worker.session) else { return };
        let master = self.network.sessions[session].master;
        // Numbers and the first message keep their order; the rest may jump the queue.
        let jumps = matches!(message, Up::Beat | Up::Say(0, _));
        let Some(at) = self.carry(session, Direction::Up, jumps) else { return };
        let event = Event::Up { master, worker: id, session, message };
        if self.strays() && !matches!(event, Event::Up { message: Up::Beat, .. }) {
            let late = at + self.between(1, 1_200);
            self.at(late, event.clone());
        }
        self.at(at, event);
    }

    /// From a master over the connection that it has from a worker.
    pub(crate) fn send_down(&mut self, master: usize, id: WorkerId, message: Down) {
        let Some(session) = self.masters[master].sessions.get(&id).copied() else { return };
        let Some(at) = self.carry(session, Direction::Down, true) else { return };
        let term = self.masters[master].coordinator.run().term();
        let event = |stray| Event::Down { worker: id, session, stray, term, message };
        if self.strays() {
            let late = self.between(1, 2_500);
            self.after(late, event.clone()(true));
        }
        self.at(at, event(false));
    }

    fn strays(&mut self) -> bool {
        let of = self.mood.strays;
        self.is_wild() && self.chance(of)
    }

    /// When a message of a connection arrives, unless it is lost, and the connection with it.
    fn carry(&mut self, session: usize, way: Direction, jumps: bool) -> Option<Millis> {
        let Session { worker, master, broken, .. } = self.network.sessions[session];
        if broken {
            return None;
        }
        let loss = self.mood.loss;
        let lost = self.is_wild() && self.chance(loss);
        if lost || !self.reaches_master(worker, master) {
            self.break_session(session);
            self.hinder(worker);
            return None;
        }
        let slow = self.chance(0.05);
        let mut at = self.now + self.between(1, if slow { 90 } else { 12 }) + self.slowness(worker);
        // What does not get through is sent again by the system until it does, or the connection is over.
        if let Some((_, until)) = self.network.half_cut.get(&(worker, way)) {
            at = at.max(*until);
        }
        let jumps = jumps && self.is_wild() && self.mood.strays > 0.0 && self.chance(0.03);
        let session = &mut self.network.sessions[session];
        let last = match way {
            Direction::Up => &mut session.up,
            Direction::Down => &mut session.down,
        };
        if !jumps {
            at = at.max(*last);
            *last = at;
        }
        Some(at)
    }

    /// A connection ends; both sides learn it in their time, the master perhaps never.
    pub(crate) fn break_session(&mut self, session: usize) {
        let Session { worker, master, broken, .. } = self.network.sessions[session];
        if broken {
            return;
        }
        self.network.sessions[session].broken = true;
        let (soon, later) = (self.between(1, 120), self.between(1, 200));
        self.after(soon, Event::Lost { worker, session });
        if self.chance(0.8) {
            self.after(later, Event::Dropped { master, worker, session });
        }
    }

    /// A worker's connection is over; it looks for another.
    pub(crate) fn lose_session(&mut self, id: WorkerId, session: usize) {
        let worker = self.workers.get_mut(&id).expect("it is awake");
        if worker.session == Some(session) {
            worker.session = None;
            self.break_session(session);
            self.connect(id);
        }
    }
}
