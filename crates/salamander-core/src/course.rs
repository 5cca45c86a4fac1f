//! The course of training: what follows a step, in one place for every strategy.
//!
//! A [`Course`] is made from the experiment and the sizes of its data. It is told what was done ([`pass_done`],
//! [`measured`], [`validated`], [`saved`]), returns what is to be reported, and says what comes [`next`]: another step,
//! a validation, a checkpoint, or the end. The trainer of a process or the master of asynchronous training computes and
//! writes; both come to the same decisions because they are made here.
//!
//! After a step, validation comes before the end of the epoch, and both before the checkpoint, so that a checkpoint has
//! it all and resuming repeats nothing.
//!
//! [`pass_done`]: Course::pass_done
//! [`measured`]: Course::measured
//! [`validated`]: Course::validated
//! [`saved`]: Course::saved
//! [`next`]: Course::next
//!
//! # Layout
//! - `after`: what follows a step, a validation, a checkpoint
//! - [`UNCOUNTED`] (`streamed`): data that is still being written
//! - [`Collected`] (`collected`): steps whose micro-batches come one by one
//! - [`LeasePlan`] (`lease_plan`): what the master of asynchronous training is given
//! - [`refused`] (`settings`): settings that a strategy cannot follow

mod after;
mod collected;
mod lease_plan;
mod settings;
mod streamed;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::elastic::Ending;
use crate::experiment::{Experiment, Strategy};
use crate::ledger::Tally;
use crate::loss_scale::{Hopeless, Scaler};
use crate::metrics::Metrics;
use crate::plan::{MicroBatch, Plan};
use crate::progress::{After, Extent, FirstPass, Progress, RowsMove, StepCount, StepEnd, Within};
use crate::report::{Measured, Start, StepReport};
use crate::schedule::{Plateau, Schedule};
use crate::seed::derive;

pub use after::Wishes;
pub use collected::Collected;
pub use lease_plan::{KeptRows, LeasePlan, MakeFolder};
pub use settings::refused;
pub use streamed::UNCOUNTED;

/// How many records there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSizes {
    /// Records of an epoch; [`UNCOUNTED`] while they are still being written.
    pub training: u64,
    /// Records to validate on; 0: there is no validation.
    pub validation: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A step.
    Step(StepPlace),
    /// A validation.
    Validate,
    /// A checkpoint.
    Save,
    /// Nothing: training has ended.
    Finished,
}

/// A step: its place and how many batches it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlace {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The step within it, from 0.
    pub step: u64,
    /// Its batches.
    pub batches: u64,
}

/// What a pass over the records of a step gave.
#[derive(Clone, Debug, Default)]
pub struct PassDone {
    /// The records.
    pub tally: Tally,
    /// The sum of their losses.
    pub loss: f64,
    /// What was measured.
    pub metrics: Metrics,
    /// The learning rate.
    pub rate: f64,
    /// The schedule's factor in it.
    pub factor: f64,
    /// What gradient sums were multiplied by; 0 if the pass was skipped.
    pub divisor: f32,
    /// The gradients' norm before clipping, when clipping needed it.
    pub gradient_norm: Option<f64>,
    /// Whether the gradients overflowed, so that nothing moved.
    pub overflow: bool,
    /// The loss scale after it, from [`Course::scaler_after`].
    pub scaler: Option<Scaler>,
}

/// A step that is complete. It is to be given to [`Course::step_done`] when everybody was told about it.
#[must_use]
#[derive(Clone, Debug)]
pub struct StepDone {
    /// What is told.
    pub report: StepReport,
    batches: u64,
}

/// Why a course cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A setting has no meaning with this strategy.
    #[error("{field}: {reason}")]
    Refused {
        /// The setting.
        field: &'static str,
        /// Why, and what to write instead.
        reason: String,
    },
    /// Validation does not report the watched metric.
    #[error("searcher.metric: validation reports no \"{name}\" (it reports: {known})")]
    NoMetric {
        /// The metric's name.
        name: String,
        /// What validation reports.
        known: String,
    },
}

