//! Asynchronous training: everything lives on parameter servers, and workers compute micro-batches by name, as the
//! master leases them.
//!
//! # What a push means
//! The gradients of a micro-batch are divided by the records of its whole step, so that the pushes of a step together
//! have the size of one synchronous step; they are applied one by one, each with the optimizer's state as it then is.
//! The schedule's factor is that of the name's own step.
//!
//! # Layout
//! - [`Dense`]: dense parameters as rows of a table
//! - [`work`] (`worker`): a worker's loop; `line`: the master; `servers`: the rows
//! - [`Account`] (`account`): the books, in the master's process; `folder`: a checkpoint's folder from the files of
//!   servers

mod account;
mod dense;
mod folder;
mod line;
mod servers;
mod worker;

use std::sync::Arc;

use salamander_core::experiment::{Clip, Experiment};
use salamander_core::hparams::{self, Hparams};
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metrics, number};
use salamander_core::plan::{MicroBatch, Plan};
use salamander_core::schedule::{self, Plateau, Schedule};
use salamander_data::Dataset;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::progress::Extent;
use crate::step::Arithmetic;
use crate::tables::Tables;
use crate::trainer::{Setup, Timings, open_all, precision};
use crate::trial::{Pass, Trial};

pub use account::{Account, Entered, Keeping};
pub use dense::{BLOCK, Dense, TABLE};
pub use line::Line;
pub use worker::work;

/// What a worker measured while it computed a micro-batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Its records.
    pub(crate) tally: Tally,
    /// The sum of their losses.
    #[serde(with = "number")]
    pub(crate) loss: f64,
    /// The loss and the model's metrics.
    pub(crate) metrics: Metrics,
    /// The learning rate.
    pub(crate) rate: f64,
    /// The gradients' norm before clipping, when clipping needed it.
    pub(crate) gradient_norm: Option<f64>,
    /// Where the time went.
    pub(crate) timings: Timings,
}

/// What workers are told with each lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Brief {
    /// The state of an on-plateau schedule.
    pub(crate) plateau: Plateau,
}

/// What follows from the experiment, the same in all processes.
pub(crate) struct Job<T> {
    pub(crate) setup: Setup,
    pub(crate) model: T,
    pub(crate) tables: Tables,
    pub(crate) pass: Pass,
    pub(crate) schedule: Schedule,
    pub(crate) clip: Option<Clip>,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) plan: Plan,
    pub(crate) extent: Extent,
    pub(crate) training: Arc<Dataset>,
    pub(crate) validation: Option<Arc<Dataset>>,
    pub(crate) hyperparameters: serde_json::Value,
}

impl<T: Trial> Job<T> {
    pub(crate) fn new(setup: Setup) -> Result<Self, Error> {
        let experiment = &setup.experiment;
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        let wrong = |reason: &str| Error::Model { model: T::NAME, reason: reason.to_string() };
        let [pass] = T::passes(&hp).try_into().map_err(|_: Vec<Pass>| {
            wrong("it has several passes, which meet in a step: use strategy allreduce")
        })?;
        pass.optimizer.validate().map_err(|reason| wrong(&reason))?;
        let precision = precision(experiment, &setup.device)?;
        let (training, validation) = open_all(experiment, &setup.folder, &mut Vec::new())?;
        let plan = plan(experiment, training.len());
        let extent = Extent::new(experiment.length(), &plan);
        if !extent.batches.is_multiple_of(plan.batches()) {
            let (batches, of) = (extent.batches, plan.batches());
            return Err(Error::Invalid(format!(
                "searcher.max_length: strategy ps trains whole epochs, and {batches} batches are not \
                 a multiple of the {of} that an epoch has: write {{epochs: N}}"
            )));
        }
        let (model, tables, _) = setup.fresh::<T>()?;
        let seed = crate::model::seed(experiment);
        Ok(Self {
            model,
            tables,
            schedule: experiment.schedule.unwrap_or_else(|| T::schedule(&hp)),
            clip: experiment.clip.or_else(|| T::clip(&hp)),
            arithmetic: Arithmetic { seed, precision, loss_scale: None, on_nan: experiment.on_nan },
            plan,
            extent,
            training,
            validation,
            hyperparameters: hp.to_json(),
            pass,
            setup,
        })
    }
}

fn plan(experiment: &Experiment, records: u64) -> Plan {
    Plan {
        records,
        batch: experiment.global_batch,
        aggregation: experiment.optimizations.aggregation_frequency,
        slices: experiment.slices(),
    }
}

/// How far training is before a name, in the units of schedules.
fn before(plan: &Plan, name: MicroBatch) -> schedule::Progress {
    schedule::Progress {
        batch: name.epoch * plan.batches() + name.step * plan.aggregation,
        epoch: name.epoch,
        step: name.epoch * plan.steps() + name.step,
    }
}
