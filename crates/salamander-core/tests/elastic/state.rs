//! How a worker gets its state, and what it makes known of it.

use salamander_core::elastic::{
    CheckpointMark, Ending, FromMember, Generation, GenerationChain, Identity, MemberReport,
    ReportPlace, ReportQueue, StateSource, WorkerId,
};

use crate::calls::RowSave;
use crate::event::{Event, NewState, Word};
use crate::faults::Moment;
use crate::simulation::say;
use crate::truth::{Content, NOTHING, Origin, StateId};
use crate::worker::Worker;
use crate::world::{Guard, World};

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
        self.restored(id, generation, NewState::Read(from));
    }

    /// Asks the source for the state, again and again until it has it.
    pub(crate) fn fetch(&mut self, id: WorkerId, generation: Generation) {
        let Some(source) = self.source(id, generation) else { return };
        let held = self.workers.get(&source).filter(|worker| !worker.paused);
        let ready = held.and_then(|worker| worker.machine.ready(generation).ok());
        let Some(identity) = ready.filter(|_| self.reaches(id, source)) else {
            return self.after(15, Event::Fetch { worker: id, generation });
        };
        let Worker { state, content: Some(content), ref reports, .. } = self.workers[&source]
        else {
            return self.after(15, Event::Fetch { worker: id, generation });
        };
        let new = NewState::Received { identity, state, content, reports: reports.clone() };
        let delay = self.between(10, 120);
        self.after(delay, Event::Arrived { worker: id, generation, new });
        self.moment(Moment::Sending, source);
    }

    /// The state has arrived, if its sender is still there, and takes the place of the worker's own.
    pub(crate) fn arrived(&mut self, id: WorkerId, generation: Generation, new: NewState) {
        let Some(source) = self.source(id, generation) else { return };
        let sender = self.workers.get(&source).filter(|worker| !worker.paused);
        let sent = sender.is_some_and(|worker| worker.machine.generation() == Some(generation));
        let worker = self.worker(id);
        let wanted = match worker.machine.activation().map(|activation| &activation.source) {
            Some(StateSource::Member { identity, .. }) => Some(*identity),
            _ => None,
        };
        let NewState::Received { identity, .. } = new else { return };
        // A state that is not the one that was chosen is thrown away.
        let verified = wanted.is_none_or(|wanted| wanted == identity);
        if !sent || !verified || worker.machine.replace(generation).is_err() {
            return;
        }
        (worker.content, worker.changing) = (None, None);
        let slowest = if self.is_wild() { self.mood.apply } else { 12 };
        let delay = self.between(0, slowest);
        self.after(delay, Event::Restored { worker: id, generation, new });
        self.moment(Moment::Arrived, id);
    }

    /// It has taken that place, and has no name yet.
    pub(crate) fn restored(&mut self, id: WorkerId, generation: Generation, new: NewState) {
        let content = match &new {
            NewState::Read(from) => self.truth.content(*from),
            NewState::Received { content, .. } => *content,
        };
        self.worker(id).content = Some(content);
        let delay = self.between(0, 30);
        self.after(delay, Event::Adopted { worker: id, generation, new });
        self.moment(Moment::Restored, id);
    }

    /// It gets its name.
    pub(crate) fn adopted(&mut self, id: WorkerId, generation: Generation, new: NewState) {
        let digest = match new {
            NewState::Read(from) => from,
            NewState::Received { state, .. } => self.truth.parent(state),
        };
        let adopted = self.worker(id).machine.adopt(generation, digest as u64);
        if let Ok(identity) = adopted {
            let state = match new {
                NewState::Read(from) => self.truth.add(from, identity, Origin::Begun),
                NewState::Received { state, .. } => state,
            };
            let with_reports = self.has(Guard::Reports);
            let worker = self.worker(id);
            worker.state = state;
            if let NewState::Received { reports, .. } = new {
                worker.reports = if with_reports { reports } else { ReportQueue::default() };
                self.stats.transfers += 1;
            }
            self.worker(id).reports.follow(identity, generation);
            self.repeat_reports(id);
            say!(self, "{id} has version {}", identity.version);
        }
        self.worker(id).machine.applied();
        self.act(id);
        if adopted.is_ok() {
            self.confirmed(id, generation);
            self.moment(Moment::Adopted, id);
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

    /// A commit makes earlier reports known and adds its own.
    pub(crate) fn report(
        &mut self,
        id: WorkerId,
        generation: Generation,
        after: Identity,
        is_step: bool,
    ) {
        let worker = self.worker(id);
        let common = worker.machine.common().unwrap_or_default();
        let released = worker.reports.release(common);
        worker.reports.follow(after, generation);
        if let Some(content) = worker.changing.filter(|_| is_step) {
            worker.reports.push(content);
        }
        if worker.rank() == Some(0) {
            released.into_iter().for_each(|told| self.send_firmly(id, Word::Report(told)));
        }
    }

    /// At the begin of a generation its first member repeats what the one before may not have sent.
    pub(crate) fn repeat_reports(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        if worker.rank() == Some(0) {
            let told: Vec<_> = worker.reports.repeated().cloned().collect();
            told.into_iter().for_each(|told| self.send_firmly(id, Word::Report(told)));
        }
    }

    /// A master takes a report.
    pub(crate) fn take_report(&mut self, line: GenerationChain, told: MemberReport<Content>) {
        let MemberReport { version, report, .. } = told;
        let is_news = self.taken.take(line, ReportPlace { version, part: 1 });
        let known = self.log.iter().find(|(known, _)| *known == version).map(|(_, told)| *told);
        match (is_news, known) {
            (true, _) => self.log.push((version, report)),
            (false, Some(told)) if told != report => {
                let what = format!("version {version} was told of another line");
                self.truth.blame("what was told is true", what);
            }
            (false, _) => self.stats.repeated_reports += 1,
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
        if self.is_hybrid() {
            self.copy_rows(id, RowSave { mark, state, last });
        } else {
            let slow = self.chance(0.2);
            let delay = self.between(5, if slow { 900 } else { 100 });
            self.after(delay, Event::Written { worker: id, mark, state, last });
        }
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
        self.send_firmly(id, Word::Member(FromMember::Wrote(mark.clone())));
        let machine = &self.workers[&id].machine;
        let is_newest =
            machine.generation() == Some(generation) && machine.common() == Some(mark.version);
        if is_newest && self.is_holding(id) {
            self.stats.holds += 1;
            self.send_firmly(id, Word::Member(FromMember::Holds(generation)));
        }
        if last {
            let done = self.truth.steps(state) == self.job.steps();
            let ending = if done { Ending::Completed } else { Ending::Interrupted };
            self.send_firmly(id, Word::Member(FromMember::Reached(generation, ending)));
        }
    }

    /// A checkpoint counts: older ones are deleted.
    pub(crate) fn tidy(&mut self, kept: &CheckpointMark) {
        let order = |mark: &CheckpointMark| (mark.generation, mark.version);
        let row_files = &mut self.row_files;
        self.store.retain(|id, (mark, _)| {
            let is_kept = order(mark) >= order(kept);
            if !is_kept {
                row_files.remove(id);
            }
            is_kept
        });
    }
}
