//! A model is tried on one record before anything starts: what every worker would stumble over is told at once, and is
//! not retried as a crash. It takes place on the host, and draws nothing that training draws: parameters and each
//! micro-batch are seeded anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use salamander_core::course;
use salamander_core::experiment::{Experiment, OnBadRecord, Strategy};
use salamander_core::hparams;
use salamander_core::metrics::Metrics;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::{MicroBatch, Slice};
use salamander_core::report::EvaluationPart;
use salamander_data::{Dataset, Format, OpenOptions, files, open_indexed};

use crate::Error;
use crate::caught::attempt;
use crate::context::BatchContext;
use crate::example::{AssetFiles, Assets, Batch, Example, ExampleContext};
use crate::loader::{Job, Options, load};
use crate::model::{build_with_tables, seed};
use crate::params::{self, ParamInfo};
use crate::tables::{LocalRows, Opened, Tables};
use crate::trial::{BatchOf, Trial};

/// Records that are looked at where bad ones may be skipped.
const LOOK_AT: u64 = 32;

/// Tries a model on the first record; indexes of the files that were opened are kept in `folder`.
pub(crate) fn preflight<T: Trial>(
    experiment: &Experiment,
    files: &AssetFiles,
    folder: Option<&Path>,
) -> Result<(), Error> {
    let data = &experiment.data;
    if data.training.0.is_empty() {
        return Err(Error::Invalid("data.training: name the files to train on".to_string()));
    }
    let training = First::open("data.training", &data.training.0, experiment, folder)?;
    let validation = match data.validation.0.as_slice() {
        [] => None,
        paths => Some(First::open("data.validation", paths, experiment, folder)?),
    };
    let assets = Assets::load(T::Example::ASSETS, files.clone())?;
    let tried = Tried::<T>::build(experiment)?;
    tried.train(&training.batch::<T>(&assets, &Device::flex().autodiff())?)?;
    match validation {
        None => Ok(()),
        Some(validation) => {
            let found = tried.evaluate(&validation.batch::<T>(&assets, &Device::flex())?)?;
            has_metric(&found, experiment)
        }
    }
}

/// The first file of some data, which stands for all of it.
struct First {
    what: &'static str,
    dataset: Arc<Dataset>,
    on_bad_record: OnBadRecord,
}

impl First {
    fn open(
        what: &'static str,
        paths: &[String],
        experiment: &Experiment,
        folder: Option<&Path>,
    ) -> Result<Self, Error> {
        let data = &experiment.data;
        let format = data.format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        // All places must be there, but only the first file is opened: there may be thousands.
        let first: Vec<PathBuf> = files(&paths, format)?.into_iter().take(1).collect();
        let cache_folder = folder.map(Path::to_path_buf);
        let options = OpenOptions { cache_folder, ..OpenOptions::default() };
        let dataset = Arc::new(Dataset::new(Arc::from(open_indexed(&first, format, &options)?))?);
        Ok(Self { what, dataset, on_bad_record: data.on_bad_record })
    }

    /// A batch of the first record; of the first few where bad ones are skipped. Nothing where the file is empty.
    fn batch<T: Trial>(
        &self,
        assets: &Assets,
        device: &Device,
    ) -> Result<Option<BatchOf<T>>, Error> {
        let records = self.dataset.len();
        let reading = ExampleContext { labels: true, assets: assets.clone() };
        let read = |count: u64, on_bad_record| {
            let name = MicroBatch { epoch: 0, step: 0, k: 0 };
            let order = Order::new(records, Shuffle::None, 0, 0);
            let job = Job { slice: Slice { name, positions: 0..count.min(records) }, order };
            let (device, reading) = (device.clone(), reading.clone());
            let options = Options { device, on_bad_record, reading, augment: None, threads: 1 };
            attempt::<T, _>("decode", &[], || load::<T::Example>(&self.dataset, &job, &options))?
        };
        if records == 0 {
            return Ok(None);
        }
        let count = if self.on_bad_record == OnBadRecord::Skip { LOOK_AT } else { 1 };
        match read(count, self.on_bad_record)?.batch {
            Some(batch) => Ok(Some(batch)),
            None => {
                let reason = read(1, OnBadRecord::Fail).err().map(|error| error.to_string());
                let (what, reason) = (self.what, reason.unwrap_or_default());
                Err(Error::Invalid(format!(
                    "{what}: none of the first {} records can be decoded: {reason}",
                    count.min(records)
                )))
            }
        }
    }
}

