//! The loop: take a step's records, sum their gradients, move the parameters, tell everybody.
//!
//! A run is a row of commits: each pass of a step, each validation, each checkpoint's barrier. Between two of them
//! everything follows from the state, so that any member that holds it can go on, in whatever generation.

mod after;
mod held;
mod scaling;
mod setup;
mod state;
mod timings;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use salamander_core::elastic::{Ending, Work};
use salamander_core::experiment::Clip;
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metrics, number};
use salamander_core::order::Order;
use salamander_core::plan::Plan;
use salamander_core::schedule::Schedule;
use salamander_core::seed::derive;
use salamander_data::Dataset;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bucket::{Layout, digest};
use crate::callback::{Callback, Control, Start, StepReport};
use crate::checkpoint::{COUNTED, Manifest, Store};
use crate::exchange::{About, Exchange, Place};
use crate::gradients::GradientSum;
use crate::loader::{Job, Loaded, Loader, Options};
use crate::optimize::{Along, OptimizerState};
use crate::progress::{After, Extent, FirstPass, Mark, Progress, RowsMove, Within};
use crate::step::{Arithmetic, Destination, Running, Staging, StepSum, compute, finite};
use crate::tables::{Shared, Tables};
use crate::trial::{BatchOf, Pass, Trial};
use crate::{Error, params, threads};

use held::Held;

pub(crate) use after::watched_value;
pub(crate) use setup::precision;
pub use setup::{Setup, open_all, open_data};
pub use timings::Timings;

/// A training, ready to run.
pub struct Trainer<T: Trial> {
    setup: Setup,
    exchange: Box<dyn Exchange>,
    place: Place,
    model: Held<T>,
    passes: Vec<Pass>,
    optimizers: Vec<OptimizerState>,
    tables: Tables,
    /// The history of the tables' rows: the generation that last read them from a checkpoint.
    lineage: u64,
    schedule: Schedule,
    clip: Option<Clip>,
    arithmetic: Arithmetic,
    plan: Plan,
    extent: Extent,
    training: Arc<Dataset>,
    validation: Option<Arc<Dataset>>,
    progress: Progress,
    callbacks: Vec<Box<dyn Callback>>,
    /// Opened by the member that writes checkpoints.
    store: Option<Store>,
    /// Steps at the last checkpoint that this process handed to its store.
    saved: Option<u64>,
    hyperparameters: serde_json::Value,
    timings: Timings,
    epoch_started: Instant,
    /// What moves the parameters: this device's model, or nothing on the CPU.
    mover: String,
}

/// How a training ended.
#[derive(Debug)]
pub struct Outcome {
    /// Whether it was cut short from outside.
    pub interrupted: bool,
    /// Where it stands.
    pub progress: Progress,
    /// Where the time went.
    pub timings: Timings,
    /// Where each worker's time went, in a distributed run.
    pub ranks: Vec<Timings>,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
}

/// The next step: its place and how many batches it has.
#[derive(Clone, Copy)]
struct Next {
    epoch: u64,
    step: u64,
    batches: u64,
}

/// What a member says beside its gradients.
#[derive(Serialize, Deserialize)]
struct PassSide {
    tally: Tally,
    #[serde(with = "number")]
    loss: f64,
    metrics: Metrics,
    used: Vec<bool>,
    running: f64,
    overflow: bool,
    stop: bool,
    /// What moves its parameters.
    mover: String,
}

impl<T: Trial> Trainer<T> {
    /// Trains until the end, a stop, or an interruption from outside.
    pub fn run(mut self) -> Result<Outcome, Error> {
        let started = Instant::now();
        threads::join(self.setup.experiment.threads);
        self.exchange.introduce(self.about());
        loop {
            match self.take_part() {
                Ok(()) => return self.finish(started),
                Err(Error::Leaving) => return Err(Error::Leaving),
                Err(Error::Unreachable(reason)) => self.exchange.give_up(&reason),
                Err(Error::Broken(reason)) => tracing::info!(reason, "the generation is over"),
                Err(error) => {
                    self.exchange.failed(&error);
                    return Err(error);
                }
            }
        }
    }

