//! A server's process around its gate: applies pushes, gets and gives partitions, writes checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::asynchronous::{
    Applied, DispatchAction, Envelope, Gate, HeldPartitions, Holds, Lineage, MapVersion,
    PartitionSource, Placed, Placement, Process, Refused, Resetting, ServerCheckpoint, ServerState,
    spread,
};
use salamander_core::elastic::{Generation, Millis, Term};
use salamander_core::plan::MicroBatch;

use crate::event::{Body, Event, Node, Push};
use crate::simulation::Seeded;
use crate::truth::{Job, ONCE, Shares, StartFrom};
use crate::world::{Guard, World, say};

const BEAT: Millis = 70;

/// A process.
pub(crate) struct Server {
    pub(crate) born: u64,
    gate: Gate,
    parts: BTreeMap<usize, StartFrom>,
    /// What it held in the map before, for others.
    outgoing: BTreeMap<usize, StartFrom>,
    /// What it is getting.
    order: Option<(Placement, Vec<ServerCheckpoint>)>,
    wanted: BTreeSet<usize>,
    /// Checkpoints, and whether they are written.
    saves: BTreeMap<Generation, bool>,
}

impl World {
    /// The platform starts a process, unless there is one or none is needed.
    pub(crate) fn start_server(&mut self, server: u32) {
        if self.needs_server(server) && self.lives_of(server).next().is_none() {
            self.spawn_server(server);
        }
    }

    pub(crate) fn spawn_server(&mut self, server: u32) {
        self.born += 1;
        let incarnation = self.rng.below(0xffff) << 8 | self.born;
        let process = Process { server, incarnation };
        say!(self, "{process:?} starts");
        let new = Server {
            born: self.born,
            gate: Gate::new(incarnation).without(self.without_fence()),
            parts: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            order: None,
            wanted: BTreeSet::new(),
            saves: BTreeMap::new(),
        };
        self.servers.insert(process, new);
        self.beat(process);
    }

    pub(crate) fn end_server(&mut self, process: Process) {
        if self.servers.remove(&process).is_some() {
            say!(self, "{process:?} ends");
            self.asleep.remove(&Node::Server(process));
            let delay = self.between(20, 300);
            self.after(delay, Event::StartServer(process.server));
        }
    }

    fn server(&mut self, process: Process) -> &mut Server {
        self.servers.get_mut(&process).expect("events of dead servers are dropped")
    }

    /// It says what it has, and asks again for what it waits for.
    pub(crate) fn beat(&mut self, process: Process) {
        self.after(BEAT, Event::Beat(process));
        self.say_state(process);
        self.seek(process);
    }

    fn say_state(&mut self, process: Process) {
        let server = &self.servers[&process];
        // One that has just started is in lineage 0, which is no map.
        let has_map = server.gate.is_placed() && server.gate.lineage() != Lineage::default();
        let placed = has_map.then(|| Placed {
            map: server.gate.lineage().map(),
            applied: server.applied(&self.job),
        });
        let state = ServerState { incarnation: process.incarnation, placed };
        self.tell_master(Node::Server(process), Body::State(state));
    }

    pub(crate) fn server_hears(&mut self, process: Process, from: Node, body: Body) {
        match body {
            Body::Push(push) => self.receive(process, from, push),
            Body::DispatchAction(term, order) => self.obey(process, from, term, order),
            Body::Take(map, part) => self.give(process, from, map, part),
            Body::Given(map, part, Some(given)) => {
                self.stats.moved += 1;
                self.got(process, map, part, given);
            }
            Body::Given(map, part, None) => self.read_soon(process, map, part),
            body => panic!("{from:?} does not say {body:?} to a server"),
        }
    }

    fn receive(&mut self, process: Process, from: Node, push: Push) {
        let admitted = self.servers[&process].gate.admit(push.map.into());
        let answer = match admitted {
            Ok(()) => {
                let known = self.apply(process, push.name, push.shares);
                self.stats.ignored += u64::from(known);
                Body::Ack(push.map, push.name)
            }
            Err(_) => {
                self.stats.refused_pushes += 1;
                Body::Refuse(push.name)
            }
        };
        self.send(Node::Server(process), from, answer);
    }

