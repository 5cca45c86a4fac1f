//! The loop: take a step's records, sum their gradients, move the parameters, tell everybody.

mod setup;
mod timings;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use salamander_core::experiment::{CheckpointPolicy, Clip, Experiment};
use salamander_core::metrics::Metrics;
use salamander_core::order::Order;
use salamander_core::plan::Plan;
use salamander_core::schedule::Schedule;
use salamander_data::Dataset;

use crate::callback::{Callback, Control, EpochReport, Start, StepReport};
use crate::checkpoint::{Checkpoint, Snapshot, Store};
use crate::evaluate::{self, Over, evaluate};
use crate::loader::{Job, Loaded, Loader, Options};
use crate::optimize::OptimizerState;
use crate::progress::{Extent, Mark, Progress, due, is_default};
use crate::step::{Arithmetic, compute};
use crate::trial::{BatchOf, Pass, Trial};
use crate::{Error, params};

pub use setup::{Setup, open_data};
pub use timings::Timings;

/// A training, ready to run.
pub struct Trainer<T: Trial> {
    setup: Setup,
    model: T,
    passes: Vec<Pass>,
    optimizers: Vec<OptimizerState>,
    schedule: Schedule,
    clip: Option<Clip>,
    arithmetic: Arithmetic,
    plan: Plan,
    extent: Extent,
    training: Arc<Dataset>,
    validation: Option<Arc<Dataset>>,
    progress: Progress,
    callbacks: Vec<Box<dyn Callback>>,
    store: Store,
    hyperparameters: serde_json::Value,
    timings: Timings,
    epoch_started: Instant,
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

impl<T: Trial> Trainer<T> {
    /// Goes on from a checkpoint.
    pub fn resume(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        let Checkpoint { path, progress, model, optimizers, .. } = checkpoint;
        self.model = params::write(self.model.clone(), model)
            .map_err(|reason| Error::checkpoint(&path, reason))?;
        for (pass, state) in self.passes.iter().zip(&mut self.optimizers) {
            for (name, param) in optimizers.get(pass.name).into_iter().flatten() {
                if param.slots.len() != pass.optimizer.slots().len() {
                    let reason = format!("its optimizer state for {name} is of another optimizer");
                    return Err(Error::checkpoint(&path, reason));
                }
                state.insert(name.clone(), param.clone());
            }
        }
        for callback in &mut self.callbacks {
            if let Some((name, _)) = callback.state()
                && let Some(state) = progress.callbacks.get(name)
            {
                callback.restore(state);
            }
        }
        self.progress = progress;
        Ok(())
    }

    /// Trains until the end, a stop, or an interruption from outside.
    pub fn run(mut self) -> Result<Outcome, Error> {
        let started = Instant::now();
        self.announce();
        let mut control = Control::default();
        if self.setup.experiment.perform_initial_validation && self.progress.steps == 0 {
            self.validate(&mut control)?;
        }
        let mut loader = self.loader()?;
        let mut interrupted = self.interrupted();
        while !interrupted && let Some(next) = self.next_step() {
            if next.step == 0 {
                self.callbacks.iter_mut().for_each(|c| c.epoch_start(next.epoch));
            }
            self.step(next, &mut loader, &mut control)?;
            self.after_step(next, &mut control)?;
            self.report_saved()?;
            interrupted = self.interrupted() && self.next_step().is_some();
        }
        drop(loader);
        self.finish(interrupted, started)
    }

    fn announce(&mut self) {
        let start = Start {
            done: self.progress.steps,
            total: self.extent.steps,
            total_batches: self.extent.batches,
            steps_per_epoch: self.plan.steps(),
            epochs: self.extent.epochs,
            records: self.plan.records,
            parameters: params::list(&self.model)
                .iter()
                .filter(|param| param.trainable)
                .map(|param| param.shape.iter().product::<usize>() as u64)
                .sum(),
        };
        self.callbacks.iter_mut().for_each(|callback| callback.training_start(&start));
    }

