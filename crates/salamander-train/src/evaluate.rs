//! A model on data that it does not learn from: each record once, weighted alike.

use std::ops::Range;
use std::sync::Arc;

use salamander_core::experiment::{Experiment, OnBadRecord};
use salamander_core::metrics::{Metric, Metrics, number};
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::Plan;
use salamander_data::Dataset;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::loader::{Job, Loaded, Loader, Options};
use crate::trial::{BatchOf, Trial};

/// How to go over the data.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// Records at a time.
    pub batch: u64,
    /// What a record that cannot be decoded does.
    pub on_bad_record: OnBadRecord,
    /// Whether labels must be there.
    pub labels: bool,
    /// Threads that read and decode.
    pub threads: usize,
}

impl Over {
    /// As an experiment goes over its data.
    pub fn new(experiment: &Experiment, labels: bool) -> Self {
        let data = &experiment.data;
        Self {
            batch: experiment.global_batch,
            on_bad_record: data.on_bad_record,
            labels,
            threads: data.threads(),
        }
    }
}

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss and the model's metrics.
    pub metrics: Metrics,
    /// Records evaluated.
    pub records: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
}

/// Batches that an evaluation takes.
pub fn batches(dataset: &Dataset, batch: u64) -> u64 {
    dataset.len().div_ceil(batch.max(1))
}

/// What a part of the data gave; parts add up to an [`Evaluation`], each record once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The sum of the losses.
    #[serde(with = "number")]
    pub loss: f64,
    /// The model's metrics.
    pub metrics: Metrics,
    /// Records evaluated.
    pub records: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
}

impl Part {
    /// Adds another part.
    pub fn merge(&mut self, other: &Part) {
        self.loss += other.loss;
        self.metrics.merge(&other.metrics);
        self.records += other.records;
        self.skipped += other.skipped;
    }

    /// The whole, when all parts are in.
    pub fn finish(self) -> Evaluation {
        let Self { loss, mut metrics, records, skipped } = self;
        metrics.merge(&Metrics::new().with("loss", Metric::mean(loss, records as f64)));
        Evaluation { metrics, records, skipped }
    }
}

/// Evaluates a model; `each` is called after every batch.
pub fn evaluate<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    each: &mut dyn FnMut(),
) -> Result<Evaluation, Error> {
    let all = 0..batches(dataset, over.batch);
    let mut go_on = || {
        each();
        Ok(())
    };
    Ok(evaluate_part(model, dataset, over, all, &mut go_on)?.finish())
}

/// Evaluates a model on some of the batches; `each` is called after every one and may end it.
pub fn evaluate_part<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    part: Range<u64>,
    each: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Part, Error> {
    let model = model.valid();
    let mut found = Part::default();
    for loaded in in_file_order(&model, dataset, over, part)? {
        let loaded = loaded?;
        found.records += loaded.tally.applied;
        found.skipped += loaded.tally.skipped;
        if let Some(batch) = &loaded.batch {
            let output = model.forward(batch);
            let loss = model.loss(&output, batch).into_data();
            found.loss += loss.iter::<f32>().map(f64::from).sum::<f64>();
            found.metrics.merge(&model.metrics(&output, batch));
        }
        each()?;
    }
    Ok(found)
}

/// Some batches of the records in the order of the files.
pub(crate) fn in_file_order<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    part: Range<u64>,
) -> Result<Loader<BatchOf<T>>, Error> {
    let records = dataset.len();
    let plan = Plan { records, batch: over.batch.max(1), aggregation: 1, slices: 1 };
    let order = Order::new(records, Shuffle::None, 0, 0);
    let jobs = part
        .flat_map(move |step| plan.micro_batches(0, step, 1))
        .map(move |slice| Job { slice, order });
    let device = model.devices().into_iter().next().unwrap_or_default().without_autodiff();
    let Over { on_bad_record, labels, threads, .. } = over;
    let options = Options { device, on_bad_record, labels, augment: None, threads };
    Loader::start::<T::Example>(Arc::clone(dataset), jobs, options)
}

/// Checks that a loaded batch's output has one row per record.
pub(crate) fn rows_fit<T: Trial, B>(loaded: &Loaded<B>, rows: usize) -> Result<(), Error> {
    match loaded.records.len() {
        records if records == rows => Ok(()),
        records => Err(Error::Model {
            model: T::NAME,
            reason: format!("forward gave {rows} rows for {records} records"),
        }),
    }
}
