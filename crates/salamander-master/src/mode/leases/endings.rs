//! What comes between names: validations, checkpoints that are waited for, the ends of epochs and of the run.

use std::collections::BTreeMap;

use salamander_core::asynchronous::{History, ServerCheckpoint};
use salamander_core::course::Next;
use salamander_core::elastic::{Ending, Millis, TaskQueue};
use salamander_core::note::{Note, NoteTopic};
use salamander_core::report::EvaluationPart;
use salamander_core::status::CheckpointStatus;
use tracing::error;

use super::{AwaitedCheckpoint, Leases, Leaving, Validating, version_of};
use crate::asynchronous::ServerTask;
use crate::mode::Effect;

/// A run that was asked to stop does so after this time, whether a last checkpoint can be taken or not.
const STOP: Millis = 20_000;
/// Batches of a validation task: few, so that a slow worker does not hold up the end.
const BATCHES: u64 = 4;
/// How long a worker may hold one. Only the last resort: who dies or falls silent is noticed at once.
const LEASE: Millis = 600_000;

impl Leases {
    /// Does what comes next in the course, if it can be done now. False: there is nothing to do.
    pub(super) fn proceed(&mut self, now: Millis) -> bool {
        let busy = self.leaving.is_some() || self.validating.is_some() || self.awaited.is_some();
        if busy || self.is_over() {
            return false;
        }
        match self.course.next() {
            Next::Validate => {
                // Within an epoch, the names that are leased come first.
                let ready = match self.course.state().ends_epoch() {
                    true => self.ended.is_some(),
                    false => self.dispatcher.is_idle(),
                };
                if ready {
                    self.validate();
                }
                ready
            }
            // The last checkpoint is taken by the dispatcher.
            Next::Save | Next::Finished if self.course.state().progress().stopped => {
                self.leave(now, Ending::Completed);
                true
            }
            Next::Save if self.course.waits_for_checkpoint() => {
                self.awaited = Some(AwaitedCheckpoint { asked: self.dispatcher.save() });
                true
            }
            Next::Save => {
                self.dispatcher.save();
                self.course.saved();
                true
            }
            Next::Step(_) | Next::Finished => {
                let Some(epoch) = self.ended.take() else { return false };
                if let Err(not_yet) = self.dispatcher.next_epoch(epoch) {
                    self.effects.push(Effect::Note(not_yet.to_string().into()));
                }
                true
            }
        }
    }

    fn validate(&mut self) {
        self.validations += 1;
        // Leases of earlier validations and masters count for nothing.
        let fence = u64::from(self.run.term().0) << 40 | self.validations << 20;
        let tasks = TaskQueue::new(self.validation_batches, BATCHES, LEASE, fence);
        self.validating = Some(Validating { tasks, parts: BTreeMap::new() });
        self.course.validation_begins(self.validation_batches);
    }

    /// A part of the validation is done; with the last one the validation is.
    pub(super) fn validated(&mut self, now: Millis, task: u64, part: EvaluationPart) {
        let Some(validating) = &mut self.validating else { return };
        validating.parts.insert(task, part);
        let batches = self.validation_batches.saturating_sub(task * BATCHES).min(BATCHES);
        self.course.validated_batches(batches);
        let done = self.validating.take_if(|validating| validating.tasks.is_done());
        if let Some(Validating { parts, .. }) = done {
            match self.course.validated(now, parts.into_values()) {
                Ok(reports) => self.report(reports),
                Err(reason) => self.end(Ending::Failed(reason)),
            }
        }
    }

    /// The run is to end, with a checkpoint that has everything that was done.
    pub(super) fn leave(&mut self, now: Millis, ending: Ending) {
        if self.leaving.is_none() {
            self.leaving = Some(Leaving { ending, since: now, saved: false });
            self.validating = None;
            self.dispatcher.stop();
        }
        self.try_leave(now);
    }

    /// Ends the run when everything that was done is in a folder.
    pub(super) fn try_leave(&mut self, now: Millis) {
        if self.is_over() {
            return;
        }
        let Some(leaving) = &mut self.leaving else { return };
        let late = now > leaving.since + STOP && leaving.ending == Ending::Interrupted;
        if late && !leaving.saved {
            error!("the run stops without a last checkpoint: not all servers answer");
        }
        if (leaving.saved || late) && self.keeping == 0 {
            let ending = leaving.ending.clone();
            let (steps, report) = self.course.end(now, ending == Ending::Interrupted);
            // It is told, whatever a master before has told of that version.
            self.effects.push(Effect::Restored(version_of(steps)));
            self.report(vec![(steps, report)]);
            self.end(ending);
        }
    }

    /// Has a folder made of a checkpoint.
    pub(super) fn keep(&mut self, checkpoint: &ServerCheckpoint, is_due: bool) {
        let files = self.files.files(checkpoint.id, checkpoint.map.servers);
        let keeping = self.course.keep(*checkpoint, files, is_due);
        self.keeping += 1;
        self.effects.push(Effect::Server(ServerTask::Keep(keeping)));
    }

    /// The folder of a checkpoint is made, or why not.
    pub(super) fn folder(&mut self, now: Millis, made: Result<String, String>) {
        self.keeping -= 1;
        match made {
            Ok(id) => {
                if self.keeping == 0 {
                    self.sweep();
                }
                self.course.kept(&self.files.checkpoints.join(&id));
                let history = self.dispatcher.history();
                let (version, name) = (self.version, id.clone());
                self.kept = history.checkpoint.map(|kept| CheckpointStatus {
                    id: name,
                    version,
                    generation: kept.id,
                });
                let text = format!("checkpoint {id} kept");
                let note = Note::about(NoteTopic::CheckpointKept(id.clone()), text);
                self.effects.extend([Effect::Kept(id), Effect::Note(note)]);
            }
            Err(reason) => {
                let reason = format!("a checkpoint cannot be kept: {reason}");
                self.end(Ending::Failed(reason));
            }
        }
        self.try_leave(now);
    }

    /// Has everything removed that servers wrote for checkpoints that are not the last two.
    pub(super) fn sweep(&mut self) {
        let History { checkpoint, older, .. } = self.dispatcher.history();
        let kept = checkpoint.iter().chain(older).map(|kept| kept.id);
        let keep = kept.chain(self.dispatcher.saving());
        let keep = keep.map(|id| self.files.rows(id)).collect();
        let folder = self.files.checkpoints.clone();
        self.effects.push(Effect::Server(ServerTask::Sweep { folder, keep }));
    }
}