    /// One generation: from the state it begins with to the end of the run, or its own.
    fn take_part(&mut self) -> Result<(), Error> {
        let entered = self.exchange.enter()?;
        self.place = entered.place;
        self.begin(entered)?;
        self.announce();
        let mut loader = None;
        loop {
            self.settle()?;
            self.heed_stop()?;
            let Some(next) = self.next_step() else { break };
            if next.step == 0 && self.progress.within.is_none() {
                self.callbacks.iter_mut().for_each(|c| c.epoch_start(next.epoch));
            }
            let loader = match &mut loader {
                Some(loader) => loader,
                none => none.insert(self.loader()?),
            };
            self.step(next, loader)?;
            self.report_saved()?;
        }
        drop(loader);
        self.conclude()
    }

    fn about(&self) -> About {
        let validation = self.validation.as_ref().map_or(0, |dataset| dataset.len());
        let seed = self.arithmetic.seed;
        let plan = &self.plan;
        let names = [validation, seed, plan.batch, plan.aggregation, u64::from(plan.slices)];
        About { records: plan.records, fingerprint: derive(plan.records, &names) }
    }

    fn announce(&mut self) {
        let start = Start {
            done: self.progress.steps,
            total: self.extent.steps,
            total_batches: self.extent.batches,
            steps_per_epoch: self.plan.steps(),
            epochs: self.extent.epochs,
            records: self.plan.records,
            parameters: params::list(&*self.model)
                .iter()
                .filter(|param| param.trainable)
                .map(|param| param.shape.iter().product::<usize>() as u64)
                .sum(),
            workers: self.place.size as u64,
            leads: self.place.leads(),
        };
        self.callbacks.iter_mut().for_each(|callback| callback.training_start(&start));
    }

    /// A member that is alone decides by itself; several agree on a stop in an exchange.
    fn heed_stop(&mut self) -> Result<(), Error> {
        let alone = self.place.size == 1;
        if alone && self.exchange.wants_stop() && self.next_step().is_some() {
            self.progress.interrupted = true;
            self.progress.after = Some(After::Save(None));
            self.settle()?;
        }
        Ok(())
    }

    fn next_step(&self) -> Option<Next> {
        let done = &self.progress;
        let over = done.stopped || done.interrupted;
        (!over).then(|| next(&self.plan, &self.extent, done.mark(), done.step)).flatten()
    }

    /// Loads this member's micro-batches of every step from here to the end, in their order.
    fn loader(&self) -> Result<Loader<BatchOf<T>>, Error> {
        let (plan, extent, place) = (self.plan, self.extent, self.place);
        let seed = self.arithmetic.seed;
        let shuffle = self.setup.experiment.data.shuffle;
        let mut at = (self.progress.mark(), self.progress.step);
        let steps = std::iter::from_fn(move || {
            let next = next(&plan, &extent, at.0, at.1)?;
            at = advance(&plan, at.0, next);
            Some(next)
        });
        let jobs = steps.flat_map(move |next| {
            let order = Order::new(plan.records, shuffle, seed, next.epoch);
            let mut slices = plan.micro_batches(next.epoch, next.step, next.batches);
            let own: Vec<_> = slices.drain(place.share(slices.len())).collect();
            own.into_iter().map(move |slice| Job { slice, order })
        });
        let options = Options {
            device: self.setup.device.clone().autodiff(),
            on_bad_record: self.setup.experiment.data.on_bad_record,
            labels: true,
            augment: Some(seed),
            threads: self.setup.experiment.data.threads(),
        };
        Loader::start::<T::Example>(Arc::clone(&self.training), jobs, options)
    }

