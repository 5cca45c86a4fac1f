//! The master's side of membership: who is in the next generation, and whose state survives.

mod choice;
mod exclusion;
mod known_worker;
mod leaving;
mod servers;
mod timeouts;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Activation, CheckpointMark, Ending, Fence, FromMember, Generation, Hello, Identity,
    LeavingServers, MembershipEntry, Millis, Peer, RunState, StateSource, ToMember, WorkerId,
};

use choice::Promised;
use exclusion::UNTIL_IT_PROMISES;
use known_worker::{KnownWorker, Strikes};
use leaving::WaitingMembers;
use servers::RowsPlan;
pub use timeouts::Timeouts;

/// Where the membership stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There has been no generation yet.
    Gathering,
    /// A generation is being formed.
    Preparing(Generation),
    /// A generation works.
    Running(Generation),
    /// The run is over.
    Ended(Ending),
}

/// What the master has to do, in this order: everything journaled is on disk before the next is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write down.
    Journal(MembershipEntry),
    /// Tell a member.
    Send(WorkerId, ToMember),
    /// A worker is out of the membership, for this reason.
    Dropped(WorkerId, &'static str),
}

/// The membership as the master sees it.
///
/// **Which state survives**: the greatest (version, generation) among members of the last generation that began,
/// and of those only states that are on its lineage: confirmed in that generation, or promised to it by a member
/// that was eligible then. Who was dropped comes back with nothing, whatever it still holds.
#[derive(Clone, Debug)]
pub struct Coordinator {
    run: RunState,
    min: usize,
    timeouts: Timeouts,
    without: Option<Fence>,
    workers: BTreeMap<WorkerId, KnownWorker>,
    phase: Phase,
    since: Millis,
    /// When time passed last.
    ticked: Millis,
    /// When newcomers are let in.
    join_at: Option<Millis>,
    /// Members of the running generation that have its state.
    confirmed: BTreeSet<WorkerId>,
    /// Parameter servers that want to leave.
    leaving: LeavingServers,
    /// Who waits for that.
    waiting: Option<WaitingMembers>,
    actions: Vec<Action>,
}

