//! What comes after a step: validation, end of epoch, checkpoint, in this order, so that a checkpoint has it all.

use std::time::Instant;

use salamander_core::experiment::{CheckpointPolicy, Experiment};
use salamander_core::metrics::Metrics;

use super::{Next, Trainer, advance};
use crate::Error;
use crate::callback::{Control, EpochReport};
use crate::evaluate::{self, Over, Part, evaluate_part};
use crate::progress::{After, Mark, StepEnd, due, is_default};
use crate::trial::Trial;

impl<T: Trial> Trainer<T> {
    /// Moves on to the next step and notes what has to be done before it.
    pub(super) fn end_step(&mut self, step: Next, interrupt: bool, stop: bool) {
        let before = Mark { batches: self.progress.batches - step.batches, epoch: step.epoch };
        let (after, at) = advance(&self.plan, before, step);
        let epoch_done = after.epoch > step.epoch;
        (self.progress.epoch, self.progress.step) = (after.epoch, at);
        let last = self.next_step().is_none() || stop;
        self.progress.interrupted |= interrupt && !last;

        let experiment = &self.setup.experiment;
        let period = experiment.min_validation_period.0;
        let wanted =
            if is_default(period) { epoch_done } else { due(period, before, after, &self.plan) };
        let due = due(experiment.min_checkpoint_period.0, before, after, &self.plan);
        let save = last || due || self.progress.interrupted;
        let end = StepEnd { initial: false, epoch: step.epoch, epoch_done, last, save, stop };
        if self.validation.is_some() && (wanted || last) {
            self.progress.after = Some(After::Validate(end));
        } else {
            let unwatched = self.validation.is_none() && epoch_done;
            let save = unwatched && experiment.checkpoint_policy != CheckpointPolicy::None;
            self.close(StepEnd { save: end.save || save, ..end }, None);
        }
    }

    /// Does what is left before the next step.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        while let Some(after) = self.progress.after.clone() {
            match after {
                After::Validate(end) => self.validate(end)?,
                After::Save(watched) => self.save_together(watched)?,
            }
        }
        Ok(())
    }

    /// Each member validates its share; the parts add up to each record once.
    fn validate(&mut self, end: StepEnd) -> Result<(), Error> {
        if self.validation.is_none() {
            self.progress.after = None;
            return Ok(());
        }
        let started = Instant::now();
        self.move_rows()?;
        let Some(dataset) = &self.validation else { return Ok(()) };
        let experiment = &self.setup.experiment;
        let over = Over::new(experiment, true);
        let share = self.place.share(evaluate::batches(dataset, over.batch) as usize);
        let share = share.start as u64..share.end as u64;
        let callbacks = &mut self.callbacks;
        let batches = share.end - share.start;
        callbacks.iter_mut().for_each(|callback| callback.validation_start(batches));
        let own = evaluate_part(&*self.model, dataset, over, share, &mut || {
            callbacks.iter_mut().for_each(|callback| callback.validation_batch());
            Ok(())
        })?;
        self.tables.check()?;
        let mut all = Part::default();
        self.meet("validation", &own)?.iter().for_each(|part| all.merge(part));
        let found = all.finish();
        let value = watched_value(&self.setup.experiment, &found.metrics)?;
        self.exchange.commit(value.to_bits())?;

        let mut control = Control::default();
        self.callbacks.iter_mut().for_each(|c| c.validation_end(&found.metrics, &mut control));
        self.progress.plateau.observe(&self.schedule, value);
        let verdict = self.progress.watch.observe(value, self.setup.experiment.early_stop);
        self.progress.validation = Some(found.metrics);
        let stop = end.stop || control.stop || verdict.stop;
        let policy = match self.setup.experiment.checkpoint_policy {
            CheckpointPolicy::Best => verdict.best,
            CheckpointPolicy::All => true,
            CheckpointPolicy::None => false,
        };
        let save = end.save || stop || policy;
        self.close(
            StepEnd { save, stop, last: end.last || stop, ..end },
            Some((value, verdict.best)),
        );
        self.exchange.applied();
        self.timings.test += started.elapsed();
        Ok(())
    }

    /// Ends the step's epoch, if it does, and tells so.
    fn close(&mut self, end: StepEnd, watched: Option<(f64, bool)>) {
        self.progress.after = None;
        if end.initial {
            return;
        }
        if end.epoch_done || watched.is_some() || end.last {
            self.progress.last_training = self.progress.training.values();
            let validated = watched.and(self.progress.validation.clone());
            let report = EpochReport {
                epoch: end.epoch,
                complete: end.epoch_done,
                steps: self.progress.steps,
                training: self.progress.training.clone(),
                validation: validated,
                seconds: self.epoch_started.elapsed().as_secs_f64(),
                best: watched.is_some_and(|(_, best)| best),
            };
            self.callbacks.iter_mut().for_each(|callback| callback.epoch_end(&report));
        }
        if end.epoch_done {
            self.progress.training = Metrics::new();
            self.epoch_started = Instant::now();
        }
        self.progress.stopped |= end.stop;
        if end.save {
            let value = watched.map(|(value, _)| value).filter(|value| !value.is_nan());
            self.progress.after = Some(After::Save(value));
        }
    }

    /// All members meet, so that all of them hold what is written; then one writes it.
    fn save_together(&mut self, watched: Option<f64>) -> Result<(), Error> {
        self.move_rows()?;
        self.meet("checkpoint", &())?;
        self.exchange.commit(1)?;
        self.progress.after = None;
        let saved = if self.place.leads() { self.save(watched) } else { Ok(()) };
        self.exchange.applied();
        saved
    }
}

/// The watched metric of a validation, negated where bigger is better.
pub(crate) fn watched_value(experiment: &Experiment, metrics: &Metrics) -> Result<f64, Error> {
    let name = experiment.metric();
    let values = metrics.values();
    let value = values.get(name).ok_or_else(|| {
        let known: Vec<&str> = values.keys().map(String::as_str).collect();
        Error::Invalid(format!(
            "searcher.metric: validation reports no \"{name}\" (it reports: {})",
            known.join(", ")
        ))
    })?;
    Ok(if experiment.searcher.smaller_is_better { *value } else { -value })
}
