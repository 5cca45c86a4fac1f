//! How a worker gets its state, and what it makes known of it.

use salamander_core::elastic::{
    CheckpointMark, Ending, FromMember, Generation, Identity, Source, WorkerId,
};

use crate::event::Event;
use crate::faults::Moment;
use crate::simulation::say;
use crate::truth::{NOTHING, Origin, StateId};
use crate::world::World;

impl World {
    /// A checkpoint is read.
    pub(crate) fn loaded(
        &mut self,
        id: WorkerId,
        generation: Generation,
        mark: Option<CheckpointMark>,
    ) {
        let from = match &mark {
            None => NOTHING,
            Some(mark) => match self.store.get(&mark.id) {
                Some((_, state)) => *state,
                // Once the generation is over, its checkpoint may be deleted.
                None if self.history.activated.as_ref().is_some_and(|(g, _)| *g != generation) => {
                    return;
                }
                None => return self.truth.blame("journaled checkpoints exist", mark.id.clone()),
            },
        };
        if let Ok(identity) = self.worker(id).machine.adopt(generation, from as u64) {
            let state = self.truth.add(from, identity, Origin::Begun);
            self.worker(id).state = state;
            say!(self, "{id} reads version {}", identity.version);
            self.confirmed(id, generation);
        }
    }

    /// Asks the source for the state, again and again until it has it.
    pub(crate) fn fetch(&mut self, id: WorkerId, generation: Generation) {
        let Some(source) = self.source(id, generation) else { return };
        let held = self.workers.get(&source).filter(|worker| !worker.paused);
        let ready = held.and_then(|worker| worker.machine.ready(generation).ok());
        let Some(identity) = ready.filter(|_| self.reaches(id, source)) else {
            return self.after(15, Event::Fetch { worker: id, generation });
        };
        let state = self.workers[&source].state;
        let delay = self.between(10, 120);
        self.after(delay, Event::Received { worker: id, generation, identity, state });
        self.moment(Moment::Sending, source);
    }

    /// The state has arrived, if its sender is still there.
    pub(crate) fn received(
        &mut self,
        id: WorkerId,
        generation: Generation,
        identity: Identity,
        state: StateId,
    ) {
        let Some(source) = self.source(id, generation) else { return };
        let sender = self.workers.get(&source).filter(|worker| !worker.paused);
        let sent = sender.is_some_and(|worker| worker.machine.generation() == Some(generation));
        let read = self.truth.parent(state);
        let worker = self.worker(id);
        let wanted = match worker.machine.activation().map(|activation| &activation.source) {
            Some(Source::Member { identity, .. }) => Some(*identity),
            _ => None,
        };
        // A state that is not the one that was chosen is thrown away.
        let verified = wanted.is_none_or(|wanted| wanted == identity);
        if sent && verified && worker.machine.adopt(generation, read as u64) == Ok(identity) {
            worker.state = state;
            self.stats.transfers += 1;
            self.confirmed(id, generation);
        }
    }

    /// Who gives the state of the generation that the worker is in.
    fn source(&self, id: WorkerId, generation: Generation) -> Option<WorkerId> {
        let worker = &self.workers[&id];
        let activation = worker.machine.activation().filter(|a| a.generation == generation)?;
        let source = activation.members[activation.source.rank()].id;
        (source != id).then_some(source)
    }

    /// Rank 0 tells outside what all members hold.
    pub(crate) fn tell(&mut self, id: WorkerId) {
        let worker = &self.workers[&id];
        if worker.rank() == Some(0)
            && let Some(version) = worker.machine.common()
        {
            let state = self.truth.ancestor(worker.state, version);
            self.truth.tell(state);
        }
    }

    /// Rank 0 writes the state that all members have met at.
    pub(crate) fn write(&mut self, id: WorkerId, generation: Generation, last: bool) {
        let worker = &self.workers[&id];
        if worker.rank() != Some(0) {
            return;
        }
        let Some(version) = worker.machine.common() else { return };
        let state = self.truth.ancestor(worker.state, version);
        let mark =
            CheckpointMark { id: format!("{generation}-{id}-{version}"), version, generation };
        let slow = self.chance(0.2);
        let delay = self.between(5, if slow { 900 } else { 100 });
        self.after(delay, Event::Written { worker: id, mark, state, last });
        self.moment(Moment::Writing, id);
    }

    /// The checkpoint is complete. Its writer does not care whether its generation is over.
    pub(crate) fn written(
        &mut self,
        id: WorkerId,
        mark: CheckpointMark,
        state: StateId,
        last: bool,
    ) {
        let generation = mark.generation;
        let late = self.history.activated.as_ref().is_some_and(|(newest, _)| *newest > generation);
        self.stats.late_checkpoints += u64::from(late);
        self.store.insert(mark.id.clone(), (mark.clone(), state));
        self.send_firmly(id, FromMember::Wrote(mark.clone()));
        if last {
            let done = self.truth.steps(state) == self.job.steps();
            let ending = if done { Ending::Completed } else { Ending::Interrupted };
            self.send_firmly(id, FromMember::Reached(generation, ending));
        }
    }

    /// A checkpoint counts: older ones are deleted.
    pub(crate) fn tidy(&mut self, kept: &CheckpointMark) {
        let order = |mark: &CheckpointMark| (mark.generation, mark.version);
        self.store.retain(|_, (mark, _)| order(mark) >= order(kept));
    }
}