impl Coordinator {
    /// Takes over a run. Fewer than `min` workers do not train, unless fewer are wanted.
    pub fn open(run: RunState, min: usize, timeouts: Timeouts, now: Millis) -> Self {
        // Members of the last generation get the time to come back: they may be working.
        let absent = |id: &WorkerId| {
            let peer = Peer { id: *id, endpoint: String::new() };
            (*id, KnownWorker { connected: false, ..KnownWorker::new(peer, now) })
        };
        let phase = match (&run.history.ending, &run.history.activated) {
            (Some(ending), _) => Phase::Ended(ending.clone()),
            (None, Some((generation, _))) => Phase::Running(*generation),
            (None, None) => Phase::Gathering,
        };
        // Another number of workers may have been wanted when the master before was killed.
        let join_at = matches!(phase, Phase::Running(_)).then(|| now + timeouts.join);
        Self {
            min: min.max(1),
            timeouts,
            without: None,
            workers: run.history.order.iter().map(absent).collect(),
            phase,
            since: now,
            ticked: now,
            join_at,
            confirmed: BTreeSet::new(),
            leaving: LeavingServers::default(),
            waiting: None,
            actions: vec![Action::Journal(MembershipEntry::Opened)],
            run,
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// What does not depend on membership.
    pub fn run(&self) -> &RunState {
        &self.run
    }

    /// Where the membership stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The generation that works or is being formed, or else the last one.
    pub fn generation(&self) -> Option<Generation> {
        match self.phase {
            Phase::Preparing(generation) | Phase::Running(generation) => Some(generation),
            _ => self.run.history.activated.as_ref().map(|(generation, _)| *generation),
        }
    }

    /// The members of the last generation, in their order, and whether each has confirmed it.
    pub fn members(&self) -> Vec<(WorkerId, bool)> {
        let confirmed = |id: &WorkerId| self.confirmed.contains(id);
        self.run.history.order.iter().map(|id| (*id, confirmed(id))).collect()
    }

    /// What is to be done since the last call.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// A worker connects, for the first time or again.
    pub fn hello(&mut self, now: Millis, hello: Hello) {
        let id = hello.peer.id;
        let known = self.workers.get(&id);
        let (unreachable, without_rows) =
            known.map_or_else(Default::default, |known| (known.unreachable, known.without_rows));
        let Hello { peer, active, slot } = hello;
        let known = KnownWorker::new(peer, now);
        self.workers.insert(id, KnownWorker { unreachable, without_rows, slot, ..known });
        match self.phase.clone() {
            Phase::Ended(ending) => self.send(id, ToMember::Ended(ending)),
            Phase::Preparing(generation) => self.send(id, ToMember::Prepare(generation)),
            Phase::Gathering => self.try_first(now),
            Phase::Running(generation) if active == Some(generation) => {
                if self.run.history.stopping {
                    self.send(id, ToMember::Stop);
                }
                self.ask_to_save(id);
            }
            Phase::Running(_) if self.is_member(id) => self.regroup(now),
            Phase::Running(_) => self.expect_join(now),
        }
    }

    /// A heartbeat of a worker.
    pub fn heard(&mut self, now: Millis, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.heard = now;
        if worker.excluded.is_some_and(|until| until <= now) {
            worker.excluded = None;
            match self.phase {
                Phase::Preparing(generation) => self.send(id, ToMember::Prepare(generation)),
                _ => self.expect_join(now),
            }
        }
    }

    /// A worker's connection ended; it may come back.
    pub fn disconnected(&mut self, now: Millis, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.connected = false;
            worker.promise = None;
        }
        self.try_activate(now);
    }

    /// A worker's process is known to have ended.
    pub fn gone(&mut self, now: Millis, id: WorkerId, reason: &'static str) {
        if self.workers.remove(&id).is_some() {
            self.actions.push(Action::Dropped(id, reason));
            self.after_loss(now, id);
        }
    }

    /// A worker found data or model to be wrong. Only a member's word ends the run: others may have come to something
    /// else since, and theirs is what counts.
    pub fn failed(&mut self, now: Millis, id: WorkerId, reason: String) {
        let has_left = self.workers.get(&id).is_none_or(|worker| worker.excluded.is_some());
        if self.is_member(id) && !has_left || self.without == Some(Fence::Failure) {
            self.end(Ending::Failed(reason));
        } else {
            self.gone(now, id, "it failed, and was no member");
        }
    }

    /// Nothing goes on in the generation, and nobody knows why: its members connect anew.
    pub fn stuck(&mut self, now: Millis) {
        if matches!(self.phase, Phase::Running(_)) {
            self.regroup(now);
        }
    }

    /// Whether what a generation has to tell is still true.
    pub fn is_on_line(&self, generation: Generation) -> bool {
        self.run.history.is_on_line(generation) || self.without == Some(Fence::Checkpoint)
    }

    /// A message of a worker.
    pub fn message(&mut self, now: Millis, id: WorkerId, message: FromMember) {
        if let (FromMember::Promise(..), Some(worker)) = (&message, self.workers.get_mut(&id)) {
            worker.excluded.take_if(|until| *until == UNTIL_IT_PROMISES);
            worker.busy = None;
        }
        self.heard(now, id);
        match message {
            FromMember::Promise(generation, holding)
                if self.phase == Phase::Preparing(generation) =>
            {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.promise = Some((generation, holding));
                    self.try_activate(now);
                }
            }
            FromMember::Busy(generation) if self.phase == Phase::Preparing(generation) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.busy = Some(generation);
                }
            }
            FromMember::Confirmed(generation) if self.phase == Phase::Running(generation) => {
                self.confirmed.insert(id);
                if self.confirmed.len() == self.run.history.order.len() {
                    self.all_confirmed(now);
                }
            }
            FromMember::Broken(generation, accused) if self.phase == Phase::Running(generation) => {
                self.accuse(now, id, accused);
                self.regroup(now);
            }
            FromMember::Wrote(mark) if self.is_on_line(mark.generation) => self.keep(mark),
            FromMember::Reached(generation, ending) if self.is_current(generation) => {
                self.end(ending);
            }
            FromMember::Moved(generation) => self.moved(now, generation),
            FromMember::Holds(generation) if self.is_current(generation) => {
                self.members_wait(now, generation);
            }
            FromMember::Leave => self.gone(now, id, "it left"),
            // It is about a generation that is over.
            _ => {}
        }
    }

    /// Time has passed. To be called several times within the shortest of the timeouts.
    pub fn tick(&mut self, now: Millis) {
        let longest = self.timeouts.silence.min(self.timeouts.promise) / 2;
        if now > self.ticked + longest {
            // The master itself was held up: what it did not watch is nobody's silence.
            self.workers.values_mut().for_each(|worker| worker.heard = now);
            self.since = now;
        }
        self.ticked = now;
        self.look_at_leavers(now);
        let silent: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.excluded.is_none())
            .filter(|(_, worker)| now >= worker.heard + self.timeouts.silence)
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            if self.workers.get(&id).is_some_and(|worker| worker.connected) {
                self.leave_out(id, now, "it was silent");
                self.after_loss(now, id);
            } else {
                self.gone(now, id, "it did not come back");
            }
        }
        match self.phase {
            Phase::Preparing(_) if now >= self.since + self.timeouts.promise => {
                for (id, is_busy) in self.overdue(now) {
                    match is_busy {
                        true => self.leave_out(id, UNTIL_IT_PROMISES, "it is still applying"),
                        false => self.leave_out(id, now, "it did not answer"),
                    }
                }
                self.try_activate(now);
            }
            Phase::Gathering => self.try_first(now),
            // A member that is away comes back or is gone soon, and decides whether there is a place. Rows that
            // are on their way would have to begin again from a checkpoint.
            Phase::Running(_)
                if self.join_at.is_some_and(|at| at <= now)
                    && !self.awaits()
                    && self.run.history.destination.is_empty() =>
            {
                self.join_at = None;
                let changes = self.chosen() != self.run.history.order;
                if changes {
                    self.regroup(now);
                }
            }
            _ => {}
        }
    }

    /// Another number of workers is wanted.
    pub fn scale(&mut self, now: Millis, workers: usize) {
        let entry = self.run.scale(workers);
        self.actions.push(Action::Journal(entry));
        self.expect_join(now);
    }

    /// The slots of members: their processes are not to be ended because fewer are wanted, before a generation has
    /// begun without them. None: a member has not said yet which it is, so that none is to be ended.
    pub fn needed_slots(&self) -> Option<BTreeSet<u32>> {
        let members = self.run.history.order.iter().filter_map(|id| self.workers.get(id));
        let is_known = |member: &&KnownWorker| member.slot.is_some() || member.connected;
        let all_known = members.clone().all(|member| is_known(&member));
        all_known.then(|| members.filter_map(|member| member.slot).collect())
    }

    /// An early end is wanted, at a version that all members agree on.
    pub fn stop(&mut self) {
        let Some(entry) = self.run.stop() else { return };
        self.actions.push(Action::Journal(entry));
        if self.phase == Phase::Gathering {
            self.end(Ending::Interrupted);
        } else {
            self.send_all(&ToMember::Stop);
        }
    }

    /// The run is over.
    pub fn end(&mut self, ending: Ending) {
        if let Some(entry) = self.run.end(ending.clone()) {
            self.actions.push(Action::Journal(entry));
            self.phase = Phase::Ended(ending.clone());
            self.send_all(&ToMember::Ended(ending));
        }
    }

    /// A checkpoint counts, unless a newer one does: slow writers and repeated messages come late.
    fn keep(&mut self, mark: CheckpointMark) {
        let order = |mark: &CheckpointMark| (mark.version, mark.generation);
        let last = self.run.history.checkpoint.as_ref();
        if last != Some(&mark) {
            let newer = last.is_none_or(|last| order(last) < order(&mark));
            if !newer || matches!(self.phase, Phase::Ended(_)) {
                return;
            }
            self.journal(MembershipEntry::Checkpoint(mark.clone()));
        }
        self.send_all(&ToMember::Kept(mark));
    }

    fn try_first(&mut self, now: Millis) {
        let present = self.candidates().len();
        if present < self.least() {
            self.since = now;
        } else if present >= self.run.wanted.workers || now >= self.since + self.timeouts.first {
            self.regroup(now);
        }
    }

    /// All members have the state: those that have to go have handed it over.
    fn all_confirmed(&mut self, now: Millis) {
        for (id, worker) in &mut self.workers {
            worker.unreachable.count = 0;
            if self.run.history.order.contains(id) {
                worker.unreachable = Strikes::default();
            }
        }
        if self.run.history.order.iter().any(|id| self.is_leaving(*id)) {
            self.expect_join(now);
        }
    }

    fn expect_join(&mut self, now: Millis) {
        let at = now + self.timeouts.join;
        self.join_at = Some(self.join_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn after_loss(&mut self, now: Millis, id: WorkerId) {
        match self.phase {
            Phase::Running(_) if self.is_member(id) => self.regroup(now),
            Phase::Preparing(_) => self.try_activate(now),
            _ => {}
        }
    }

    /// Opens a new generation: its number is on disk before anybody hears of it.
    fn regroup(&mut self, now: Millis) {
        let number = self.run.history.prepared.number + 1;
        let generation = Generation { term: self.run.term, number };
        self.journal(MembershipEntry::Prepared(generation));
        self.phase = Phase::Preparing(generation);
        self.since = now;
        self.join_at = None;
        self.confirmed.clear();
        for id in self.candidates() {
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.promise = None;
            }
            self.send(id, ToMember::Prepare(generation));
        }
    }

    fn try_activate(&mut self, now: Millis) {
        let Phase::Preparing(generation) = self.phase else { return };
        let chosen = self.chosen();
        if chosen.len() < self.least() {
            return self.let_back(now, generation);
        }
        if !self.unpromised().is_empty() {
            return;
        }
        // What is done before it has left would be lost with its rows.
        if self.awaits_leavers() {
            return;
        }
        let promised = |id: &WorkerId| {
            let holding = self.promised(*id)?;
            Some(Promised { id: *id, holding, eligible: self.eligible(*id, holding) })
        };
        let promised: Vec<Promised> = chosen.iter().filter_map(promised).collect();
        let (source, transfer) = self.choose(&promised);
        // Nobody here has the state, but who is away may have it: a checkpoint is the last resort.
        if matches!(source, StateSource::Checkpoint { .. }) && self.awaits() && self.same_servers()
        {
            return;
        }
        let Some(rows) = self.rows(generation, &source) else { return };
        let RowsPlan { servers, destination, since } = rows;
        let members: Vec<(WorkerId, Option<Identity>)> =
            promised.iter().map(|promised| (promised.id, promised.state())).collect();
        let ids = |servers: &[Peer]| servers.iter().map(|server| server.id).collect();
        self.journal(MembershipEntry::Activated {
            generation,
            members,
            servers: ids(&servers),
            rows: since,
            destination: ids(&destination),
        });
        self.phase = Phase::Running(generation);
        self.since = now;
        let peers = chosen.iter().filter_map(|id| Some(self.workers.get(id)?.peer.clone()));
        let members = peers.collect();
        let rows = since;
        let activation =
            Activation { generation, members, source, transfer, servers, rows, destination };
        for id in chosen {
            self.send(id, ToMember::Activate(activation.clone()));
            if self.run.history.stopping {
                self.send(id, ToMember::Stop);
            }
            self.ask_to_save(id);
        }
    }

    fn journal(&mut self, entry: MembershipEntry) {
        let entry = self.run.enter(entry);
        self.actions.push(Action::Journal(entry));
    }

    fn send(&mut self, id: WorkerId, message: ToMember) {
        self.actions.push(Action::Send(id, message));
    }

    fn send_all(&mut self, message: &ToMember) {
        let connected = self.workers.values().filter(|worker| worker.connected);
        let ids: Vec<WorkerId> = connected.map(|worker| worker.peer.id).collect();
        ids.into_iter().for_each(|id| self.send(id, message.clone()));
    }
}

#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;