/// The course of one training.
#[derive(Clone, Debug)]
pub struct Course {
    experiment: Experiment,
    schedule: Schedule,
    sizes: DataSizes,
    plan: Plan,
    extent: Extent,
    /// Where this run ends: at its whole extent, or where a search pauses it.
    end: Extent,
    /// Of records that are still being written, so many are there.
    there: u64,
    progress: Progress,
    epoch_started: Duration,
    asked_to_save: SaveAsked,
}

/// When a checkpoint was last asked for.
#[derive(Clone, Copy, Debug, Default)]
struct SaveAsked {
    at: Duration,
    /// It is one to recover from, and nothing else.
    only_to_recover: bool,
}

impl Course {
    /// The course of an experiment over so much data; nothing is done yet. The schedule is the model's, unless the
    /// experiment has one.
    pub fn new(
        experiment: &Experiment,
        schedule: Schedule,
        sizes: DataSizes,
    ) -> Result<Self, Error> {
        let plan = Plan {
            records: sizes.training,
            batch: experiment.global_batch,
            aggregation: experiment.optimizations.aggregation_frequency,
            slices: experiment.slices(),
        };
        if let Some((field, reason)) = refused(experiment) {
            return Err(Error::Refused { field, reason: reason.to_string() });
        }
        let (extent, end) = extents(experiment, &plan);
        if experiment.strategy == Strategy::Ps && experiment.searcher.pause_at.is_some() {
            let reason = "a run of strategy ps has no common step to pause at: search with \
                          scheduler: none, or train with strategy hybrid or allreduce";
            return Err(Error::Refused { field: "searcher.pause_at", reason: reason.to_string() });
        }
        if experiment.strategy == Strategy::Ps && !extent.batches.is_multiple_of(plan.batches()) {
            let (batches, of) = (extent.batches, plan.batches());
            let reason = format!(
                "strategy ps trains whole epochs, and {batches} batches are not a multiple of the \
                 {of} that an epoch has: write {{epochs: N}}"
            );
            return Err(Error::Refused { field: "searcher.max_length", reason });
        }
        let schedule = experiment.schedule.unwrap_or(schedule);
        if sizes.training == UNCOUNTED {
            streamed::check(&schedule)?;
        }
        let progress = Progress::default();
        let epoch_started = Duration::ZERO;
        let experiment = experiment.clone();
        let asked_to_save = SaveAsked::default();
        let mut course = Self {
            experiment,
            schedule,
            sizes,
            plan,
            extent,
            end,
            there: 0,
            progress,
            epoch_started,
            asked_to_save,
        };
        course.begin_anew();
        Ok(course)
    }

    /// Forgets everything that was done.
    pub fn begin_anew(&mut self) {
        let initial = self.experiment.perform_initial_validation && self.validates();
        let end = StepEnd { initial: true, ..StepEnd::default() };
        let after = initial.then_some(After::Validate(end));
        self.restore(Progress { after, ..Progress::default() });
    }

    /// Goes on from here.
    pub fn restore(&mut self, progress: Progress) {
        self.progress = progress;
        if !self.validates() {
            self.progress.after.take_if(|after| matches!(after, After::Validate(_)));
        }
        // It may be of a run that did not scale its loss.
        let scaling = self.experiment.optimizations.scaling();
        self.progress.scaler = self.progress.scaler.or(scaling.as_ref().map(Scaler::new));
    }

    /// A run that was interrupted goes on.
    pub fn resume(&mut self) {
        self.progress.interrupted = false;
    }

