//! The books of asynchronous training, in the master's process: what was measured, validations, what is told outside.
//!
//! They are kept in a file beside the journal. Names whose reports a killed master took with it are missing in the
//! training metrics of their epoch; everything else is read back from the servers' files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use salamander_core::experiment::{CheckpointPolicy, Experiment, PsMode};
use salamander_core::hparams;
use salamander_core::metrics::{Metrics, number};
use salamander_core::plan::{MicroBatch, Plan};
use salamander_core::push::{Applied, Checkpoint, Consistency, Names, Settings};
use salamander_core::schedule::Schedule;
use salamander_ps::{Engine, EngineOptions, Mode, Rows};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dense::Dense;
use super::folder::{Keeper, Kept};
use super::{Brief, Job, Measured};
use crate::Error;
use crate::callback::{EpochReport, Start, StepReport};
use crate::checkpoint::write_atomic;
use crate::evaluate::{self, Over, Part};
use crate::params;
use crate::progress::{Extent, Mark, Progress, due, is_default};
use crate::trainer::{Setup, Timings, watched_value};
use crate::trial::Trial;

/// The books' file in the run's folder,
const FILE: &str = "books.json";
/// the file with the rows that a run begins with,
const INITIAL: &str = "initial.rows";
/// and how often the books go to disk.
const OFTEN: Duration = Duration::from_millis(100);
/// A lease is over after this time without a report.
const LEASE_MS: u64 = 120_000;

/// Places of reports within a version.
const START: u32 = 0;
const STEP: u32 = 1;
const EPOCH: u32 = 2;

/// What is to be done about something that was entered.
#[derive(Debug, Default)]
pub struct Entered {
    /// To be told outside: version, part within it, and what.
    pub reports: Vec<(u64, u32, Value)>,
    /// A checkpoint is due.
    pub save: bool,
    /// Training is to end here.
    pub stop: bool,
}

/// The folder of a checkpoint being made; returns its name.
pub type Keeping = Box<dyn FnOnce() -> Result<String, Error> + Send>;

/// The books.
pub struct Account {
    experiment: Experiment,
    folder: PathBuf,
    schedule: Schedule,
    plan: Plan,
    extent: Extent,
    names: Names,
    parameters: u64,
    /// Batches of a validation.
    validation: u64,
    keeper: Arc<Keeper>,
    page: Page,
    /// Where training stands in the last checkpoint.
    last: Arc<Mutex<Option<Progress>>>,
    started: Instant,
    epoch_started: Instant,
    written: Option<Instant>,
    changed: bool,
}

/// What goes to disk.
#[derive(Serialize, Deserialize)]
struct Page {
    progress: Progress,
    /// Names that were entered.
    counted: Applied,
    /// Steps that are partly entered, by epoch and step.
    steps: Vec<((u64, u64), StepSum)>,
    /// The watched value of the last validation, for the checkpoint after it.
    watched: Option<f64>,
    timings: Timings,
}

/// A step so far.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StepSum {
    names: u64,
    records: u64,
    #[serde(with = "number")]
    loss: f64,
    rate: f64,
    gradient_norm: Option<f64>,
}

