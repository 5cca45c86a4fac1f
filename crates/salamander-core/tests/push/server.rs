//! A server's process around its gate: applies pushes, gets and gives partitions, writes checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::elastic::{Generation, Millis};
use salamander_core::plan::MicroBatch;
use salamander_core::push::{
    Applied, Checkpoint, Gate, Order, Placed, Placement, Placing, Process, Refused, ServerState,
    Source,
};

use crate::event::{Body, Event, Node, Push};
use crate::truth::{Job, ONCE, Part, Shares, TOGETHER, WHOLE};
use crate::world::{World, say};

const BEAT: Millis = 70;

/// A process.
pub(crate) struct Server {
    pub(crate) born: u64,
    gate: Gate,
    parts: BTreeMap<usize, Part>,
    /// What it held in the map before, for others.
    outgoing: BTreeMap<usize, Part>,
    /// What it is getting.
    order: Option<(Placement, Option<Checkpoint>)>,
    wanted: BTreeSet<usize>,
    /// Where steps are applied as a whole: those that were, and what was received of the next.
    version: u64,
    staged: BTreeMap<MicroBatch, Shares>,
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
            gate: Gate::with_fences(process, self.guards.fences),
            parts: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            order: None,
            wanted: BTreeSet::new(),
            version: 0,
            staged: BTreeMap::new(),
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
        let placed = server.gate.placed().map(|map| Placed {
            map: map.number,
            applied: server.applied(&self.job),
            version: server.version,
        });
        let state = ServerState { incarnation: process.incarnation, placed };
        self.tell_master(Node::Server(process), Body::State(state));
    }

    pub(crate) fn server_hears(&mut self, process: Process, from: Node, body: Body) {
        match body {
            Body::Push(push) => self.receive(process, from, push),
            Body::Order(master, order) => self.obey(process, from, master, order),
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
        let server = &self.servers[&process];
        let admitted = server.gate.admit(push.map);
        if let Err(refused) = admitted {
            // One that is not ready does not answer; others have to know better.
            if matches!(refused, Refused::OtherMap { .. }) {
                self.stats.refused_pushes += 1;
                self.send(Node::Server(process), from, Body::Refuse(push.name));
            }
            return;
        }
        let known = match push.version {
            Some(version) => self.stage(process, push, version),
            None => Some(self.apply(process, push.name, push.shares)),
        };
        match known {
            Some(known) => {
                self.stats.ignored += u64::from(known);
                self.send(Node::Server(process), from, Body::Ack(push.map, push.name));
            }
            None => self.send(Node::Server(process), from, Body::Refuse(push.name)),
        }
    }

    /// Every partition marks the name, whether it has rows in the push or not. Tells whether all had it.
    fn apply(&mut self, process: Process, name: MicroBatch, shares: Shares) -> bool {
        let (once, mut twice, mut known) = (self.guards.once, None, true);
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

    /// Keeps a push for its step; nothing when the server is not there yet.
    fn stage(&mut self, process: Process, push: Push, version: u64) -> Option<bool> {
        let current = self.servers[&process].version;
        if version == current + 1 {
            self.advance(process);
        } else if version > current {
            return None;
        }
        let server = self.server(process);
        let known = version < server.version || server.staged.contains_key(&push.name);
        if version == server.version {
            server.staged.insert(push.name, push.shares);
        }
        Some(known)
    }

    /// Applies the step that was staged: whoever asks for it knows that it is complete.
    fn advance(&mut self, process: Process) {
        let server = self.server(process);
        let staged = std::mem::take(&mut server.staged);
        server.version += 1;
        let (version, map) = (server.version, server.gate.placed());
        let step = (version - 1) % self.job.names.steps();
        let numbers = self.job.names.all().iter();
        let names = numbers.filter(|n| self.job.names.name(0, *n).step == step).count();
        if staged.len() != names {
            let what = format!("{} of {names} of step {step} by {process:?}", staged.len());
            self.blame(WHOLE, what);
        }
        for (name, shares) in staged {
            self.apply(process, name, shares);
        }
        let others = self.servers.values().filter(|other| other.gate.placed() == map);
        let apart = others.map(|other| other.version).find(|other| other.abs_diff(version) > 1);
        if let Some(other) = apart {
            self.blame(TOGETHER, format!("steps {version} and {other} at {process:?}"));
        }
    }

    fn obey(&mut self, process: Process, from: Node, master: u32, order: Order) {
        let to = match &order {
            Order::Place { to, .. }
            | Order::Settled { to, .. }
            | Order::Save { to, .. }
            | Order::Prune { to, .. }
            | Order::Dismiss { to, .. } => *to,
            order => panic!("{order:?} is not for servers"),
        };
        if let Err(refused) = self.server(process).gate.order(master, to) {
            let old = matches!(refused, Refused::OldMaster { .. });
            if old {
                self.stats.refused_masters += 1;
                self.send(Node::Server(process), from, Body::Replaced);
            } else {
                self.stats.refused_orders += 1;
            }
            return;
        }
        match order {
            Order::Place { placement, checkpoint, .. } => {
                self.place(process, placement, checkpoint)
            }
            Order::Settled { map, .. } => {
                let server = self.server(process);
                if server.gate.placed().is_some_and(|placed| placed.number == map) {
                    server.outgoing.clear();
                }
            }
            Order::Save { id, map, version, .. } => self.save(process, id, map, version),
            Order::Prune { below, .. } => {
                self.stats.prunes += 1;
                let server = self.server(process);
                server.parts.values_mut().for_each(|part| part.applied.prune(below));
            }
            Order::Dismiss { .. } => self.end_server(process),
            Order::Journal(_) | Order::Validate { .. } | Order::End(_) => {}
        }
    }

    fn place(&mut self, process: Process, placement: Placement, checkpoint: Option<Checkpoint>) {
        let own: BTreeSet<usize> = self.job.owned(placement.map, process.server).collect();
        let server = self.server(process);
        match server.gate.place(placement.map) {
            Ok(Placing::Begin(before)) => {
                let held = std::mem::take(&mut server.parts);
                let gives = |from| before.is_some_and(|before| before == from);
                server.outgoing = match placement.source {
                    Source::Servers(from) if gives(from) => held,
                    _ => BTreeMap::new(),
                };
                let kept = server.outgoing.iter().filter(|(part, _)| own.contains(part));
                server.parts = kept.map(|(part, held)| (*part, held.clone())).collect();
                server.wanted = own.into_iter().filter(|p| !server.parts.contains_key(p)).collect();
                server.order = Some((placement, checkpoint));
                server.staged.clear();
                server.version = checkpoint.and_then(|last| last.version).unwrap_or(0);
                server.saves.clear();
                self.seek(process);
                self.try_complete(process);
            }
            Ok(Placing::Done) => self.say_state(process),
            Ok(Placing::UnderWay) | Err(_) => {}
        }
    }

    /// Looks for the partitions that it lacks.
    fn seek(&mut self, process: Process) {
        let server = &self.servers[&process];
        let Some((placement, _)) = server.order else { return };
        let (map, partitions) = (placement.map.number, self.job.partitions);
        for part in server.wanted.clone() {
            let owner = match placement.source {
                Source::Servers(from) => Some(from.owner(part as u32, partitions)),
                Source::Checkpoint => None,
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
    fn give(&mut self, process: Process, from: Node, map: Generation, part: usize) {
        let server = &self.servers[&process];
        let frozen = server.order.as_ref().map(|(placement, _)| placement.map.number);
        let given = match frozen {
            Some(own) if own == map => server.outgoing.get(&part).cloned(),
            // It has not heard of the map yet.
            Some(own) if own < map => return,
            _ => None,
        };
        self.send(Node::Server(process), from, Body::Given(map, part, given));
    }

    fn read_soon(&mut self, process: Process, map: Generation, part: usize) {
        let delay = self.between(1, 40);
        self.after(delay, Event::Read { server: process, map, part });
    }

    pub(crate) fn read(&mut self, process: Process, map: Generation, part: usize) {
        let Some((placement, checkpoint)) = self.servers[&process].order else { return };
        if placement.map.number == map && self.servers[&process].wanted.contains(&part) {
            let read = match checkpoint {
                Some(last) => {
                    self.stats.read += 1;
                    self.disk.get(&(last.id, part)).map(|(_, part)| part.clone())
                }
                None => Some(self.job.fresh()),
            };
            // Only a checkpoint that never counted lacks a partition.
            let read = read.unwrap_or_else(|| self.job.fresh());
            self.got(process, map, part, read);
        }
    }

    fn got(&mut self, process: Process, map: Generation, part: usize, got: Part) {
        let server = self.server(process);
        let current = server.order.is_some_and(|(placement, _)| placement.map.number == map);
        if current && server.wanted.remove(&part) {
            server.parts.insert(part, got);
            self.try_complete(process);
        }
    }

    fn try_complete(&mut self, process: Process) {
        let server = self.server(process);
        let Some((placement, _)) = server.order else { return };
        if server.wanted.is_empty() && server.gate.complete(placement.map.number) {
            say!(self, "{process:?} has its partitions of {}", placement.map.number);
            self.say_state(process);
        }
    }

    fn save(&mut self, process: Process, id: Generation, map: Generation, to: Option<u64>) {
        let server = self.server(process);
        match server.saves.get(&id) {
            Some(true) => return self.tell_master(Node::Server(process), Body::Saved(id)),
            Some(false) => return self.tell_master(Node::Server(process), Body::Copied(id)),
            None if server.gate.placed().is_none_or(|placed| placed.number != map) => return,
            None => {}
        }
        if to.is_some_and(|to| to == server.version + 1) {
            self.advance(process);
        }
        let server = self.server(process);
        if to.is_some_and(|to| to != server.version) {
            return;
        }
        server.saves.insert(id, false);
        let (version, parts) = (server.version, server.parts.clone());
        self.tell_master(Node::Server(process), Body::Copied(id));
        let delay = self.between(5, 80);
        self.after(delay, Event::Written { server: process, id, version, parts });
    }

    pub(crate) fn written(
        &mut self,
        process: Process,
        id: Generation,
        version: u64,
        parts: BTreeMap<usize, Part>,
    ) {
        for (part, written) in parts {
            self.disk.insert((id, part), (version, written));
        }
        self.server(process).saves.insert(id, true);
        self.tell_master(Node::Server(process), Body::Saved(id));
    }
}

impl Server {
    /// The names that all its partitions have.
    fn applied(&self, job: &Job) -> Applied {
        let everything = Applied::everything(job.names.slices(), job.epochs);
        let sets = self.parts.values().map(|part| &part.applied);
        let mut both = sets.fold(everything, |both, applied| both.intersect(applied));
        for name in self.staged.keys() {
            both.insert(*name);
        }
        both
    }
}