    /// Where training stands.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// For what others keep in it: rows of tables, the state of callbacks.
    pub fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// How an epoch is cut.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How long training is.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        u64::from(self.experiment.reproducibility.experiment_seed.unwrap_or_default())
    }

    /// Whether there is data to validate on.
    pub fn validates(&self) -> bool {
        self.sizes.validation > 0
    }

    /// A hash over what all processes of a run must agree on.
    pub fn fingerprint(&self) -> u64 {
        let Plan { records, batch, aggregation, slices } = self.plan;
        let names = [self.sizes.validation, self.seed(), batch, aggregation, u64::from(slices)];
        derive(records, &names)
    }

    /// What is told when training starts or goes on; of records that are not counted yet no sum is known.
    pub fn start(&self, parameters: u64, workers: u64, leads: bool) -> Start {
        let known = |number: u64| if self.is_counted() { number } else { 0 };
        Start {
            done: self.progress.steps,
            total: StepCount(known(self.extent.steps.0)),
            total_batches: known(self.extent.batches),
            steps_per_epoch: known(self.plan.steps()),
            epochs: self.extent.epochs,
            records: self.known_records(),
            parameters,
            workers,
            leads,
        }
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        match &self.progress.after {
            Some(After::Validate(_)) => Next::Validate,
            Some(After::Save(_)) => Next::Save,
            None => self.next_step().map_or(Next::Finished, Next::Step),
        }
    }

    /// Whether a step is left.
    pub fn has_steps(&self) -> bool {
        self.next_step().is_some()
    }

    /// All steps from here to the end, if nothing stops training.
    pub fn steps(&self) -> impl Iterator<Item = StepPlace> + Send + use<> {
        let (plan, extent) = (self.plan, self.end);
        let (mut done, mut step) = (self.progress.done(), self.progress.step);
        std::iter::from_fn(move || {
            let place = place(&plan, &extent, done, step)?;
            (done, step) = advance(&plan, done, step, place);
            Some(place)
        })
    }

    fn next_step(&self) -> Option<StepPlace> {
        let done = &self.progress;
        let over = done.stopped || done.interrupted;
        (!over).then(|| place(&self.plan, &self.end, done.done(), done.step)).flatten()
    }

    /// How the run ends, once it is finished.
    pub fn ending(&self) -> Ending {
        match self.progress.interrupted {
            true => Ending::Interrupted,
            false => Ending::Completed,
        }
    }

    /// What a sum of gradients is multiplied by: one over the number of records, times the number of batches when sums
    /// are wanted.
    pub fn divisor(&self, records: u64, batches: u64) -> f32 {
        let average = self.experiment.optimizations.average_aggregated_gradients;
        let factor = if average { 1.0 } else { batches as f64 };
        (factor / records.max(1) as f64) as f32
    }

    /// The schedule in force.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The schedule's factor for the next step.
    pub fn factor(&self) -> f64 {
        self.schedule.factor(self.progress.done(), self.extent, &self.progress.plateau)
    }

    /// The schedule's factor for a micro-batch, whichever steps are done.
    pub fn factor_of(&self, name: MicroBatch, plateau: &Plateau) -> f64 {
        let plan = &self.plan;
        let before = Extent {
            batches: name.epoch * plan.batches() + name.step * plan.aggregation,
            steps: StepCount(name.epoch * plan.steps() + name.step),
            epochs: name.epoch,
        };
        self.schedule.factor(before, self.extent, plateau)
    }

    /// What the loss is multiplied by, if it is.
    pub fn loss_scale(&self) -> Option<f64> {
        self.experiment.optimizations.scaling()?;
        self.progress.scaler.map(|scaler| scaler.scale)
    }

    /// The scaler after a pass. All members come to the same one, since all know whether the pass overflowed.
    pub fn scaler_after(&self, overflow: bool) -> Result<Option<Scaler>, Hopeless> {
        match (self.experiment.optimizations.scaling(), self.progress.scaler) {
            (Some(rule), Some(scaler)) => scaler.after(&rule, overflow).map(Some),
            (_, kept) => Ok(kept),
        }
    }

    /// What a sum of gradients is multiplied by, scaled or not; nothing is left of one that overflowed.
    pub fn unscaled(&self, divisor: f32, overflow: bool) -> f32 {
        match self.loss_scale() {
            _ if overflow => 0.0,
            Some(scale) => (f64::from(divisor) / scale) as f32,
            None => divisor,
        }
    }

    /// The pass of the next step that is to be computed.
    pub fn pass(&self) -> usize {
        self.progress.within.as_ref().map_or(0, |within| within.pass)
    }

    /// A pass of a step is committed; with the last one of its passes the step is complete.
    pub fn pass_done(
        &mut self,
        place: StepPlace,
        passes: usize,
        done: PassDone,
    ) -> Option<StepDone> {
        let PassDone { tally, loss, metrics, rate, gradient_norm, overflow, .. } = done;
        let to = self.progress.steps.next();
        self.progress.rows = Some(RowsMove { to, factor: done.factor, divisor: done.divisor });
        let within = match self.progress.within.take() {
            None => {
                let first = FirstPass { tally, loss, rate, gradient_norm, overflowed: overflow };
                Within { pass: 1, metrics, first }
            }
            Some(mut within) => {
                within.metrics.merge(&metrics);
                within.first.overflowed |= overflow;
                Within { pass: within.pass + 1, ..within }
            }
        };
        let scale = self.loss_scale();
        self.progress.scaler = done.scaler;
        if within.pass < passes {
            self.progress.within = Some(within);
            return None;
        }
        let Within { metrics, first, .. } = within;
        Some(self.complete(place, &metrics, first, scale))
    }

    /// A micro-batch was computed and applied, in any order: with the last one of its step the step is complete. One
    /// that was told before changes nothing.
    pub fn measured(
        &mut self,
        collected: &mut Collected,
        name: MicroBatch,
        measured: &Measured,
    ) -> Option<StepDone> {
        let (metrics, first) = collected.add(&self.plan, name, measured)?;
        let MicroBatch { epoch, step, .. } = name;
        let place = StepPlace { epoch, step, batches: self.plan.batches_in(step) };
        Some(self.complete(place, &metrics, first, None))
    }

    /// Enters a step.
    fn complete(
        &mut self,
        place: StepPlace,
        metrics: &Metrics,
        first: FirstPass,
        loss_scale: Option<f64>,
    ) -> StepDone {
        let StepPlace { epoch, step, batches } = place;
        let FirstPass { tally, loss, rate, gradient_norm, overflowed } = first;
        let counted = tally.applied;
        let tally = if overflowed { tally.overflowed() } else { tally };
        let known = self.known_records();
        let progress = &mut self.progress;
        progress.ledger.commit(epoch, known, &tally);
        progress.training.merge(metrics);
        progress.records += tally.applied;
        progress.steps = progress.steps.next();
        progress.batches += batches;
        let report = StepReport {
            epoch,
            step,
            steps: progress.steps,
            batches: progress.batches,
            records: tally.applied,
            loss: loss / counted as f64,
            learning_rate: rate,
            gradient_norm,
            skipped: overflowed,
            loss_scale,
        };
        StepDone { report, batches }
    }
}

