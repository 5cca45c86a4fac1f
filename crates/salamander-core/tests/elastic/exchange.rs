//! Exchanges between the members of a generation: all give, then each gets the result in its own time, or never.

use salamander_core::elastic::{Generation, Identity, WorkerId};
use salamander_core::seed::mix;

use crate::event::Event;
use crate::faults::Moment;
use crate::truth::StateId;
use crate::world::{World, say};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The members of a generation find each other.
    Connect,
    /// The gradients of a step.
    Step(u64),
    /// All hold the same version.
    Meet,
}

/// What one member gives.
#[derive(Clone, Copy, Debug)]
struct Gift {
    kind: Kind,
    /// What it gives it from, and what that stands for.
    from: Option<(Identity, StateId)>,
    records: u32,
    stop: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    kind: Kind,
    records: u32,
    digest: u64,
    stop: bool,
}

/// One exchange.
pub(crate) struct Exchange {
    members: Vec<WorkerId>,
    gifts: Vec<Option<Gift>>,
    outcome: Option<Outcome>,
}

impl World {
    /// A worker begins to work for the next exchange, if it may take part.
    pub(crate) fn enter(&mut self, id: WorkerId, generation: Generation) {
        let done = self.is_done(id);
        let worker = &mut self.worker(id);
        let may = worker.op == 0 || worker.member.ready(generation).is_ok();
        if worker.generation() != Some(generation) || worker.busy || !may || done {
            return;
        }
        worker.busy = true;
        let op = worker.op;
        let delay = self.between(2, 25);
        self.after(delay, Event::Computed { worker: id, generation, op });
    }

    /// Whether a worker has nothing to exchange any more.
    pub(crate) fn is_done(&self, id: WorkerId) -> bool {
        let worker = &self.workers[&id];
        let Some(identity) = worker.member.holding().identity else { return false };
        let last = worker.agreed || identity.version == self.job.steps();
        worker.op > 0 && last && worker.met == Some(identity.version)
    }

    /// A worker gives to an exchange.
    pub(crate) fn contribute(&mut self, id: WorkerId, generation: Generation, op: u64) {
        let worker = &self.workers[&id];
        let current = worker.generation() == Some(generation) && worker.op == op;
        if !current || worker.gave || worker.member.active() != Some(generation) {
            return;
        }
        let Some(rank) = worker.rank() else { return };
        let Some(gift) = self.gift(id, generation, rank) else {
            self.worker(id).busy = false;
            return;
        };
        let peers = &self.workers[&id].activation.as_ref().expect("it is current").members;
        let members: Vec<WorkerId> = peers.iter().map(|peer| peer.id).collect();
        let gifts = vec![None; members.len()];
        let exchange = self.exchanges.entry((generation, op));
        exchange.or_insert(Exchange { members, gifts, outcome: None }).gifts[rank] = Some(gift);
        self.worker(id).gave = true;
        self.progress(id, generation);
        self.moment(Moment::Given, id);
        self.try_complete(generation, op);
    }

    fn gift(&self, id: WorkerId, generation: Generation, rank: usize) -> Option<Gift> {
        let worker = &self.workers[&id];
        let stop = worker.stop;
        if worker.op == 0 {
            return Some(Gift { kind: Kind::Connect, from: None, records: 0, stop });
        }
        let identity = worker.member.ready(generation).ok()?;
        let from = Some((identity, worker.state));
        let version = identity.version;
        let last = worker.agreed || version == self.job.steps();
        let due = version > 0 && version.is_multiple_of(self.job.every);
        if (last || due) && worker.met != Some(version) {
            return Some(Gift { kind: Kind::Meet, from, records: 0, stop });
        }
        let ranks = worker.activation.as_ref()?.members.len();
        let records = self.job.share(version, rank as u32, ranks as u32);
        Some(Gift { kind: Kind::Step(version), from, records, stop })
    }

    /// All have given and reach each other: the result is on its way.
    fn try_complete(&mut self, generation: Generation, op: u64) {
        let Some(exchange) = self.exchanges.get(&(generation, op)) else { return };
        let members = exchange.members.clone();
        let gifts: Vec<Gift> = exchange.gifts.iter().flatten().copied().collect();
        if gifts.len() < members.len() || exchange.outcome.is_some() || !self.linked(&members) {
            return;
        }
        self.check_gifts(generation, &members, &gifts);
        let kind = gifts[0].kind;
        let records = gifts.iter().fold(0, |all, gift| all | gift.records);
        let step = if let Kind::Step(step) = kind { step } else { 0 };
        let digest = mix(step << 32 | u64::from(records));
        let stop = gifts.iter().any(|gift| gift.stop);
        if let Some((_, state)) = gifts[0].from {
            self.truth.share(state);
        }
        let exchange = self.exchanges.get_mut(&(generation, op)).expect("it was there");
        exchange.outcome = Some(Outcome { kind, records, digest, stop });
        for worker in members {
            let slow = self.chance(0.1);
            let delay = self.between(1, if slow { 150 } else { 25 });
            self.after(delay, Event::Result { worker, generation, op });
        }
    }