    /// Every partition marks the name, whether it has rows in the push or not. Tells whether all had it.
    fn apply(&mut self, process: Process, name: MicroBatch, shares: Shares) -> bool {
        let (once, mut twice, mut known) = (self.has(Guard::Once), None, true);
        let server = self.servers.get_mut(&process).expect("it hears");
        for (index, part) in &mut server.parts {
            let new = part.applied.insert(name);
            known &= !new;
            if (new || !once) && shares & 1 << index != 0 {
                self.stats.applied += 1;
                if !part.count(&self.job, name) {
                    twice = Some(*index);
                }
            }
        }
        if let Some(part) = twice {
            self.blame(ONCE, format!("{name:?} on partition {part} of {process:?}"));
        }
        known
    }

    fn obey(&mut self, process: Process, from: Node, term: Term, order: DispatchAction) {
        let to = match &order {
            DispatchAction::Place { to, .. }
            | DispatchAction::Settled { to, .. }
            | DispatchAction::Save { to, .. }
            | DispatchAction::Prune { to, .. }
            | DispatchAction::Dismiss { to, .. } => *to,
            order => panic!("{order:?} is not for servers"),
        };
        let envelope = Envelope { term, to: to.incarnation };
        if let Err(refused) = self.server(process).gate.order(envelope) {
            let old = matches!(refused, Refused::OldMaster { .. });
            if old {
                self.stats.refused_masters += 1;
                self.send(Node::Server(process), from, Body::Replaced);
            } else {
                self.stats.refused_orders += 1;
            }
            return;
        }
        let gate = &self.servers[&process].gate;
        match order {
            DispatchAction::Place { placement, checkpoint, older, .. } => {
                let checkpoints = checkpoint.into_iter().chain(older).collect();
                self.place(process, envelope, placement, checkpoints)
            }
            DispatchAction::Settled { map, .. } if gate.admit(map.into()).is_ok() => {
                self.server(process).outgoing.clear();
            }
            DispatchAction::Save { id, map, .. } if gate.admit(map.into()).is_ok() => {
                self.save(process, id)
            }
            DispatchAction::Prune { below, map, .. } if gate.admit(map.into()).is_ok() => {
                self.stats.prunes += 1;
                let server = self.server(process);
                server.parts.values_mut().for_each(|part| part.applied.prune(below));
            }
            DispatchAction::Dismiss { .. } => self.end_server(process),
            _ => {}
        }
    }

    fn place(
        &mut self,
        process: Process,
        order: Envelope,
        placement: Placement,
        checkpoints: Vec<ServerCheckpoint>,
    ) {
        let own: BTreeSet<usize> = self.job.owned(placement.map, process.server).collect();
        let lineage = Lineage::from(placement.map.number);
        let server = self.server(process);
        match server.gate.reset(order, lineage) {
            Ok(Resetting::Begin) => {
                server.begin(placement, &own);
                server.order = Some((placement, checkpoints));
                self.seek(process);
                self.try_complete(process);
            }
            Ok(Resetting::Done) => self.say_state(process),
            Ok(Resetting::Again) | Err(_) => {}
        }
    }

    /// Looks for the partitions that it lacks.
    fn seek(&mut self, process: Process) {
        let server = &self.servers[&process];
        let Some(placement) = server.order.as_ref().map(|(placement, _)| *placement) else {
            return;
        };
        let (map, partitions) = (placement.map.number, self.job.partitions);
        for part in server.wanted.clone() {
            let owner = match placement.source {
                PartitionSource::Servers(from) => Some(spread(partitions, from.servers)[part]),
                PartitionSource::Checkpoint => None,
            };
            let owner = owner.filter(|owner| *owner != process.server);
            match owner.and_then(|owner| self.find_server(owner)) {
                Some(owner) => {
                    self.send(Node::Server(process), Node::Server(owner), Body::Take(map, part));
                }
                None => self.read_soon(process, map, part),
            }
        }
    }

    /// Another server asks for a partition: it gets it if nothing can be pushed to it here any more.
    fn give(&mut self, process: Process, from: Node, map: MapVersion, part: usize) {
        let server = &self.servers[&process];
        let given = match server.gate.give(map.into()) {
            Ok(()) => server.outgoing.get(&part).cloned(),
            Err(Refused::OtherLineage { theirs, own }) if own > theirs => None,
            // It has not heard of the map yet.
            Err(_) => return,
        };
        let (from, to, body) = (Node::Server(process), from, Body::Given(map, part, given));
        match self.slowness() {
            Some(delay) => self.after(delay, Event::Message { from, to, body }),
            None => self.send(from, to, body),
        }
    }