impl Account {
    /// Opens the books of a run, which may be new.
    pub(crate) fn open<T: Trial>(setup: Setup) -> Result<Self, Error> {
        let job = Job::<T>::new(setup)?;
        let Setup { experiment, folder, .. } = &job.setup;
        let (plan, extent) = (job.plan, job.extent);
        warn::<T>(experiment)?;
        let names = Names::of(&plan);
        let dense = Dense::of(&job.model);
        let model = params::read(&job.model);
        begin(&job, &dense, &model, names.slices())?;
        let shown = |info: &params::ParamInfo| info.shape.iter().product::<usize>() as u64;
        let infos = params::list(&job.model);
        let parameters = infos.iter().filter(|info| info.trainable).map(shown).sum();
        let over = Over::new(experiment, true);
        let batches = |dataset: &Arc<_>| evaluate::batches(dataset, over.batch);
        let validation = job.validation.as_ref().map_or(0, batches);
        let keeper = Arc::new(Keeper {
            folder: job.setup.checkpoints(),
            policy: experiment.checkpoint_policy,
            storage: experiment.checkpoint_storage.clone(),
            experiment: experiment.to_yaml(&job.hyperparameters),
            model,
            dense,
            plan,
            names: names.clone(),
            epochs: extent.epochs,
        });
        let page = std::fs::read(folder.join(FILE)).ok();
        let page = page.and_then(|text| serde_json::from_slice(&text).ok());
        let mut page = page.unwrap_or_else(|| Page {
            progress: Progress::default(),
            counted: Applied::new(names.slices()),
            steps: Vec::new(),
            watched: None,
            timings: Timings::default(),
        });
        page.progress.interrupted = false;
        Ok(Self {
            experiment: experiment.clone(),
            folder: folder.clone(),
            schedule: job.schedule,
            plan,
            extent,
            names,
            parameters,
            validation,
            keeper,
            page,
            last: Arc::default(),
            started: Instant::now(),
            epoch_started: Instant::now(),
            written: None,
            changed: false,
        })
    }

    /// What the master leads by.
    pub fn settings(&self) -> Settings {
        let ps = self.experiment.ps;
        Settings {
            names: self.names.clone(),
            epochs: self.extent.epochs,
            consistency: match ps.mode {
                PsMode::Async => Consistency::Async,
                PsMode::Bounded => Consistency::Bounded(ps.staleness),
                PsMode::Sync => Consistency::Sync,
            },
            servers: ps.servers.max(1),
            lease: LEASE_MS,
        }
    }

    /// Batches of a validation; 0: there is none.
    pub fn validation(&self) -> u64 {
        self.validation
    }

    /// The file with the rows that the run begins with.
    pub fn initial(&self) -> PathBuf {
        self.folder.join(INITIAL)
    }