    fn step(&mut self, next: Next, loader: &mut Loader<BatchOf<T>>) -> Result<(), Error> {
        let started = Instant::now();
        self.exchange.working(Work::Computing, 0);
        let slices = self.plan.micro_batches(next.epoch, next.step, next.batches).len();
        let own = self.place.share(slices).len();
        let batches: Vec<Loaded<BatchOf<T>>> = loader.take(own).collect::<Result<_, _>>()?;
        self.timings.data += started.elapsed();
        self.move_rows()?;
        let first = self.progress.within.as_ref().map_or(0, |within| within.pass);
        (first..self.passes.len()).try_for_each(|pass| self.pass(pass, next, &batches))
    }

    /// One pass over the step's records, up to its commit.
    fn pass(&mut self, at: usize, next: Next, batches: &[Loaded<BatchOf<T>>]) -> Result<(), Error> {
        let started = Instant::now();
        self.exchange.working(Work::Computing, 0);
        let to = Destination::Stage(self.progress.steps);
        let staging = Staging { tables: &self.tables, to };
        let staging = (!self.tables.is_empty()).then_some(staging);
        let arithmetic = Arithmetic { loss_scale: self.loss_scale(), ..self.arithmetic };
        let own = compute(&*self.model, &self.passes[at], batches, arithmetic, staging)?;
        // Others may commit the step as soon as they have this member's part of the sum, so its rows must be kept.
        self.tables.with_store(|rows| rows.settle())?;
        self.timings.compute += started.elapsed();
        let (mut sum, digest, stop) = self.reduce(at, own)?;

        let started = Instant::now();
        let scaler = self.scaler_after(sum.overflow)?;
        let divisor = self.unscaled(&sum, self.divisor(sum.tally.applied, next.batches));
        let (gradient_norm, factor_left) = self.bounded(&mut sum, divisor)?;
        let done = self.progress.for_schedule();
        let factor = self.schedule.factor(done, self.extent.for_schedule(), &self.progress.plateau);
        let rate = self.passes[at].optimizer.learning_rate() * factor;
        self.exchange.commit(digest)?;
        let StepSum { gradient, tally, metrics, loss, running, overflow } = sum;
        let along = Along { rate, factor: factor_left };
        // A pass whose gradients overflowed changes nothing in the model; what it measured may be infinite too.
        let (moved, metrics) = match overflow {
            true => (Ok(()), Metrics::new()),
            false => (self.move_parameters(at, gradient, running, along), metrics),
        };
        let to = self.progress.steps + 1;
        self.progress.rows = Some(RowsMove { to, factor, divisor });
        self.progress.within = Some(match self.progress.within.take() {
            None => {
                let first = FirstPass { tally, loss, rate, gradient_norm, overflowed: overflow };
                Within { pass: at + 1, metrics, first }
            }
            Some(mut within) => {
                within.metrics.merge(&metrics);
                within.first.overflowed |= overflow;
                Within { pass: at + 1, ..within }
            }
        });
        let scale = self.loss_scale();
        self.progress.scaler = scaler;
        if at + 1 == self.passes.len() {
            self.complete(next, stop, scale);
        }
        self.exchange.applied();
        self.timings.compute += started.elapsed();
        moved
    }

