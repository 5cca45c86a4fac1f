//! What follows a step: validation, the end of the epoch, a checkpoint, in this order.

use std::time::Duration;

use super::{Collected, Course, Error, SaveAsked, StepDone, StepPlace, advance};
use crate::experiment::CheckpointPolicy;
use crate::metrics::Metrics;
use crate::progress::{After, Extent, StepCount, StepEnd, due, is_default};
use crate::report::EpochReport;

/// What others want after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// From outside: the run is to end here and can go on later.
    pub interrupt: bool,
    /// Of a callback: training is to end here as if its length were reached.
    pub stop: bool,
    /// A checkpoint to recover from is due, as [`Course::recovery_due`] says. Clocks differ, so one process asks it and
    /// all others follow.
    pub save: bool,
}

/// What a validation said.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WatchedValue {
    value: f64,
    best: bool,
}

impl Course {
    /// A step is complete and everybody was told: decides what comes next. Returns the report of the epoch, if it ends
    /// here without a validation.
    pub fn step_done(
        &mut self,
        done: StepDone,
        wishes: Wishes,
        now: Duration,
    ) -> Option<EpochReport> {
        let StepDone { report, batches } = done;
        let place = StepPlace { epoch: report.epoch, step: report.step, batches };
        let Extent { batches: all, steps, .. } = self.progress.done();
        let steps = StepCount(steps.0 - 1);
        let before = Extent { batches: all - batches, steps, epochs: place.epoch };
        let (after, step) = advance(&self.plan, before, self.progress.step, place);
        (self.progress.epoch, self.progress.step) = (after.epochs, step);
        self.decide(before, wishes, now)
    }

    /// All micro-batches of an epoch are applied, whether or not all of them were told: ends it, unless that was done.
    pub fn epoch_done(
        &mut self,
        collected: &mut Collected,
        epoch: u64,
        now: Duration,
    ) -> Option<EpochReport> {
        if self.progress.epoch > epoch {
            return None;
        }
        for (metrics, first) in collected.rest(epoch) {
            self.progress.training.merge(&metrics);
            self.progress.records += first.tally.applied;
            self.progress.ledger.commit(epoch, self.plan.records, &first.tally);
        }
        let before = Extent { epochs: epoch, ..self.progress.done() };
        self.progress.steps = StepCount((epoch + 1) * self.plan.steps());
        self.progress.batches = (epoch + 1) * self.plan.batches();
        (self.progress.epoch, self.progress.step) = (epoch + 1, 0);
        self.decide(before, Wishes::default(), now)
    }

    /// The run ends here, unless it does anyway.
    pub fn interrupt(&mut self) {
        if self.next_step().is_some() {
            self.progress.interrupted = true;
            self.progress.after = Some(After::Save(None));
            self.asked_to_save.only_to_recover = false;
        }
    }

    /// What comes after the step that has just moved the counts.
    fn decide(&mut self, before: Extent, wishes: Wishes, now: Duration) -> Option<EpochReport> {
        let after = self.progress.done();
        let epoch_done = after.epochs > before.epochs;
        let last = self.next_step().is_none() || wishes.stop;
        self.progress.interrupted |= wishes.interrupt && !last;

        let period = self.experiment.min_validation_period.0;
        let wanted = match is_default(period) {
            true => epoch_done,
            false => due(period, before, after, &self.plan),
        };
        let due = due(self.experiment.min_checkpoint_period.0, before, after, &self.plan);
        let save = last || due || self.progress.interrupted;
        let mut end = StepEnd {
            initial: false,
            epoch: before.epochs,
            epoch_done,
            last,
            save,
            recovery: wishes.save,
            stop: wishes.stop,
        };
        // Steps that others were at are done before the validation that an earlier one asked for.
        let earlier = match self.progress.after {
            Some(After::Validate(earlier)) => Some(earlier),
            _ => None,
        };
        if let Some(earlier) = earlier {
            end.epoch_done |= earlier.epoch_done;
            end.last |= earlier.last;
            end.save |= earlier.save;
            end.recovery |= earlier.recovery;
            end.stop |= earlier.stop;
        }
        // A report may complete several steps: what an earlier one asked for is still to be done.
        end.save |= matches!(self.progress.after, Some(After::Save(_)));
        if self.validates() && (wanted || last || earlier.is_some()) {
            self.progress.after = Some(After::Validate(end));
            return None;
        }
        let unwatched = !self.validates() && epoch_done;
        let kept = unwatched && self.experiment.checkpoint_policy != CheckpointPolicy::None;
        self.close(StepEnd { save: end.save || kept, ..end }, None, now)
    }