    fn interrupted(&self) -> bool {
        self.setup.stop.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn next_step(&self) -> Option<Next> {
        let done = &self.progress;
        (!done.stopped).then(|| next(&self.plan, &self.extent, done.mark(), done.step)).flatten()
    }

    /// Loads the micro-batches of every step from here to the end, in their order.
    fn loader(&self) -> Result<Loader<BatchOf<T>>, Error> {
        let (plan, extent, seed) = (self.plan, self.extent, self.arithmetic.seed);
        let shuffle = self.setup.experiment.data.shuffle;
        let mut at = (self.progress.mark(), self.progress.step);
        let steps = std::iter::from_fn(move || {
            let next = next(&plan, &extent, at.0, at.1)?;
            at = advance(&plan, at.0, next);
            Some(next)
        });
        let jobs = steps.flat_map(move |next| {
            let order = Order::new(plan.records, shuffle, seed, next.epoch);
            let slices = plan.micro_batches(next.epoch, next.step, next.batches);
            slices.into_iter().map(move |slice| Job { slice, order })
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

    fn step(
        &mut self,
        next: Next,
        loader: &mut Loader<BatchOf<T>>,
        control: &mut Control,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let slices = self.plan.micro_batches(next.epoch, next.step, next.batches).len();
        let batches: Vec<Loaded<BatchOf<T>>> = loader.take(slices).collect::<Result<_, _>>()?;
        self.timings.data += started.elapsed();

        let started = Instant::now();
        let done = self.progress.for_schedule();
        let factor = self.schedule.factor(done, self.extent.for_schedule(), &self.progress.plateau);
        let mut metrics = Metrics::new();
        let mut report = None;
        for at in 0..self.passes.len() {
            let pass = self.passes[at].clone();
            let mut sum = compute(&self.model, &pass, &batches, self.arithmetic)?;
            let records = sum.tally.applied;
            sum.gradient.scale(self.divisor(records, next.batches));
            let gradient_norm = sum.gradient.clip(self.clip);
            let rate = pass.optimizer.learning_rate() * factor;
            self.commit(at, &sum.gradient, sum.running, rate)?;
            metrics.merge(&sum.metrics);
            report.get_or_insert((sum.tally, sum.loss, rate, gradient_norm));
        }
        self.timings.compute += started.elapsed();

        let Some((tally, loss, learning_rate, gradient_norm)) = report else { return Ok(()) };
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
            loss: loss / tally.applied as f64,
            learning_rate,
            gradient_norm,
        };
        self.callbacks.iter_mut().for_each(|callback| callback.step_end(&report, control));
        Ok(())
    }

    /// One over the number of records; times the number of batches when sums are wanted.
    fn divisor(&self, records: u64, batches: u64) -> f32 {
        let average = self.setup.experiment.optimizations.average_aggregated_gradients;
        let factor = if average { 1.0 } else { batches as f64 };
        (factor / records.max(1) as f64) as f32
    }

    fn commit(
        &mut self,
        pass: usize,
        gradient: &crate::gradients::GradientSum,
        running: Vec<(String, burn::tensor::TensorData)>,
        rate: f64,
    ) -> Result<(), Error> {
        let mut model = self.model.clone();
        if !running.is_empty() {
            let running: HashMap<_, _> = running.into_iter().collect();
            model = params::overwrite(model, running)
                .map_err(|reason| Error::Model { model: T::NAME, reason })?;
        }
        self.model = self.optimizers[pass].step(model, gradient, rate);
        Ok(())
    }

    /// Validation, end of epoch, checkpoint: in this order, so that a checkpoint has it all.
    fn after_step(&mut self, step: Next, control: &mut Control) -> Result<(), Error> {
        let before = Mark { batches: self.progress.batches - step.batches, epoch: step.epoch };
        let (after, at) = advance(&self.plan, before, step);
        let epoch_done = after.epoch > step.epoch;
        (self.progress.epoch, self.progress.step) = (after.epoch, at);
        let last = self.next_step().is_none() || control.stop;

        let experiment = &self.setup.experiment;
        let period = experiment.min_validation_period.0;
        let wanted =
            if is_default(period) { epoch_done } else { due(period, before, after, &self.plan) };
        let checkpoint_period = experiment.min_checkpoint_period.0;
        let mut save = last || due(checkpoint_period, before, after, &self.plan);
        let mut watched = None;
        let mut best = false;
        let mut validation = None;
        if self.validation.is_some() && (wanted || last) {
            let seen = self.validate(control)?;
            (watched, best) = (Some(seen.0), seen.1);
            validation = self.progress.validation.clone();
            save |= match self.setup.experiment.checkpoint_policy {
                CheckpointPolicy::Best => best,
                CheckpointPolicy::All => true,
                CheckpointPolicy::None => false,
            };
        } else if self.validation.is_none() && epoch_done {
            save |= self.setup.experiment.checkpoint_policy != CheckpointPolicy::None;
        }
        if epoch_done || validation.is_some() || last {
            self.report_epoch(step.epoch, epoch_done, validation, best);
        }
        if epoch_done {
            self.progress.training = Metrics::new();
            self.epoch_started = Instant::now();
        }
        self.progress.stopped |= control.stop;
        if save { self.save(watched) } else { Ok(()) }
    }

    fn report_epoch(
        &mut self,
        epoch: u64,
        complete: bool,
        validation: Option<Metrics>,
        best: bool,
    ) {
        self.progress.last_training = self.progress.training.values();
        let report = EpochReport {
            epoch,
            complete,
            steps: self.progress.steps,
            training: self.progress.training.clone(),
            validation,
            seconds: self.epoch_started.elapsed().as_secs_f64(),
            best,
        };
        self.callbacks.iter_mut().for_each(|callback| callback.epoch_end(&report));
    }

    /// Validates and returns the watched value (smaller is better) and whether it is the best.
    fn validate(&mut self, control: &mut Control) -> Result<(f64, bool), Error> {
        let Some(dataset) = &self.validation else { return Ok((f64::NAN, false)) };
        let started = Instant::now();
        let experiment = &self.setup.experiment;
        let over = Over::new(experiment, true);
        let batches = evaluate::batches(dataset, over.batch);
        let callbacks = &mut self.callbacks;
        callbacks.iter_mut().for_each(|callback| callback.validation_start(batches));
        let found = evaluate(&self.model, dataset, over, &mut || {
            callbacks.iter_mut().for_each(|callback| callback.validation_batch());
        })?;
        callbacks.iter_mut().for_each(|c| c.validation_end(&found.metrics, control));
        self.timings.test += started.elapsed();

        let value = watched_value(experiment, &found.metrics)?;
        self.progress.plateau.observe(&self.schedule, value);
        let verdict = self.progress.watch.observe(value, experiment.early_stop);
        control.stop |= verdict.stop;
        self.progress.validation = Some(found.metrics);
        Ok((value, verdict.best))
    }

    fn save(&mut self, watched: Option<f64>) -> Result<(), Error> {
        for callback in &self.callbacks {
            if let Some((name, state)) = callback.state() {
                self.progress.callbacks.insert(name.to_string(), state);
            }
        }
        let named = self.passes.iter().zip(&self.optimizers);
        let optimizers = named.map(|(pass, state)| (pass.name.to_string(), state.params().clone()));
        self.store.save(Snapshot {
            progress: self.progress.clone(),
            model: params::read(&self.model),
            optimizers: optimizers.collect(),
            experiment: self.setup.experiment.to_yaml(&self.hyperparameters),
            watched: watched.filter(|value| !value.is_nan()),
        })
    }

    fn report_saved(&mut self) -> Result<(), Error> {
        for path in self.store.finished()? {
            self.callbacks.iter_mut().for_each(|callback| callback.checkpoint_saved(&path));
        }
        Ok(())
    }

    fn finish(mut self, interrupted: bool, started: Instant) -> Result<Outcome, Error> {
        if interrupted {
            self.save(None)?;
        }
        let Self { store, mut callbacks, progress, mut timings, .. } = self;
        let saved = store.close()?;
        for path in &saved {
            callbacks.iter_mut().for_each(|callback| callback.checkpoint_saved(path));
        }
        callbacks.iter_mut().for_each(|callback| callback.training_end(&progress));
        timings.wall = started.elapsed();
        let folder = self.setup.checkpoints();
        let latest = Store::list(&folder).last().map(|manifest| folder.join(&manifest.id));
        Ok(Outcome { interrupted, progress, timings, checkpoint: latest })
    }
}

/// The watched metric of a validation, negated where bigger is better.
fn watched_value(experiment: &Experiment, metrics: &Metrics) -> Result<f64, Error> {
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
