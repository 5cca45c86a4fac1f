//! Models by name: what the command line does with a model without knowing its type.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::*;
//! # #[derive(Example)]
//! # struct Point { #[input(columns = ["x", "y"])] at: [f32; 2], #[label] side: u8 }
//! # #[derive(Module, Debug)]
//! # struct Net { out: Linear }
//! # impl Trial for Net {
//! #     const NAME: &str = "net";
//! #     type Hparams = ();
//! #     type Example = Point;
//! #     type Output = Tensor<2>;
//! #     fn build(cx: &Context<()>) -> Result<Self, BuildError> {
//! #         Ok(Self { out: LinearConfig::new(2, 2).init(&cx.device) })
//! #     }
//! #     fn forward(&self, batch: &PointBatch) -> Tensor<2> { self.out.forward(batch.at.clone()) }
//! #     fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
//! #         cross_entropy(output, &batch.side)
//! #     }
//! #     fn optimizer(_: &()) -> impl Into<Optimizer> { Optimizer::sgd(1.0) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("points.csv");
//! # std::fs::write(&file, "x,y,side\n0.9,0.1,0\n0.1,0.8,1\n0.8,0.3,0\n0.2,0.7,1\n")?;
//! # let device = device::select("cpu")?.autodiff();
//! # let points = open_data("points", &[file.display().to_string()], &Data::default())?;
//!
//! let models = models![Net];
//! let text = format!(
//!     "data: {{training: {}}}\n\
//!      hyperparameters: {{global_batch_size: 2}}\n\
//!      searcher: {{max_length: {{epochs: 9}}}}\n",
//!     file.display(),
//! );
//! let setup = Setup {
//!     experiment: Experiment::parse(&text, &[])?,
//!     folder: folder.path().join("run"),
//!     device: device::select("cpu")?,
//!     stop: Default::default(),
//!     kept_data: Default::default(),
//! };
//! let outcome = models.find(Some("net"))?.train(setup, None, Vec::new())?;
//! assert_eq!(outcome.progress.steps.0, 18);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod loaded;
mod trained;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use burn::tensor::Device;
use salamander_core::asynchronous::Lineage;
use salamander_core::course::LeasePlan;
use salamander_core::experiment::{Experiment, MixedPrecision};
use salamander_core::hparams::{self, HparamInfo, Hparams, InvalidHparams};
use salamander_core::progress::StepCount;
use salamander_core::words::program_name;
use salamander_core::yaml::nearest;
use salamander_data::Dataset;
use serde_json::Value;

use crate::asynchronous;
use crate::callback::Callback;
use crate::checkpoint::Checkpoint;
use crate::context::Context;
use crate::evaluate::{AfterBatch, BatchRange, EvaluationPart};
use crate::example::{
    AssetFiles, AssetSpec, Assets, Example, MAX_TOKENS, absent_inputs, files_said,
};
use crate::exchange::Alone;
use crate::inference::{Answers, Examples, NotAnswered, RecordDecoder};
use crate::predict::TakePredictions;
use crate::profile::Profiler;
use crate::tables::{FileRows, LocalRows, Opened, RowSource, Tables};
use crate::trainer::{Outcome, Setup, Trainer};
use crate::trial::{BuildError, DataPaths, Trial};
use crate::worker::{Membership, WorkerConnection};
use crate::{Error, params, preflight, weights};
use loaded::{LoadedModel, rows_beside};

pub use trained::{Trained, Weights};