    /// The watched metric of a validation, negated where bigger is better.
    pub fn watched(&self, metrics: &Metrics) -> Result<f64, Error> {
        let name = self.experiment.metric();
        let values = metrics.values();
        let value = values.get(name).ok_or_else(|| {
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            Error::NoMetric { name: name.to_string(), known: known.join(", ") }
        })?;
        Ok(if self.experiment.searcher.smaller_is_better { *value } else { -value })
    }

    /// A validation is done, and `stop` says whether a callback wants training to end: decides what comes next. Returns
    /// the report of the epoch so far.
    pub fn validated(
        &mut self,
        metrics: Metrics,
        stop: bool,
        now: Duration,
    ) -> Result<Option<EpochReport>, Error> {
        let value = self.watched(&metrics)?;
        let Some(After::Validate(end)) = self.progress.after.take() else { return Ok(None) };
        self.progress.plateau.observe(&self.schedule, value);
        let verdict = self.progress.watch.observe(value, self.experiment.early_stop);
        self.progress.validation = Some(metrics);
        let stop = end.stop || stop || verdict.stop;
        let policy = match self.experiment.checkpoint_policy {
            CheckpointPolicy::Best => verdict.best,
            CheckpointPolicy::All => true,
            CheckpointPolicy::None => false,
        };
        let save = end.save || stop || policy;
        let end = StepEnd { save, stop, last: end.last || stop, ..end };
        Ok(self.close(end, Some(WatchedValue { value, best: verdict.best }), now))
    }

    /// Ends the step's epoch, if it does.
    fn close(
        &mut self,
        end: StepEnd,
        watched: Option<WatchedValue>,
        now: Duration,
    ) -> Option<EpochReport> {
        self.progress.after = None;
        if end.initial {
            return None;
        }
        let told = end.epoch_done || watched.is_some() || end.last;
        let report = told.then(|| {
            self.progress.last_training = self.progress.training.values();
            EpochReport {
                epoch: end.epoch,
                complete: end.epoch_done,
                steps: self.progress.steps,
                training: self.progress.training.clone(),
                validation: watched.and(self.progress.validation.clone()),
                seconds: now.saturating_sub(self.epoch_started).as_secs_f64(),
                best: watched.is_some_and(|watched| watched.best),
            }
        });
        if end.epoch_done {
            self.progress.training = Metrics::new();
            self.epoch_started = now;
        }
        self.progress.stopped |= end.stop;
        if end.save || end.recovery {
            let value = watched.map(|watched| watched.value).filter(|value| !value.is_nan());
            self.progress.after = Some(After::Save(value));
            self.asked_to_save = SaveAsked { at: now, only_to_recover: !end.save };
        }
        report
    }

    /// Whether it is time for a checkpoint to recover from: there was none of any kind for the period.
    pub fn recovery_due(&self, now: Duration) -> bool {
        let period = self.experiment.recovery_period.0;
        period > 0.0 && now.saturating_sub(self.asked_to_save.at).as_secs_f64() >= period
    }

    /// Whether the checkpoint that was last asked for is only one to recover from.
    pub fn is_recovery(&self) -> bool {
        self.asked_to_save.only_to_recover
    }

    /// Whether the validation that comes next, or the checkpoint, is that of a complete epoch.
    pub fn ends_epoch(&self) -> bool {
        match self.progress.after {
            Some(After::Validate(end)) => end.epoch_done,
            _ => self.progress.step == 0 && self.progress.steps > StepCount(0),
        }
    }

    /// The watched metric of the state that is to be saved, if it was just measured.
    pub fn watched_to_save(&self) -> Option<f64> {
        match self.progress.after {
            Some(After::Save(watched)) => watched,
            _ => None,
        }
    }

    /// The checkpoint that was due is made, or about to be; returns the watched metric of its state, if it was just
    /// measured.
    pub fn saved(&mut self) -> Option<f64> {
        let watched = self.watched_to_save();
        self.progress.after.take_if(|after| matches!(after, After::Save(_)));
        watched
    }
}