    /// Brings the rows of tables to the state after the last step. Others see them too, so all members must have
    /// committed the step: meeting them at the same version proves it.
    fn move_rows(&mut self) -> Result<(), Error> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let shared = self.tables.with_store(|rows| Ok(rows.shared()))?;
        if shared == Some(Shared::Yes) && self.place.size > 1 {
            self.meet("rows", &())?;
        }
        self.advance_rows()
    }

    fn advance_rows(&mut self) -> Result<(), Error> {
        if let Some(RowsMove { to, factor, divisor }) = self.progress.rows {
            self.tables.with_store(|rows| rows.advance(to, factor, divisor))?;
        }
        Ok(())
    }

    /// The sum over all members, its digest, and whether one of them wants to stop.
    fn reduce(&mut self, pass: usize, own: StepSum) -> Result<(StepSum, u64, bool), Error> {
        let stop = self.exchange.wants_stop();
        if self.place.size == 1 {
            self.exchange.working(Work::Computing, own.tally.applied);
            return Ok((own, 0, stop));
        }
        let started = Instant::now();
        self.exchange.working(Work::Exchanging, own.tally.applied);
        let layout = Layout::of(&*self.model, &self.passes[pass]);
        let StepSum { gradient, tally, metrics, loss, running: kept, overflow } = own;
        let compressed = self.setup.experiment.optimizations.gradient_compression;
        let gradient = gradient.into_host(compressed)?;
        let used = layout.used(&gradient);
        let (running, mover) = (kept.records, self.mover.clone());
        let side = PassSide { used, tally, loss, metrics, running, overflow, stop, mover };
        let sides: Vec<PassSide> = self.meet(&format!("pass {pass}"), &side)?;
        let mut all = StepSum::default();
        let mut used = vec![false; side.used.len()];
        let (mut running, mut stop) = (0.0, false);
        for side in &sides {
            all.tally.merge(&side.tally);
            all.loss += side.loss;
            all.metrics.merge(&side.metrics);
            used.iter_mut().zip(&side.used).for_each(|(any, own)| *any |= own);
            running += side.running;
            all.overflow |= side.overflow;
            stop |= side.stop;
        }
        let scaled = self.loss_scale().is_some();
        let mut fill = |bucket: &mut [f32]| layout.fill(bucket, &gradient, &kept);
        let sums = self.exchange.sum(layout.len(), &mut fill)?;
        let digest = digest(sums);
        // All members have these bits, so that all of them skip the step or none.
        all.overflow |= scaled && !finite(sums);
        (all.gradient, all.running) = layout.read(sums, &used, running);
        // All members must come to the same bits: different devices may round differently, the host does not.
        if sides.iter().all(|side| side.mover == self.mover) {
            all.gradient = all.gradient.near(&self.setup.device);
        }
        self.timings.exchange += started.elapsed();
        self.exchange.working(Work::Computing, 0);
        Ok((all, digest, stop))
    }

    /// Everybody's words, in the order of ranks, if all members are at the same point.
    fn meet<S: Serialize + DeserializeOwned>(
        &mut self,
        point: &str,
        own: &S,
    ) -> Result<Vec<S>, Error> {
        let unfit = |error: serde_json::Error| Error::Invalid(format!("{point}: {error}"));
        let bytes = serde_json::to_vec(&(point, own)).map_err(unfit)?;
        let mut all = Vec::new();
        for (rank, bytes) in self.exchange.gather(&bytes)?.iter().enumerate() {
            let (theirs, value): (String, S) = serde_json::from_slice(bytes).map_err(|error| {
                Error::Invalid(format!(
                    "worker {rank} is not at \"{point}\" ({error}): the workers' callbacks must \
                     come to the same decisions"
                ))
            })?;
            if theirs != point {
                return Err(Error::Invalid(format!(
                    "worker {rank} is at \"{theirs}\", this one at \"{point}\": the workers' \
                     callbacks must come to the same decisions"
                )));
            }
            all.push(value);
        }
        Ok(all)
    }

    /// One over the number of records; times the number of batches when sums are wanted.
    fn divisor(&self, records: u64, batches: u64) -> f32 {
        let average = self.setup.experiment.optimizations.average_aggregated_gradients;
        let factor = if average { 1.0 } else { batches as f64 };
        (factor / records.max(1) as f64) as f32
    }

    fn move_parameters(
        &mut self,
        pass: usize,
        gradient: GradientSum,
        running: Running,
        along: Along,
    ) -> Result<(), Error> {
        if !running.sums.is_empty() {
            let running: HashMap<_, _> = running.means().collect();
            let model = params::overwrite(self.model.clone(), running)
                .map_err(|reason| Error::Model { model: T::NAME, reason })?;
            self.model = Held::new(model);
        }
        let optimizer = &mut self.optimizers[pass];
        let gradient = optimizer.placed(gradient)?;
        // Nobody else holds the model now, so that its parameters change in place.
        self.model.change(|model| optimizer.moved(model, gradient, along));
        Ok(())
    }

    /// The step is committed: enters it into the books and decides what comes after it.
    fn complete(&mut self, next: Next, stop: bool, loss_scale: Option<f64>) {
        let Some(Within { metrics, first, .. }) = self.progress.within.take() else { return };
        let FirstPass { tally, loss, rate, gradient_norm, overflowed } = first;
        let counted = tally.applied;
        let tally = if overflowed { tally.overflowed() } else { tally };
        let progress = &mut self.progress;
        progress.ledger.commit(next.epoch, self.plan.records, &tally);
        progress.training.merge(&metrics);
        progress.records += tally.applied;
        progress.steps += 1;
        progress.batches += next.batches;
        let report = StepReport {
            epoch: next.epoch,
            step: next.step,
            steps: progress.steps,
            batches: progress.batches,
            records: tally.applied,
            loss: loss / counted as f64,
            learning_rate: rate,
            gradient_norm,
            skipped: overflowed,
            loss_scale,
        };
        let mut control = Control::default();
        self.callbacks.iter_mut().for_each(|callback| callback.step_end(&report, &mut control));
        self.end_step(next, stop, control.stop);
    }

    /// The last state is reached: it is on disk before anybody says so.
    fn conclude(&mut self) -> Result<(), Error> {
        self.move_rows()?;
        let ranks: Vec<Timings> = self.meet("the end", &self.timings.clone())?;
        self.exchange.commit(0)?;
        self.exchange.applied();
        let steps = self.progress.steps;
        // Where no list says what counts, one that was written for another generation may not.
        let (folder, id) = (self.setup.checkpoints(), self.exchange.checkpoint_id(steps));
        let listed = folder.join(COUNTED).exists();
        let counts = |old: &Manifest| old.steps == steps && (listed || old.id == id);
        let kept = || Store::list(&folder).iter().any(counts);
        if self.place.leads() && self.saved != Some(steps) && !kept() {
            self.save(None)?;
        }
        if self.place.leads() && self.setup.experiment.checkpoint_storage.store.is_some() {
            // What a killed process could not put into the store any more goes there now.
            self.open_store()?;
        }
        self.flush()?;
        let interrupted = self.progress.interrupted;
        let ending = if interrupted { Ending::Interrupted } else { Ending::Completed };
        let report = json!({"progress": self.progress, "ranks": ranks});
        self.exchange.conclude(ending, report)
    }

    fn finish(mut self, started: Instant) -> Result<Outcome, Error> {
        self.flush()?;
        let Self { mut callbacks, progress, mut timings, .. } = self;
        callbacks.iter_mut().for_each(|callback| callback.training_end(&progress));
        timings.wall = started.elapsed();
        let folder = self.setup.checkpoints();
        let latest = Store::list(&folder).last().map(|manifest| folder.join(&manifest.id));
        let (interrupted, ranks) = (progress.interrupted, Vec::new());
        Ok(Outcome { interrupted, progress, timings, ranks, checkpoint: latest })
    }
}

fn next(plan: &Plan, extent: &Extent, done: Mark, step: u64) -> Option<Next> {
    let left = extent.batches.saturating_sub(done.batches);
    let batches = plan.batches_in(step).min(left);
    (batches > 0).then_some(Next { epoch: done.epoch, step, batches })
}

/// Where training stands after a step: the counts, and the step within the epoch.
fn advance(plan: &Plan, before: Mark, step: Next) -> (Mark, u64) {
    let batches = before.batches + step.batches;
    if step.step + 1 == plan.steps() && step.batches == plan.batches_in(step.step) {
        (Mark { batches, epoch: step.epoch + 1 }, 0)
    } else {
        (Mark { batches, epoch: step.epoch }, step.step + 1)
    }
}