    /// The folder of the run's checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.keeper.folder.clone()
    }

    /// Training begins, or goes on.
    pub fn begin(&mut self, workers: u64) -> Entered {
        let progress = &self.page.progress;
        let start = Start {
            done: progress.steps,
            total: self.extent.steps,
            total_batches: self.extent.batches,
            steps_per_epoch: self.plan.steps(),
            epochs: self.extent.epochs,
            records: self.plan.records,
            parameters: self.parameters,
            workers,
            leads: true,
        };
        let reports = vec![(progress.steps, START, json!({"start": start}))];
        Entered { reports, stop: progress.stopped, save: false }
    }

    /// What workers are told with each lease.
    pub fn brief(&self) -> Value {
        let brief = Brief { plateau: self.page.progress.plateau };
        serde_json::to_value(brief).unwrap_or_default()
    }

    /// A name is done.
    pub fn measured(&mut self, name: MicroBatch, measured: &Value) -> Entered {
        let Ok(measured) = serde_json::from_value::<Measured>(measured.clone()) else {
            tracing::warn!(?name, "what was measured makes no sense");
            return Entered::default();
        };
        if !self.page.counted.insert(name) {
            return Entered::default();
        }
        self.changed = true;
        let page = &mut self.page;
        page.progress.training.merge(&measured.metrics);
        page.progress.records += measured.tally.applied;
        add(&mut page.timings, &measured.timings);
        let at = (name.epoch, name.step);
        let mut sum = match page.steps.iter().position(|(step, _)| *step == at) {
            Some(index) => page.steps.swap_remove(index).1,
            None => StepSum::default(),
        };
        sum.names += 1;
        sum.records += measured.tally.applied;
        sum.loss += measured.loss;
        sum.rate = measured.rate;
        sum.gradient_norm = measured.gradient_norm.or(sum.gradient_norm);
        let names = self.plan.micro_batches(name.epoch, name.step, self.plan.aggregation).len();
        if sum.names < names as u64 {
            page.steps.push((at, sum));
            return Entered::default();
        }
        self.step_done(at, &sum)
    }

    fn step_done(&mut self, (epoch, step): (u64, u64), sum: &StepSum) -> Entered {
        let batches = self.plan.batches_in(step);
        let progress = &mut self.page.progress;
        let before = Mark { batches: progress.batches, epoch };
        progress.steps += 1;
        progress.batches += batches;
        let after = Mark { batches: progress.batches, epoch };
        let report = StepReport {
            epoch,
            step,
            steps: progress.steps,
            batches: progress.batches,
            records: sum.records,
            loss: sum.loss / sum.records.max(1) as f64,
            learning_rate: sum.rate,
            gradient_norm: sum.gradient_norm,
            skipped: false,
            loss_scale: None,
        };
        let period = self.experiment.min_checkpoint_period.0;
        Entered {
            reports: vec![(progress.steps, STEP, json!({"step": report}))],
            save: due(period, before, after, &self.plan),
            stop: false,
        }
    }

    /// Whether the end of an epoch was entered.
    pub fn is_closed(&self, epoch: u64) -> bool {
        self.page.progress.epoch > epoch
    }

    /// All names of an epoch are done; these are the parts of its validation.
    pub fn close(&mut self, epoch: u64, parts: &[Value]) -> Result<Entered, Error> {
        let progress = &mut self.page.progress;
        let last = epoch + 1 >= self.extent.epochs;
        progress.epoch = epoch + 1;
        progress.steps = (epoch + 1) * self.plan.steps();
        progress.batches = (epoch + 1) * self.plan.batches();
        self.page.steps.clear();
        let mut all = Part::default();
        for part in parts {
            let part: Part = serde_json::from_value(part.clone())
                .map_err(|error| Error::Invalid(format!("a part of the validation: {error}")))?;
            all.merge(&part);
        }
        let validated = match parts.is_empty() {
            true => None,
            false => Some(self.validated(all.finish().metrics)?),
        };
        let (best, stop) = validated.unwrap_or((false, false));
        let progress = &mut self.page.progress;
        progress.last_training = progress.training.values();
        let training = std::mem::take(&mut progress.training);
        let report = EpochReport {
            epoch,
            complete: true,
            steps: progress.steps,
            training,
            validation: validated.and(progress.validation.clone()),
            seconds: self.epoch_started.elapsed().as_secs_f64(),
            best,
        };
        self.epoch_started = Instant::now();
        progress.stopped |= stop;
        let policy = match self.experiment.checkpoint_policy {
            CheckpointPolicy::Best => best || validated.is_none(),
            CheckpointPolicy::All => true,
            CheckpointPolicy::None => false,
        };
        let before = Mark { batches: progress.batches - self.plan.batches(), epoch };
        let after = Mark { batches: progress.batches, epoch: epoch + 1 };
        let by_epochs = due(self.experiment.min_checkpoint_period.0, before, after, &self.plan);
        let reports = vec![(progress.steps, EPOCH, json!({"epoch": report}))];
        self.changed = true;
        self.write();
        Ok(Entered { reports, save: policy || by_epochs || last, stop })
    }

    /// Whether a validation is the best, and whether it is time to stop.
    fn validated(&mut self, metrics: Metrics) -> Result<(bool, bool), Error> {
        let value = watched_value(&self.experiment, &metrics)?;
        let progress = &mut self.page.progress;
        progress.plateau.observe(&self.schedule, value);
        let verdict = progress.watch.observe(value, self.experiment.early_stop);
        progress.validation = Some(metrics);
        self.page.watched = Some(value).filter(|value| !value.is_nan());
        Ok((verdict.best, verdict.stop))
    }

    /// A checkpoint counts, whose rows are in these files.
    pub fn keep(&mut self, checkpoint: Checkpoint, files: Vec<PathBuf>) -> Keeping {
        let progress = self.page.progress.clone();
        // Only the checkpoint at the end of an epoch is of the parameters that were validated.
        let at_end = self.page.steps.is_empty() && self.page.progress.training == Metrics::new();
        let watched = self.page.watched.filter(|_| at_end);
        let (keeper, last) = (Arc::clone(&self.keeper), Arc::clone(&self.last));
        Box::new(move || {
            let (name, progress) = keeper.keep(Kept { checkpoint, files, progress, watched })?;
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
            Ok(name)
        })
    }

    /// The run ends: what the summary is made of. It is the state of the last checkpoint.
    pub fn end(&mut self, interrupted: bool) -> Value {
        let kept = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut progress = kept.unwrap_or_else(|| self.page.progress.clone());
        let own = &self.page.progress;
        progress.interrupted = interrupted;
        progress.stopped = own.stopped;
        (progress.training, progress.validation) = (own.training.clone(), own.validation.clone());
        progress.last_training = match own.training == Metrics::new() {
            true => own.last_training.clone(),
            false => own.training.values(),
        };
        self.write();
        let timings = Timings { wall: self.started.elapsed(), ..self.page.timings };
        json!({"progress": progress, "ranks": [timings]})
    }

    /// Writes the books when they have changed and some time has passed.
    pub fn tick(&mut self) {
        if self.changed && self.written.is_none_or(|written| written.elapsed() > OFTEN) {
            // Without waiting for the disk: it is for a master that is killed, not for a machine that is.
            self.write_by(|path, text| {
                let beside = path.with_extension("new");
                std::fs::write(&beside, text).map_err(Error::io(&beside))?;
                std::fs::rename(&beside, path).map_err(Error::io(path))
            });
        }
    }

    fn write(&mut self) {
        self.write_by(write_atomic);
    }

    fn write_by(&mut self, by: impl FnOnce(&Path, &[u8]) -> Result<(), Error>) {
        let text = serde_json::to_vec(&self.page).unwrap_or_default();
        if let Err(error) = by(&self.folder.join(FILE), &text) {
            tracing::warn!(%error, "the books could not be written");
        }
        (self.written, self.changed) = (Some(Instant::now()), false);
    }
}