    /// How much longer than usual something takes, if it does: longer than anybody waits.
    fn slowness(&mut self) -> Option<Millis> {
        let slow = self.mood.slow;
        let is_slow = self.is_wild() && self.chance(slow);
        self.stats.slow += u64::from(is_slow);
        is_slow.then(|| self.between(300, 1_500))
    }

    fn read_soon(&mut self, process: Process, map: MapVersion, part: usize) {
        let delay = self.between(1, 40) + self.slowness().unwrap_or(0);
        self.after(delay, Event::Read { server: process, map, part });
    }

    pub(crate) fn read(&mut self, process: Process, map: MapVersion, part: usize) {
        let Some((placement, checkpoints)) = self.servers[&process].order.clone() else { return };
        if placement.map.number == map && self.servers[&process].wanted.contains(&part) {
            let is_sound = |kept: &&ServerCheckpoint| !self.rotten.contains(&(kept.id, part));
            let sound = checkpoints.iter().find(is_sound);
            self.stats.read += u64::from(sound.is_some());
            self.stats.rotten += u64::from(sound != checkpoints.first());
            let read = sound.and_then(|kept| self.disk.get(&(kept.id, part)).cloned());
            // What no checkpoint has begins anew; only one that never counted lacks a partition.
            let read = read.unwrap_or_else(|| self.job.fresh());
            self.got(process, map, part, read);
        }
    }

    fn got(&mut self, process: Process, map: MapVersion, part: usize, got: StartFrom) {
        let server = self.server(process);
        let of_map = |(placement, _): &(Placement, _)| placement.map.number == map;
        let current = server.order.as_ref().is_some_and(of_map);
        if current && server.wanted.remove(&part) {
            server.parts.insert(part, got);
            self.try_complete(process);
        }
    }

    fn try_complete(&mut self, process: Process) {
        let server = self.server(process);
        let Some((placement, _)) = &server.order else { return };
        let map = placement.map.number;
        if server.wanted.is_empty() && !server.gate.is_placed() {
            server.gate.hold(Holds::All(map.into()));
            say!(self, "{process:?} has its partitions of {map}");
            self.say_state(process);
        }
    }

    fn save(&mut self, process: Process, id: Generation) {
        let server = self.server(process);
        match server.saves.get(&id) {
            Some(true) => self.tell_master(Node::Server(process), Body::Saved(id)),
            Some(false) => {}
            None => {
                server.saves.insert(id, false);
                let parts = server.parts.clone();
                let delay = self.between(5, 80) + self.slowness().unwrap_or(0);
                self.after(delay, Event::Written { server: process, id, parts });
            }
        }
    }

    pub(crate) fn written(
        &mut self,
        process: Process,
        id: Generation,
        parts: BTreeMap<usize, StartFrom>,
    ) {
        for (part, written) in parts {
            self.disk.insert((id, part), written);
        }
        self.server(process).saves.insert(id, true);
        self.tell_master(Node::Server(process), Body::Saved(id));
    }
}

impl Server {
    /// Puts apart what others hold from now on, and notes what it lacks itself.
    fn begin(&mut self, placement: Placement, own: &BTreeSet<usize>) {
        let held = std::mem::take(&mut self.parts);
        self.outgoing.clear();
        match placement.source {
            PartitionSource::Checkpoint => self.gate.hold(Holds::Unknown),
            PartitionSource::Servers(from) => {
                let from = Lineage::from(from.number);
                if self.gate.stock(from) == HeldPartitions::Whole {
                    let is_own = |part: &usize| own.contains(part);
                    (self.parts, self.outgoing) =
                        held.into_iter().partition(|(part, _)| is_own(part));
                }
                self.gate.hold(Holds::Moving { from, to: self.gate.lineage() });
            }
        }
        self.wanted = own.iter().copied().filter(|part| !self.parts.contains_key(part)).collect();
        self.saves.clear();
    }

    /// The names that all its partitions have.
    fn applied(&self, job: &Job) -> Applied {
        let everything = Applied::everything(job.names.slices(), job.epochs);
        let sets = self.parts.values().map(|part| &part.applied);
        sets.fold(everything, |both, applied| both.intersect(applied))
    }
}