    fn linked(&self, members: &[WorkerId]) -> bool {
        let up = |id: &WorkerId| self.workers.get(id).is_some_and(|worker| !worker.paused);
        let reach = |one: &WorkerId| members.iter().all(|other| self.reaches(*one, *other));
        members.iter().all(|id| up(id) && reach(id))
    }

    /// The first invariant: the same state everywhere, and the slices cover the step exactly once.
    fn check_gifts(&mut self, generation: Generation, members: &[WorkerId], gifts: &[Gift]) {
        let first = gifts[0];
        for (id, gift) in members.iter().zip(gifts) {
            let identity = |gift: &Gift| gift.from.map(|(identity, _)| identity);
            if gift.kind != first.kind || identity(gift) != identity(&first) {
                let what = format!("{id} gave {gift:?} to {generation}, another {first:?}");
                return self.truth.blame("identities agree", what);
            }
        }
        let Kind::Step(step) = first.kind else { return };
        let all = gifts.iter().fold(0, |all, gift| all | gift.records);
        let given: u32 = gifts.iter().map(|gift| gift.records.count_ones()).sum();
        if all != self.job.whole(step) || given != all.count_ones() {
            let what = format!("step {step} of {generation}: {gifts:?}");
            self.truth.blame("slices cover the step", what);
        }
    }

    /// The result arrives at a worker.
    pub(crate) fn result(&mut self, id: WorkerId, generation: Generation, op: u64) {
        let worker = self.workers.get_mut(&id).expect("it is awake");
        if worker.generation() != Some(generation) || worker.op != op || !worker.gave {
            return;
        }
        if std::mem::take(&mut worker.unlucky) {
            return;
        }
        let outcome = self.exchanges.get(&(generation, op)).and_then(|exchange| exchange.outcome);
        let Some(outcome) = outcome else { return };
        let applied = match outcome.kind {
            Kind::Connect => worker.member.active() == Some(generation),
            Kind::Meet => match worker.member.met(generation) {
                Ok(version) => {
                    worker.met = Some(version);
                    true
                }
                Err(_) => false,
            },
            Kind::Step(step) => self.commit(id, generation, step, outcome),
        };
        if !applied {
            self.stats.late_results += 1;
            return;
        }
        let worker = self.worker(id);
        worker.op += 1;
        (worker.busy, worker.gave) = (false, false);
        worker.agreed |= outcome.stop;
        self.progress(id, generation);
        self.proceed(id, generation, outcome.kind);
    }

    fn commit(
        &mut self,
        id: WorkerId,
        generation: Generation,
        step: u64,
        outcome: Outcome,
    ) -> bool {
        let worker = self.worker(id);
        let Ok(identity) = worker.member.commit(generation, outcome.digest) else { return false };
        let state = worker.state;
        let state = self.truth.commit(state, identity, step, outcome.records);
        self.worker(id).state = state;
        self.stats.commits += 1;
        say!(self, "{id} commits version {} in {generation}", identity.version);
        true
    }

    fn proceed(&mut self, id: WorkerId, generation: Generation, kind: Kind) {
        match kind {
            Kind::Connect => return self.take_part(id, generation),
            Kind::Step(_) => {
                self.tell(id);
                self.moment(Moment::Committed, id);
            }
            Kind::Meet => {
                self.tell(id);
                let last = self.is_done(id);
                self.write(id, generation, last);
            }
        }
        // A blow may have struck it meanwhile.
        if self.workers.contains_key(&id) {
            self.enter(id, generation);
        }
    }

    /// What waited for a member that was away may go on.
    pub(crate) fn try_complete_all(&mut self) {
        let open = self.exchanges.iter().filter(|(_, exchange)| exchange.outcome.is_none());
        let open: Vec<(Generation, u64)> = open.map(|(key, _)| *key).collect();
        open.into_iter().for_each(|(generation, op)| self.try_complete(generation, op));
    }

    /// The neighbour that a worker would accuse: one that is away, or has not given.
    pub(crate) fn absent(&self, id: WorkerId) -> Option<WorkerId> {
        let worker = &self.workers[&id];
        let activation = worker.activation.as_ref()?;
        let others = || activation.members.iter().map(|peer| peer.id).filter(|other| *other != id);
        let away = |other: &WorkerId| {
            let up = self.workers.get(other).is_some_and(|other| !other.paused);
            !up || !self.reaches(id, *other)
        };
        others().find(away)
    }

    /// A member goes away in the middle: results that pass through it may not arrive.
    pub(crate) fn disturb(&mut self, id: WorkerId) {
        let Some(generation) = self.workers.get(&id).and_then(|worker| worker.generation()) else {
            return;
        };
        for other in self.workers.keys().copied().collect::<Vec<_>>() {
            let worker = &self.workers[&other];
            let exchange = self.exchanges.get(&(generation, worker.op));
            let coming = exchange.is_some_and(|exchange| exchange.outcome.is_some());
            let here = worker.generation() == Some(generation) && worker.gave;
            if other != id && here && coming && self.chance(0.5) {
                self.worker(other).unlucky = true;
            }
        }
    }
}