/// The extent of an experiment's length, and where its run ends.
fn extents(experiment: &Experiment, plan: &Plan) -> (Extent, Extent) {
    let extent = Extent::new(experiment.length(), plan);
    let pause = experiment.searcher.pause_at.map(|at| Extent::new(at, plan).whole_steps(plan));
    let end = pause.filter(|pause| pause.batches < extent.batches).unwrap_or(extent);
    (extent, end)
}

/// The step after so many batches, if there is one.
fn place(plan: &Plan, extent: &Extent, done: Extent, step: u64) -> Option<StepPlace> {
    let left = extent.batches.saturating_sub(done.batches);
    let batches = plan.batches_in(step).min(left);
    (batches > 0).then_some(StepPlace { epoch: done.epochs, step, batches })
}

/// Where training stands after a step, when so many steps of its epoch were done before it: the counts, and the steps
/// done of the epoch. Steps of an epoch may be done in any order.
fn advance(plan: &Plan, before: Extent, done: u64, step: StepPlace) -> (Extent, u64) {
    let (batches, steps) = (before.batches + step.batches, before.steps.next());
    let whole = step.batches == plan.batches_in(step.step);
    if whole && done + 1 == plan.steps() {
        (Extent { batches, steps, epochs: step.epoch + 1 }, 0)
    } else {
        (Extent { batches, steps, epochs: step.epoch }, done + 1)
    }
}