/// Says what of an experiment has no effect here.
fn warn<T: Trial>(experiment: &Experiment) -> Result<(), Error> {
    if !is_default(experiment.min_validation_period.0) || experiment.perform_initial_validation {
        tracing::warn!("strategy ps validates at the end of each epoch, and only then");
    }
    let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
    if !T::callbacks(&hp).is_empty() {
        tracing::warn!("strategy ps does not call the model's callbacks");
    }
    Ok(())
}

fn add(sum: &mut Timings, more: &Timings) {
    sum.compute += more.compute;
    sum.exchange += more.exchange;
    sum.data += more.data;
}

/// Writes the rows that the run begins with, unless they are there: the model's first parameters.
fn begin<T: Trial>(
    job: &Job<T>,
    dense: &Dense,
    model: &[(String, burn::tensor::TensorData)],
    slices: u32,
) -> Result<(), Error> {
    let path = job.setup.folder.join(INITIAL);
    if path.exists() {
        return Ok(());
    }
    let seed = job.arithmetic.seed;
    let options = EngineOptions { mode: Mode::Immediate, seed, slices, ..EngineOptions::default() };
    let engine = Engine::new(options)?;
    let table = engine.declare(dense.spec(job.pass.optimizer))?;
    let (ids, values): (Vec<u64>, Vec<f32>) =
        ((0..dense.blocks() as u64).collect(), dense.gather(model));
    if !ids.is_empty() {
        engine.set(Rows { table, ids: &ids, values: &values })?;
    }
    engine.snapshot()?.write(&path)?;
    Ok(())
}