/// A model without its type.
pub trait Model: Send + Sync {
    /// The name that experiment files use.
    fn name(&self) -> &'static str;
    /// Whether an experiment's entrypoint means this model.
    fn is_called(&self, name: &str) -> bool;
    /// Its hyperparameters.
    fn hparams(&self) -> Vec<HparamInfo>;
    /// The files that its examples are read with.
    fn assets(&self) -> &'static [AssetSpec];
    /// Names of its classes, which may be in the files.
    fn class_names(&self, files: &AssetFiles) -> Result<Vec<String>, Error>;
    /// Names of the classes of a label that is text, which predictions are written with.
    fn label_names(&self, files: &AssetFiles) -> Result<Vec<String>, Error>;
    /// Makes an experiment independent of the folder of its file where hyperparameters are paths, and gives it the data
    /// that they name.
    fn settle(&self, experiment: &mut Experiment, folder: &Path) -> Result<(), Error>;
    /// The folder in which its files are looked for first.
    fn folder(&self, experiment: &Experiment) -> Result<Option<PathBuf>, Error>;
    /// Files of the example that hyperparameters stand for, by their names.
    fn files_said(&self, experiment: &Experiment)
    -> Result<BTreeMap<&'static str, Vec<u8>>, Error>;
    /// The hyperparameters with which a folder of another program can be used as it is; see [`Trial::adopts`].
    fn adopts(&self, folder: &Path) -> Option<Value>;
    /// The layouts of other programs that it can be exported in.
    fn exports(&self) -> &'static [&'static str];
    /// The hyperparameters in force for an experiment, with which the model can be built.
    fn hparams_in_force(&self, experiment: &Experiment) -> Result<Value, Error>;
    /// Tries it on two records, on the host: decoding, building, forward, loss and metrics. What is wrong is told
    /// before a run is made. Indexes of data files are kept in `folder`. Returns warnings.
    fn preflight(
        &self,
        experiment: &Experiment,
        files: &AssetFiles,
        folder: Option<&Path>,
    ) -> Result<Vec<String>, Error>;
    /// Warnings about data that it is to be used on: columns that may be missing and that no record has.
    ///
    /// # Errors
    /// If a file has none of its inputs.
    fn check_columns(&self, dataset: &Dataset) -> Result<Vec<String>, Error>;
    /// Whether a step is left after a checkpoint. For that it is loaded, on the host, into what the setup makes: what
    /// of it does not fit is the error, and nothing is changed but the indexes of data files.
    fn has_steps_after(&self, checkpoint: Checkpoint, setup: Setup) -> Result<bool, Error>;
    /// Trains it.
    fn train(
        &self,
        setup: Setup,
        resume: Option<Checkpoint>,
        callbacks: Vec<Box<dyn Callback>>,
    ) -> Result<Outcome, Error>;
    /// Trains it together with other workers, as a member of a distributed run.
    fn take_part(&self, setup: Setup, membership: Membership) -> Result<Outcome, Error>;
    /// Computes micro-batches of asynchronous training, as the master leases them, to the end of the run.
    fn train_asynchronously(&self, setup: Setup, connection: WorkerConnection)
    -> Result<(), Error>;
    /// What the master of asynchronous training leads by.
    fn lease_plan(&self, setup: Setup) -> Result<LeasePlan, Error>;
    /// Loads trained weights, to be used as often as wanted.
    fn load(&self, trained: Trained<'_>) -> Result<Box<dyn Instance>, Error>;
}

/// A model with trained weights, without its type.
pub trait Instance: Send {
    /// Evaluates some of the batches; `each` is called after every one and may end it.
    fn evaluate(
        &self,
        part: BatchRange<'_>,
        each: &mut AfterBatch<'_>,
    ) -> Result<EvaluationPart, Error>;
    /// Predicts the records of some of the batches; returns how many were skipped.
    fn predict(&self, part: BatchRange<'_>, each: &mut TakePredictions<'_>) -> Result<u64, Error>;
    /// Names of the classes of a label that is text, which predictions are written with.
    fn label_names(&self) -> Vec<String>;
    /// Names of its classes, which may be in its files.
    fn class_names(&self) -> Vec<String>;
    /// What decodes records to be asked about, on any thread.
    fn decoder(&self) -> Arc<dyn RecordDecoder>;
    /// What the model says to examples of its decoder, at most so many of them at once.
    fn infer(&self, examples: Vec<Examples>, most: usize) -> Result<Answers, Box<NotAnswered>>;
    /// Counts look-ups of ids that the tables do not have, where rows are read from a checkpoint.
    fn unknown_ids(&self) -> Option<Arc<AtomicU64>>;
    /// Writes the weights under their module paths, and beside them what else is needed to use them.
    fn export(&self, path: &Path) -> Result<(), Error>;
    /// Writes it into a folder in one of the [layouts](Model::exports) that it has besides.
    fn export_as(&self, format: &str, folder: &Path) -> Result<(), Error>;
}

struct ModelEntry<T>(PhantomData<fn() -> T>);

