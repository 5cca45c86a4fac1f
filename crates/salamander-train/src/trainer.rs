//! The loop: take a step's records, sum their gradients, move the parameters, tell everybody.
//!
//! A run is a row of commits: each pass of a step, each validation, each checkpoint's barrier. Between two of them
//! everything follows from the state, so that any member that holds it can go on, in whatever generation. What comes
//! when, and who is told what, is decided by [`Course`], for every strategy alike.
//!
//! A program says what to train from; [`Model::train`](crate::model::Model::train) does the rest:
//!
//! ```
//! use salamander::train::{Data, Experiment, Setup, device, open_data};
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n")?;
//!
//! let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//! assert_eq!(points.len(), 2);
//! let setup = Setup {
//!     experiment: Experiment::parse("hyperparameters: {global_batch_size: 2}", &[])?,
//!     folder: folder.path().join("run"),
//!     device: device::select("cpu")?,
//!     stop: Default::default(),
//!     kept_data: Default::default(),
//! };
//! assert!(setup.checkpoints().ends_with("run/checkpoints"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - `setup`, `prepared`: from an experiment to what is trained; also for asynchronous training
//! - `model_state`: model, optimizers and tables; `held`: a model that changes in place
//! - `together`: where members meet; `tree_fold`: in which order they add up; `agreement`: whether they still hold the
//!   same
//! - `generation`: where their state comes from
//! - `after`: validations, checkpoints and the end; `checkpoints`: the checkpoints of a run
//! - `streamed`: data that is still being written

mod after;
mod agreement;
mod checkpoints;
mod generation;
mod held;
mod histograms;
mod model_state;
#[cfg(test)]
mod not_finite_tests;
#[cfg(test)]
mod pace_tests;
mod prepared;
mod setup;
mod streamed;
#[cfg(test)]
mod streamed_tests;
mod together;
mod tree_fold;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use salamander_core::callback::Callbacks;
use salamander_core::course::{Course, Next, PassDone, StepPlace, Wishes};
use salamander_core::elastic::Work;
use salamander_core::experiment::OnNan;
use salamander_core::metrics::Metrics;
use salamander_core::progress::Progress;
use salamander_core::tree::Share;

use crate::callback::Callback;
use crate::exchange::{Exchange, Place};
use crate::loader::Loader;
use crate::optimize::Along;
use crate::profile::WorkTimes;
use crate::step::{Arithmetic, StepSum};
use crate::trial::{BatchOf, Trial};
use crate::{Error, arithmetic, device, threads};

use agreement::Agreement;
use checkpoints::CheckpointWriter;
use histograms::HistogramLog;
use model_state::{ModelState, OwnPart};
use together::Reduced;

pub(crate) use prepared::Prepared;
pub use salamander_core::report::Timings;
pub use setup::{KeptData, Setup, open_all, open_data};
pub(crate) use streamed::StreamedData;

/// A training, ready to run.
pub(crate) struct Trainer<T: Trial> {
    prepared: Prepared,
    course: Course,
    state: ModelState<T>,
    exchange: Box<dyn Exchange>,
    place: Place,
    agreement: Agreement,
    callbacks: Callbacks,
    checkpoints: CheckpointWriter,
    timings: Timings,
    /// Time spent on checkpoints.
    saving: Duration,
    /// The same for whoever looks meanwhile.
    pub(crate) work: Arc<WorkTimes>,
    histograms: Option<HistogramLog>,
    started: Instant,
    /// What moves the parameters: this device's model, or nothing on the CPU.
    mover: String,
    /// Whether all wait after the next checkpoint, for a parameter server that leaves.
    holds: bool,
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

impl<T: Trial> Trainer<T> {
    /// Checks the experiment, opens the data and builds the model.
    pub(crate) fn new(
        setup: Setup,
        mut exchange: Box<dyn Exchange>,
        callbacks: Vec<Box<dyn Callback>>,
    ) -> Result<Self, Error> {
        let (prepared, course, callbacks) = Prepared::new::<T>(setup, callbacks)?;
        let state = ModelState::new(&prepared, || exchange.rows(course.seed()))?;
        let checkpoints = CheckpointWriter::new(&prepared.setup);
        let mover = device::model(&prepared.setup.device);
        let histograms = HistogramLog::of(&prepared.setup);
        let (place, timings, started) = (Place::ALONE, Timings::default(), Instant::now());
        Ok(Self {
            prepared,
            course,
            state,
            exchange,
            place,
            agreement: Agreement::at_once(),
            callbacks,
            checkpoints,
            timings,
            saving: Duration::ZERO,
            work: Arc::default(),
            histograms,
            started,
            mover,
            holds: false,
        })
    }

    /// Whether a step is left.
    pub(crate) fn has_steps(&self) -> bool {
        self.course.has_steps()
    }