/// A model with fresh parameters, and rows of this process where it has tables.
struct Tried<'a, T: Trial> {
    experiment: &'a Experiment,
    model: T,
    tables: Tables,
    layers: Vec<ParamInfo>,
}

impl<'a, T: Trial> Tried<'a, T> {
    fn build(experiment: &'a Experiment) -> Result<Self, Error> {
        let device = Device::flex().autodiff();
        let built = attempt::<T, _>("build", &[], || build_with_tables::<T>(experiment, &device))?;
        let (model, tables) = built?;
        if !tables.is_empty() {
            if experiment.strategy == Strategy::Allreduce {
                let reason = "it has tables, whose rows several workers share on parameter servers: \
                              add --strategy hybrid --ps 1, or train in one process";
                return Err(Error::model::<T>(reason));
            }
            let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
            let rows = LocalRows::new(seed(experiment))?;
            let optimizer = T::optimizer(&hp).into();
            tables.with_optimizer(optimizer).open(Opened::Staged(Box::new(rows)))?;
        }
        let layers = params::list(&model);
        Ok(Self { experiment, model, tables, layers })
    }

    /// Each pass of a step, without the way back.
    fn train(&self, batch: &Option<BatchOf<T>>) -> Result<(), Error> {
        let Some(batch) = batch else { return Ok(()) };
        let hp = hparams::read::<T::Hparams>(&self.experiment.hyperparameters)?;
        let passes = T::passes(&hp);
        if let [_] = passes.as_slice() {
            let output = self.attempt("forward", || self.model.forward(batch))?;
            let loss = self.attempt("loss", || self.model.loss(&output, batch))?;
            self.check_loss(loss.dims()[0], batch)?;
        }
        let cx = BatchContext {
            name: MicroBatch { epoch: 0, step: 0, k: 0 },
            device: Device::flex().autodiff(),
            seed: seed(self.experiment),
        };
        for pass in &passes {
            let phase = match passes.len() {
                // Forward and loss were tried above.
                1 => "metrics".to_string(),
                _ => format!("pass {}", pass.name),
            };
            let found = self.attempt(&phase, || self.model.train_batch(pass, batch, &cx))?;
            self.check_loss(found.loss.dims()[0], batch)?;
        }
        self.tables.check()
    }

    /// What validation reports.
    fn evaluate(&self, batch: &Option<BatchOf<T>>) -> Result<Metrics, Error> {
        let Some(batch) = batch else { return Ok(Metrics::new()) };
        let model = self.model.valid();
        let output = self.attempt("forward in validation", || model.forward(batch))?;
        let loss = self.attempt("loss in validation", || model.loss(&output, batch))?;
        self.check_loss(loss.dims()[0], batch)?;
        let metrics = self.attempt("metrics in validation", || model.metrics(&output, batch))?;
        self.tables.check()?;
        let records = batch.records() as u64;
        let part = EvaluationPart { records, metrics, ..EvaluationPart::default() };
        Ok(part.finish().metrics)
    }

    fn attempt<R>(&self, phase: &str, work: impl FnOnce() -> R) -> Result<R, Error> {
        attempt::<T, R>(phase, &self.layers, work)
    }

    fn check_loss(&self, values: usize, batch: &BatchOf<T>) -> Result<(), Error> {
        let records = batch.records();
        match values == records {
            true => Ok(()),
            false => Err(Error::model::<T>(format!(
                "the loss has {values} values for {records} records: return one value per record"
            ))),
        }
    }
}

/// Whether validation reports what the experiment watches.
fn has_metric(found: &Metrics, experiment: &Experiment) -> Result<(), Error> {
    let (values, name) = (found.values(), experiment.metric());
    if found.is_empty() || values.contains_key(name) {
        return Ok(());
    }
    let known: Vec<&str> = values.keys().map(String::as_str).collect();
    Err(course::Error::NoMetric { name: name.to_string(), known: known.join(", ") }.into())
}