/// A model's entry; `models![..]` makes these.
pub fn entry<T: Trial>() -> Box<dyn Model> {
    Box::new(ModelEntry::<T>(PhantomData))
}

impl<T: Trial> Model for ModelEntry<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn is_called(&self, name: &str) -> bool {
        // Without the examples of one that is for several.
        let type_name = std::any::type_name::<T>().split('<').next().unwrap_or_default();
        T::NAME == name || type_name.rsplit("::").next() == Some(name)
    }

    fn hparams(&self) -> Vec<HparamInfo> {
        T::Hparams::describe()
    }

    fn assets(&self) -> &'static [AssetSpec] {
        T::Example::ASSETS
    }

    fn class_names(&self, files: &AssetFiles) -> Result<Vec<String>, Error> {
        let said = T::class_names();
        if !said.is_empty() {
            return Ok(said);
        }
        self.label_names(files)
    }

    fn label_names(&self, files: &AssetFiles) -> Result<Vec<String>, Error> {
        Ok(T::Example::class_names(&Assets::load(T::Example::ASSETS, files.clone())?))
    }

    fn settle(&self, experiment: &mut Experiment, folder: &Path) -> Result<(), Error> {
        settle::<T>(experiment, folder)
    }

    fn folder(&self, experiment: &Experiment) -> Result<Option<PathBuf>, Error> {
        Ok(T::folder(&hparams::read::<T::Hparams>(&experiment.hyperparameters)?))
    }

    fn files_said(
        &self,
        experiment: &Experiment,
    ) -> Result<BTreeMap<&'static str, Vec<u8>>, Error> {
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        let said = T::max_tokens(&hp);
        if said.is_some() && T::Example::ASSETS.iter().all(|spec| spec.file != MAX_TOKENS) {
            let reason =
                format!("model {}: its example has no {MAX_TOKENS} in optional_files", T::NAME);
            return Err(Error::Invalid(reason));
        }
        Ok(files_said(said))
    }

    fn adopts(&self, folder: &Path) -> Option<Value> {
        T::adopts(folder)
    }

    fn exports(&self) -> &'static [&'static str] {
        T::EXPORTS
    }

    fn hparams_in_force(&self, experiment: &Experiment) -> Result<Value, Error> {
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        let in_force = hp.to_json();
        // Who is built from files is built where they are known. Burn draws parameters when they are first looked at,
        // which nobody does here.
        if T::Example::ASSETS.iter().all(AssetSpec::is_fitted) {
            let device = Device::flex().autodiff();
            built::<T>(&context(hp, experiment, &device, Assets::default()))?;
        }
        Ok(in_force)
    }

    fn preflight(
        &self,
        experiment: &Experiment,
        files: &AssetFiles,
        folder: Option<&Path>,
    ) -> Result<Vec<String>, Error> {
        preflight::preflight::<T>(experiment, files, folder)
    }

    fn check_columns(&self, dataset: &Dataset) -> Result<Vec<String>, Error> {
        absent_inputs(T::Example::INPUTS, dataset)
    }

    fn has_steps_after(&self, checkpoint: Checkpoint, setup: Setup) -> Result<bool, Error> {
        let mut setup = Setup { device: Device::flex(), ..setup };
        // Shapes do not depend on it, and the host may not have the types of the device that trains.
        setup.experiment.settings_mut().optimizations.mixed_precision = MixedPrecision::O0;
        let alone = Alone::new(Arc::clone(&setup.stop));
        let mut trainer = Trainer::<T>::new(setup, Box::new(alone), Vec::new())?;
        trainer.resume(checkpoint)?;
        Ok(trainer.has_steps())
    }

    fn train(
        &self,
        setup: Setup,
        resume: Option<Checkpoint>,
        callbacks: Vec<Box<dyn Callback>>,
    ) -> Result<Outcome, Error> {
        let (alone, folder) = (Alone::new(Arc::clone(&setup.stop)), setup.folder.clone());
        let mut trainer = Trainer::<T>::new(setup, Box::new(alone), callbacks)?;
        if let Some(checkpoint) = resume {
            trainer.resume(checkpoint)?;
        }
        let _profiler = Profiler::start(&folder, "trainer", Arc::clone(&trainer.work));
        trainer.run()
    }

    fn take_part(&self, setup: Setup, membership: Membership) -> Result<Outcome, Error> {
        let Membership { exchange, callbacks, process, .. } = membership;
        let folder = setup.folder.clone();
        let trainer = Trainer::<T>::new(setup, exchange, callbacks)?;
        let _profiler = Profiler::start(&folder, &process, Arc::clone(&trainer.work));
        trainer.run()
    }

    fn train_asynchronously(
        &self,
        setup: Setup,
        connection: WorkerConnection,
    ) -> Result<(), Error> {
        asynchronous::work::<T>(setup, connection)
    }

    fn lease_plan(&self, setup: Setup) -> Result<LeasePlan, Error> {
        asynchronous::lease_plan::<T>(setup)
    }

    fn load(&self, trained: Trained<'_>) -> Result<Box<dyn Instance>, Error> {
        let device = trained.device.clone().autodiff();
        let assets = trained.assets(T::Example::ASSETS)?;
        let assets = Assets::load(T::Example::ASSETS, assets)?;
        let hp = hparams::read::<T::Hparams>(&trained.experiment.hyperparameters)?;
        let cx = context(hp, trained.experiment, &device, assets);
        // Its parameters are not drawn: what was learned takes their place.
        let model = built::<T>(&cx)?;
        let tables = cx.tables.clone();
        let (model, files) = match trained.weights {
            Weights::Checkpoint(checkpoint) => {
                let model = match &checkpoint.weights {
                    Some(weights) => params::fill(model, weights),
                    None => params::write(model, checkpoint.state.model.clone()),
                };
                let model = model.map_err(|reason| Error::checkpoint(&checkpoint.path, reason))?;
                (model, checkpoint.table_files())
            }
            Weights::File(path) => (weights::start(model, path)?, Vec::new()),
            Weights::Foreign(folder) => {
                let wrong =
                    |error: BuildError| Error::model::<T>(format!("{}: {error}", folder.display()));
                (model.pretrained(&cx).map_err(wrong)?, Vec::new())
            }
        };
        let mut unknown = None;
        if !tables.is_empty() {
            let hp = hparams::read::<T::Hparams>(&trained.experiment.hyperparameters)?;
            tables.with_optimizer(T::optimizer(&hp).into());
        }
        if let (false, Some(most), false) =
            (tables.is_empty(), trained.table_memory, files.is_empty())
        {
            let rows = FileRows::open(&files, seed(trained.experiment), most)?;
            unknown = Some(rows.unknown());
            tables.open(Opened::Source(Box::new(rows)))?;
        } else if !tables.is_empty() {
            let mut rows = LocalRows::new(seed(trained.experiment))?;
            if let Weights::File(path) = trained.weights {
                let specs = tables.specs();
                rows.declare(&specs)?;
                rows.import(&rows_beside(path), &specs)?;
            }
            tables.open(Opened::Staged(Box::new(rows)))?;
            if !files.is_empty() {
                tables.with_store(|rows| rows.restore(&files, StepCount(0), Lineage::default()))?;
            }
        }
        Ok(Box::new(LoadedModel { model, asked: OnceCell::new(), tables, unknown, files, cx }))
    }
}

