//! Exchanges between the members of a generation: all give, then each gets the result in its own time, or never.

use salamander_core::elastic::{Generation, Identity, WorkerId};
use salamander_core::seed::mix;

use crate::event::Event;
use crate::faults::Moment;
use crate::simulation::say;
use crate::truth::{Content, Origin, StateId};
use crate::world::{TIMEOUTS, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangeKind {
    /// The members of a generation find each other.
    Connect,
    /// The gradients of a step.
    Step(u64),
    /// All hold the same version, for a checkpoint.
    Meet,
    /// All hold the same version, so that rows may be brought to it; nothing is committed.
    Rows,
    /// All wait until the rows have moved; nothing is committed.
    MovedRows,
}

/// What one member gives.
#[derive(Clone, Copy, Debug)]
struct Gift {
    kind: ExchangeKind,
    /// What it gives it from, and what that stands for,
    from: Option<(Identity, StateId)>,
    /// and what is in it.
    content: Option<Content>,
    records: u32,
    stop: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    kind: ExchangeKind,
    records: u32,
    digest: u64,
    stop: bool,
    /// All write a checkpoint next, and wait after it.
    hold: bool,
}

impl Outcome {
    fn origin(&self) -> Origin {
        match self.kind {
            ExchangeKind::Step(step) => Origin::Step(step, self.records),
            _ => Origin::Met,
        }
    }
}

/// One exchange.
pub(crate) struct Exchange {
    members: Vec<WorkerId>,
    gifts: Vec<Option<Gift>>,
    /// One of those that gave was asked for a checkpoint, since a server wants to leave.
    hold: bool,
    outcome: Option<Outcome>,
}

impl World {
    /// A worker begins to work for the next exchange, if it may take part.
    pub(crate) fn enter(&mut self, id: WorkerId, generation: Generation) {
        let done = self.is_done(id);
        let worker = &self.workers[&id];
        let may = worker.op == 0 || worker.machine.ready(generation).is_ok();
        let works = worker.machine.generation() == Some(generation) && worker.rows.works();
        if !works || worker.busy || !may || done || self.is_holding(id) {
            return;
        }
        let worker = self.worker(id);
        worker.busy = true;
        let op = worker.op;
        let delay = self.between(2, 25);
        self.after(delay, Event::Computed { worker: id, generation, op });
    }

    /// Whether a worker has nothing to exchange any more.
    pub(crate) fn is_done(&self, id: WorkerId) -> bool {
        let worker = &self.workers[&id];
        let Some(identity) = worker.machine.holding().identity else { return false };
        let last = worker.agreed || self.truth.steps(worker.state) == self.job.steps();
        worker.op > 0 && last && worker.met == Some(identity.version)
    }

    /// Whether a worker waits for a server to leave, after a checkpoint.
    pub(crate) fn is_holding(&self, id: WorkerId) -> bool {
        let worker = &self.workers[&id];
        let version = worker.machine.holding().identity.map(|identity| identity.version);
        worker.holds && version.is_some() && worker.met == version
    }

    /// A worker gives to an exchange.
    pub(crate) fn contribute(&mut self, id: WorkerId, generation: Generation, op: u64) {
        let worker = &self.workers[&id];
        let current = worker.machine.generation() == Some(generation) && worker.op == op;
        if !current || worker.gave {
            return;
        }
        let Some(rank) = worker.rank() else { return };
        if self.calls_first(id, generation, op) {
            return;
        }
        let Some(gift) = self.gift(id, generation, rank) else {
            self.worker(id).busy = false;
            return;
        };
        let peers = &self.workers[&id].machine.activation().expect("it is current").members;
        let members: Vec<WorkerId> = peers.iter().map(|peer| peer.id).collect();
        let gifts = vec![None; members.len()];
        let is_step = matches!(gift.kind, ExchangeKind::Step(_));
        let hold = is_step && self.worker(id).machine.take_save();
        let exchange = self.exchanges.entry((generation, op));
        let exchange = exchange.or_insert(Exchange { members, gifts, hold: false, outcome: None });
        exchange.gifts[rank] = Some(gift);
        exchange.hold |= hold;
        self.worker(id).gave = true;
        self.progress(id, generation);
        self.moment(Moment::Given, id);
        self.try_complete(generation, op);
    }

    fn gift(&self, id: WorkerId, generation: Generation, rank: usize) -> Option<Gift> {
        let worker = &self.workers[&id];
        let stop = worker.machine.wants_stop();
        if worker.op == 0 {
            let kind = ExchangeKind::Connect;
            return Some(Gift { kind, from: None, content: None, records: 0, stop });
        }
        let identity = worker.machine.ready(generation).ok()?;
        let (from, content) = (Some((identity, worker.state)), worker.content);
        let steps = self.truth.steps(worker.state);
        let waits = match () {
            () if self.must_meet(id, identity.version) => Some(ExchangeKind::Rows),
            () if self.is_moving(id) => Some(ExchangeKind::MovedRows),
            () => None,
        };
        if let Some(kind) = waits {
            return Some(Gift { kind, from, content, records: 0, stop: false });
        }
        if !self.gives_a_step(id) {
            return Some(Gift { kind: ExchangeKind::Meet, from, content, records: 0, stop });
        }
        let ranks = worker.machine.activation()?.members.len();
        let records = self.job.share(steps, rank as u32, ranks as u32);
        Some(Gift { kind: ExchangeKind::Step(steps), from, content, records, stop })
    }

    /// Whether the next that a member commits is a step.
    pub(crate) fn gives_a_step(&self, id: WorkerId) -> bool {
        let worker = &self.workers[&id];
        let steps = self.truth.steps(worker.state);
        let last = worker.agreed || steps == self.job.steps();
        let due = steps > 0 && steps.is_multiple_of(self.job.every);
        let version = worker.machine.holding().identity.map(|identity| identity.version);
        !((last || due || worker.holds) && worker.met != version)
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
        let step = if let ExchangeKind::Step(step) = kind { step } else { 0 };
        let digest = mix(step << 32 | u64::from(records));
        let stop = gifts.iter().any(|gift| gift.stop);
        if let Some((_, state)) = gifts[0].from {
            self.truth.share(state);
        }
        let exchange = self.exchanges.get_mut(&(generation, op)).expect("it was there");
        let hold = exchange.hold;
        exchange.outcome = Some(Outcome { kind, records, digest, stop, hold });
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
            let differs = gift.content != first.content;
            if first.kind != ExchangeKind::Connect && (differs || gift.content.is_none()) {
                let what = format!("{id} gave {gift:?} to {generation}, another {first:?}");
                return self.truth.blame("contents agree", what);
            }
        }
        let ExchangeKind::Step(step) = first.kind else { return };
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
        // A result may come though the exchange was cancelled: it must not count.
        if worker.op != op || !worker.gave || worker.began != Some(generation) {
            return;
        }
        if std::mem::take(&mut worker.unlucky) {
            return;
        }
        let outcome = self.exchanges.get(&(generation, op)).and_then(|exchange| exchange.outcome);
        let Some(outcome) = outcome else { return };
        if !matches!(outcome.kind, ExchangeKind::Step(_) | ExchangeKind::Meet) {
            if worker.machine.generation() != Some(generation) {
                self.stats.late_results += 1;
                return;
            }
            self.next_op(id, outcome.stop);
            self.worker(id).busy = false;
            self.progress(id, generation);
            return self.went_on(id, generation, outcome.kind);
        }
        let Ok(identity) = worker.machine.commit(generation, outcome.digest) else {
            self.stats.late_results += 1;
            return;
        };
        let (state, origin) = (worker.state, outcome.origin());
        let state = self.truth.add(state, identity, origin);
        let worker = self.worker(id);
        worker.state = state;
        // From now on it is neither the old state nor the new one.
        worker.changing = worker.content.take().map(|content| origin.applied(content));
        self.stats.commits += 1;
        say!(self, "{id} commits version {} in {generation}", identity.version);
        self.next_op(id, outcome.stop);
        self.worker(id).holds |= outcome.hold;
        self.report(id, generation, identity, outcome.kind != ExchangeKind::Meet);
        self.committed(id, generation, outcome.kind, identity);
    }

    /// An exchange that commits nothing is over.
    fn went_on(&mut self, id: WorkerId, generation: Generation, kind: ExchangeKind) {
        let worker = self.worker(id);
        match kind {
            ExchangeKind::Rows => {
                let ready = worker.machine.ready(generation);
                worker.rows.met = ready.ok().map(|identity| identity.version);
            }
            ExchangeKind::MovedRows => worker.rows.relocated = true,
            _ => return self.take_part(id, generation),
        }
        self.enter(id, generation);
    }

    fn next_op(&mut self, id: WorkerId, stop: bool) {
        let worker = self.worker(id);
        worker.op += 1;
        worker.gave = false;
        worker.agreed |= stop;
    }

    /// What a worker tells outside as soon as it has committed. Its state takes a while longer.
    fn committed(
        &mut self,
        id: WorkerId,
        generation: Generation,
        kind: ExchangeKind,
        after: Identity,
    ) {
        let slow = self.is_wild() && self.chance(0.1);
        let slowest = self.mood.apply;
        let delay = self.between(0, if slow { slowest } else { 12 });
        self.stats.slow_applies += u64::from(delay > TIMEOUTS.promise);
        // Who writes a checkpoint has servers copy their rows first.
        let leads = self.workers[&id].rank() == Some(0);
        if !(kind == ExchangeKind::Meet && leads && self.is_hybrid()) {
            self.after(delay, Event::Applied { worker: id, generation });
        }
        self.progress(id, generation);
        self.tell(id);
        if kind == ExchangeKind::Meet {
            self.worker(id).met = Some(after.version);
            let last = self.is_done(id);
            self.write(id, generation, last);
        } else {
            self.moment(Moment::Committed, id);
        }
    }

    /// The result is in the state.
    pub(crate) fn applied(&mut self, id: WorkerId, generation: Generation) {
        let worker = self.worker(id);
        worker.busy = false;
        worker.content = worker.changing.take();
        worker.machine.applied();
        let promised = worker.machine.generation() != Some(generation);
        self.stats.late_promises += u64::from(promised);
        self.act(id);
        self.progress(id, generation);
        self.enter(id, generation);
    }

    /// What waited for a member that was away may go on.
    pub(crate) fn try_complete_all(&mut self) {
        let open = self.exchanges.iter().filter(|(_, exchange)| exchange.outcome.is_none());
        let open: Vec<(Generation, u64)> = open.map(|(key, _)| *key).collect();
        open.into_iter().for_each(|(generation, op)| self.try_complete(generation, op));
    }

    /// The rank of the neighbour that a worker would accuse: one that is away.
    pub(crate) fn absent(&self, id: WorkerId) -> Option<usize> {
        let worker = &self.workers[&id];
        let activation = worker.machine.activation()?;
        activation.members.iter().position(|peer| {
            let up = self.workers.get(&peer.id).is_some_and(|other| !other.paused);
            peer.id != id && (!up || !self.reaches(peer.id, id))
        })
    }

    /// A member goes away in the middle: results that pass through it may not arrive.
    pub(crate) fn disturb(&mut self, id: WorkerId) {
        let Some(generation) = self.workers.get(&id).and_then(|worker| worker.began) else {
            return;
        };
        for other in self.workers.keys().copied().collect::<Vec<_>>() {
            let worker = &self.workers[&other];
            let exchange = self.exchanges.get(&(generation, worker.op));
            let coming = exchange.is_some_and(|exchange| exchange.outcome.is_some());
            let here = worker.began == Some(generation) && worker.gave;
            if other != id && here && coming && self.chance(0.5) {
                self.worker(other).unlucky = true;
            }
        }
    }
}
