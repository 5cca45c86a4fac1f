//! A model on data that it does not learn from: each record once, weighted alike.

use std::sync::Arc;

use salamander_core::experiment::{Experiment, OnBadRecord};
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::Plan;
use salamander_data::Dataset;

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

/// Evaluates a model; `each` is called after every batch.
pub fn evaluate<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
    each: &mut dyn FnMut(),
) -> Result<Evaluation, Error> {
    let model = model.valid();
    let mut found = Evaluation { metrics: Metrics::new(), records: 0, skipped: 0 };
    let mut total = 0.0;
    for loaded in in_file_order(&model, dataset, over)? {
        let loaded = loaded?;
        found.records += loaded.tally.applied;
        found.skipped += loaded.tally.skipped;
        if let Some(batch) = &loaded.batch {
            let output = model.forward(batch);
            let loss = model.loss(&output, batch).into_data();
            total += loss.iter::<f32>().map(f64::from).sum::<f64>();
            found.metrics.merge(&model.metrics(&output, batch));
        }
        each();
    }
    let loss = Metric::mean(total, found.records as f64);
    found.metrics.merge(&Metrics::new().with("loss", loss));
    Ok(found)
}

/// All records in the order of the files.
pub(crate) fn in_file_order<T: Trial>(
    model: &T,
    dataset: &Arc<Dataset>,
    over: Over,
) -> Result<Loader<BatchOf<T>>, Error> {
    let records = dataset.len();
    let plan = Plan { records, batch: over.batch.max(1), aggregation: 1, slices: 1 };
    let order = Order::new(records, Shuffle::None, 0, 0);
    let jobs = (0..plan.steps())
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