/// See [`Model::settle`].
fn settle<T: Trial>(experiment: &mut Experiment, folder: &Path) -> Result<(), Error> {
    for info in T::Hparams::describe().iter().filter(|info| info.kind.contains("Path")) {
        let node = experiment.hyperparameters.get(info.name);
        let Some(Value::String(path)) = node.map(|node| node.to_json()) else { continue };
        if path.contains("://") {
            continue;
        }
        let absolute = Value::from(folder.join(path).to_string_lossy());
        experiment.hyperparameters.set(&format!("{}={absolute}", info.name))?;
    }
    if experiment.data.training.0.is_empty() {
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        if let Some(DataPaths { training, validation }) = T::data(&hp) {
            let text = |paths: Vec<PathBuf>| {
                paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
            };
            let data = &mut experiment.settings_mut().data;
            data.training.0 = text(training);
            if data.validation.0.is_empty() {
                data.validation.0 = text(validation);
            }
        }
    }
    Ok(())
}

/// Builds a model with fresh parameters that depend only on the experiment's seed, for a loop of one's own. A model
/// with [tables](crate::table) has rows besides its parameters, which only the trainer moves.
pub fn build<T: Trial>(experiment: &Experiment, device: &Device) -> Result<T, Error> {
    let assets = Assets::in_current_folder(T::Example::ASSETS)?;
    let (model, cx) = build_in_context::<T>(experiment, device, assets)?;
    match cx.tables.is_empty() {
        true => Ok(model),
        false => Err(Error::model::<T>("it has tables, whose rows only the trainer moves")),
    }
}