    /// Trains until the end, a stop, or an interruption from outside.
    pub(crate) fn run(mut self) -> Result<Outcome, Error> {
        let started = Instant::now();
        threads::join(self.prepared.setup.experiment.threads);
        let data = self.prepared.trained_on(&self.course);
        self.exchange.introduce(&mut || arithmetic::stamped(data, &self.prepared.setup.device));
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
        self.agreement = Agreement::at_once();
        self.holds = false;
        self.begin(entered)?;
        self.begin_streamed()?;
        self.tell_start();
        let mut loader = None;
        loop {
            match self.course.next() {
                Next::Validate => self.validate()?,
                Next::Save => {
                    self.save_together()?;
                    self.hold()?;
                }
                // A member that is alone decides by itself; several agree on a stop in an exchange.
                Next::Step(_) if self.place.size == 1 && self.exchange.wants_stop() => {
                    self.course.interrupt();
                }
                Next::Step(place) if !self.course.is_ready(place) => {
                    // It has come to the end of the records that it knows.
                    loader = None;
                    self.await_records()?;
                }
                Next::Step(place) => {
                    let loader = match &mut loader {
                        Some(loader) => loader,
                        none => none.insert(self.loader()?),
                    };
                    self.step(place, loader)?;
                    self.report_saved()?;
                }
                Next::Finished => break,
            }
            self.work.note(self.course.progress().steps.0, &self.timings, self.saving);
        }
        drop(loader);
        self.conclude()
    }

    /// Tells how long training is, as far as that is known.
    fn tell_start(&mut self) {
        let (parameters, workers) = (self.state.parameters(), self.place.size as u64);
        let start = self.course.start(parameters, workers, self.place.leads());
        self.callbacks.tell(|callback| callback.training_start(&start));
    }

    /// Loads this member's micro-batches of every step from here to the end, or to where records are still to be
    /// written, in their order.
    fn loader(&self) -> Result<Loader<BatchOf<T>>, Error> {
        let (plan, place) = (*self.course.plan(), self.place);
        let slices = self.course.ready_steps().flat_map(move |next| {
            let mut slices = plan.micro_batches(next.epoch, next.step, next.batches);
            slices.drain(place.share(slices.len())).collect::<Vec<_>>()
        });
        self.prepared.loader::<T>(slices)
    }

    fn step(&mut self, place: StepPlace, loader: &mut Loader<BatchOf<T>>) -> Result<(), Error> {
        if place.step == 0 && self.course.pass() == 0 {
            self.callbacks.tell(|callback| callback.epoch_start(place.epoch));
        }
        let started = Instant::now();
        self.exchange.working(Work::Computing, 0);
        let slices = self.course.plan().micro_batches(place.epoch, place.step, place.batches);
        let leaves: Vec<u32> = slices.iter().map(|slice| slice.name.k).collect();
        let share = Share { leaves: &leaves, own: self.place.share(leaves.len()) };
        let batches = loader.take(share.own.len()).collect::<Result<Vec<_>, _>>()?;
        let waited = started.elapsed();
        self.timings.data += waited;
        self.exchange.waited(waited);
        self.move_rows()?;
        let passes = self.course.pass()..self.state.passes.len();
        let own = OwnPart { share, batches: &batches };
        passes.into_iter().try_for_each(|pass| self.pass(pass, place, &own))
    }

    /// One pass over the step's records, up to its commit.
    fn pass(
        &mut self,
        at: usize,
        place: StepPlace,
        own: &OwnPart<'_, BatchOf<T>>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        self.exchange.working(Work::Computing, 0);
        let loss_scale = self.course.loss_scale();
        let arithmetic = Arithmetic { loss_scale, ..self.prepared.arithmetic };
        let sums = self.state.compute(at, own, arithmetic, self.course.progress().steps)?;
        self.timings.compute += started.elapsed();
        let Reduced { mut sum, digest, stop, save, hold } =
            self.reduce(at, own.share.leaves, sums)?;
        self.holds |= hold;

        let started = Instant::now();
        // Each micro-batch was finite, and what they come to is not: nothing but the numbers' size can be wrong.
        if sum.overflow && loss_scale.is_none() && arithmetic.on_nan == OnNan::Fail {
            let what = "the sum of all gradients is infinite, though none of them is,";
            return Err(Error::NotANumber { what, epoch: place.epoch, step: place.step });
        }
        let scaler = self.course.scaler_after(sum.overflow)?;
        let divisor = self.course.divisor(sum.tally.applied, place.batches);
        let divisor = self.course.unscaled(divisor, sum.overflow);
        let (gradient_norm, left) = sum.bounded(self.prepared.clip, divisor)?;
        let factor = self.course.factor();
        let rate = self.state.passes[at].optimizer.learning_rate() * factor;
        let applying = self.exchange.commit(digest)?;
        let StepSum { gradient, tally, metrics, loss, running, overflow } = sum;
        let along = Along { rate, factor: left };
        let kept = self.due_gradients(&gradient);
        // A pass whose gradients overflowed changes nothing in the model; what it measured may be infinite too.
        let (moved, metrics) = match overflow {
            true => (Ok(()), Metrics::new()),
            false => (self.state.apply(at, gradient, running, along), metrics),
        };
        let done = PassDone {
            tally,
            loss,
            metrics,
            rate,
            factor,
            divisor,
            gradient_norm,
            overflow,
            scaler,
        };
        self.enter(place, done, stop, save);
        drop(applying);
        kept.map_or(Ok(()), |gradient| self.keep_histograms(gradient, left))?;
        self.timings.compute += started.elapsed();
        moved
    }

    /// A pass is committed; the last one of a step completes it.
    fn enter(&mut self, place: StepPlace, done: PassDone, interrupt: bool, save: bool) {
        let Some(done) = self.course.pass_done(place, self.state.passes.len(), done) else {
            return;
        };
        let stop = self.callbacks.ask(|callback, control| callback.step_end(&done.report, control));
        let wishes = Wishes { interrupt, stop, save: save || self.holds };
        let told = self.course.step_done(done, wishes, self.started.elapsed());
        self.tell_epoch(told);
    }
}