/// Builds a model with fresh parameters. The tables that it declares are in the context, and are not open yet.
pub(crate) fn build_in_context<T: Trial>(
    experiment: &Experiment,
    device: &Device,
    assets: Assets,
) -> Result<(T, Context<T::Hparams>), Error> {
    let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
    let cx = context(hp, experiment, device, assets);
    device.seed(cx.seed);
    let model = built::<T>(&cx)?;
    // Burn initialises parameters when they are first looked at; look at all of them now.
    let listed = params::list(&model);
    if cx.tables.is_empty() && !listed.iter().any(|param| param.trainable) {
        return Err(Error::model::<T>("it has no trainable parameters"));
    }
    Ok((model.train(), cx))
}

/// A model that was just built, with the weights that its training begins with.
pub(crate) fn with_pretrained<T: Trial>(model: T, cx: &Context<T::Hparams>) -> Result<T, Error> {
    let model = T::pretrained(model, cx).map_err(|error| Error::model::<T>(error.to_string()))?;
    Ok(model.train())
}

fn context<H>(hp: H, experiment: &Experiment, device: &Device, assets: Assets) -> Context<H> {
    let (device, seed) = (device.clone(), seed(experiment));
    Context { hp, device, seed, assets, tables: Tables::default() }
}

fn built<T: Trial>(cx: &Context<T::Hparams>) -> Result<T, Error> {
    T::build(cx).map_err(|error| match error.downcast::<InvalidHparams>() {
        Ok(cause) => Error::InvalidHparams { model: T::NAME, cause: *cause },
        Err(error) => Error::model::<T>(format!("it cannot be built: {error}")),
    })
}

/// The seed that everything random of a run follows from.
pub(crate) fn seed(experiment: &Experiment) -> u64 {
    u64::from(experiment.reproducibility.experiment_seed.unwrap_or_default())
}

/// The models of a program.
pub struct Models(Vec<Box<dyn Model>>);

impl Models {
    /// From entries.
    pub fn new(entries: Vec<Box<dyn Model>>) -> Self {
        Self(entries)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Model> {
        self.0.iter().map(|entry| entry.as_ref())
    }

    /// The model that an experiment's entrypoint names; the only one when it names none.
    pub fn find(&self, name: Option<&str>) -> Result<&dyn Model, Error> {
        let names: Vec<&str> = self.iter().map(Model::name).collect();
        let known = names.join(", ");
        match (name, self.0.as_slice()) {
            (None, [only]) => Ok(only.as_ref()),
            (None, _) => Err(Error::Invalid(format!(
                "the experiment names no model: add `entrypoint: NAME` (known: {known})"
            ))),
            (Some(name), _) => self.iter().find(|model| model.is_called(name)).ok_or_else(|| {
                let hint = hint(name, &names, &program_name());
                Error::Invalid(format!("entrypoint: there is no model \"{name}\" here ({hint})"))
            }),
        }
    }
}

/// What may have been meant by a name that no model of this program has.
fn hint(name: &str, names: &[&str], program: &str) -> String {
    let known = names.join(", ");
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        // The zoo's program was asked for a model that is in another one.
        None if names.len() > 1 && program == "salamander" => {
            let own = "a model of your own is in its crate's program: `cargo run --release -- ..`";
            format!("known: {known}; {own}")
        }
        None => format!("known: {known}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_not_here_may_be_in_a_program_of_ones_own() {
        let told = hint("tabular", &["iris", "heart"], "salamander");
        assert!(
            told.starts_with("known: iris, heart; a model of your own is in its crate"),
            "{told}"
        );
        assert_eq!(hint("tabular", &["iris", "heart"], "target/release/x"), "known: iris, heart");
        assert_eq!(hint("tabular", &["iris"], "salamander"), "known: iris");
        assert_eq!(hint("irs", &["iris", "heart"], "salamander"), "did you mean \"iris\"?");
    }
}
