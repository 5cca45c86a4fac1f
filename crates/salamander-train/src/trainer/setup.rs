//! From an experiment to a trainer: every check that can be made is made before the first step.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::tensor::{Device, FloatDType};
use salamander_core::experiment::{Data, Experiment, MixedPrecision};
use salamander_core::hparams::{self, Hparams};
use salamander_core::loss_scale::Scaler;
use salamander_core::plan::Plan;
use salamander_data::{Dataset, Format, OpenOptions, open_indexed};

use super::held::Held;
use super::{Timings, Trainer};
use crate::callback::Callback;
use crate::exchange::{Exchange, Place};
use crate::model::{build_with_tables, seed};
use crate::optimize::OptimizerState;
use crate::progress::{After, Extent, Progress, StepEnd};
use crate::step::Arithmetic;
use crate::tables::Tables;
use crate::trial::Trial;
use crate::{Error, device, weights};

/// What a training is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The experiment, its paths absolute and its seed chosen.
    pub experiment: Experiment,
    /// The run's folder.
    pub folder: PathBuf,
    /// Where to compute.
    pub device: Device,
    /// Set from outside to end training after the current step.
    pub stop: Arc<AtomicBool>,
}

impl Setup {
    /// A model and a progress that nothing was trained in.
    pub(crate) fn fresh<T: Trial>(&self) -> Result<(T, Tables, Progress), Error> {
        let (mut model, tables) =
            build_with_tables::<T>(&self.experiment, &self.device.clone().autodiff())?;
        if let Some(path) = &self.experiment.start_from {
            model = weights::load(model, path)?;
        }
        let validates = !self.experiment.data.validation.0.is_empty();
        let initial = self.experiment.perform_initial_validation && validates;
        let end = StepEnd { initial: true, ..StepEnd::default() };
        let after = initial.then_some(After::Validate(end));
        let scaler = self.experiment.optimizations.scaling().as_ref().map(Scaler::new);
        Ok((model, tables, Progress { after, scaler, ..Progress::default() }))
    }

    /// The folder of the run's checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }
}

/// Opens the files of an experiment's data; `what` names them in messages.
pub fn open_data(what: &str, paths: &[String], data: &Data) -> Result<Arc<Dataset>, Error> {
    open_with(what, paths, data, &OpenOptions::default())
}

/// Opens all data of an experiment. The indexes are kept in the run's folder, so that a resumed run and every
/// worker of a distributed one start at once; the callbacks are told how far it is.
pub fn open_all(
    experiment: &Experiment,
    folder: &Path,
    callbacks: &mut Vec<Box<dyn Callback>>,
) -> Result<(Arc<Dataset>, Option<Arc<Dataset>>), Error> {
    let data = &experiment.data;
    if data.training.0.is_empty() {
        return Err(Error::Invalid("data.training: name the files to train on".to_string()));
    }
    let told = Mutex::new(callbacks);
    let progress = |files: usize, of: usize| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter_mut().for_each(|callback| callback.indexing(files as u64, of as u64));
    };
    let cache_folder = Some(folder.to_path_buf());
    let options = OpenOptions { cache_folder, progress: Some(&progress), ..OpenOptions::default() };
    let training = open_with("data.training", &data.training.0, data, &options)?;
    let validation = match data.validation.0.as_slice() {
        [] => None,
        paths => Some(open_with("data.validation", paths, data, &options)?),
    };
    Ok((training, validation))
}

fn open_with(
    what: &str,
    paths: &[String],
    data: &Data,
    options: &OpenOptions<'_>,
) -> Result<Arc<Dataset>, Error> {
    let format = data.format.as_deref().map(str::parse::<Format>).transpose();
    let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let dataset = Dataset::new(Arc::from(open_indexed(&paths, format, options)?))?;
    if dataset.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Invalid(format!("{what}: no records in {}", names.join(", "))));
    }
    Ok(Arc::new(dataset))
}

impl<T: Trial> Trainer<T> {
    /// Checks the experiment, opens the data and builds the model.
    pub fn new(
        setup: Setup,
        mut exchange: Box<dyn Exchange>,
        mut callbacks: Vec<Box<dyn Callback>>,
    ) -> Result<Self, Error> {
        let experiment = &setup.experiment;
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        let precision = precision(experiment, &setup.device)?;
        let (training, validation) = open_all(experiment, &setup.folder, &mut callbacks)?;
        let plan = Plan {
            records: training.len(),
            batch: experiment.global_batch,
            aggregation: experiment.optimizations.aggregation_frequency,
            slices: experiment.slices(),
        };
        let passes = T::passes(&hp);
        for pass in &passes {
            let wrong = |reason| Error::Model { model: T::NAME, reason };
            pass.optimizer.validate().map_err(wrong)?;
        }
        let (model, tables, progress) = setup.fresh::<T>()?;
        if !tables.is_empty() {
            if passes.len() > 1 {
                let reason = "tables move in one pass, and it has several".to_string();
                return Err(Error::Model { model: T::NAME, reason });
            }
            let rows = exchange.rows(seed(experiment))?;
            tables.with_optimizer(passes[0].optimizer).open(rows)?;
            tables.compute_in(precision);
        }
        let seed = seed(experiment);
        let mut all = T::callbacks(&hp);
        all.extend(callbacks);
        Ok(Self {
            model: Held::new(model),
            optimizers: passes.iter().map(OptimizerState::new).collect(),
            passes,
            tables,
            lineage: 0,
            schedule: experiment.schedule.unwrap_or_else(|| T::schedule(&hp)),
            clip: experiment.clip.or_else(|| T::clip(&hp)),
            arithmetic: Arithmetic { seed, precision, loss_scale: None, on_nan: experiment.on_nan },
            extent: Extent::new(experiment.length(), &plan),
            plan,
            training,
            validation,
            progress,
            callbacks: all,
            store: None,
            saved: None,
            exchange,
            place: Place::ALONE,
            hyperparameters: hp.to_json(),
            timings: Timings::default(),
            epoch_started: Instant::now(),
            mover: device::model(&setup.device),
            setup,
        })
    }
}

pub(crate) fn precision(
    experiment: &Experiment,
    device: &Device,
) -> Result<Option<FloatDType>, Error> {
    let (dtype, name) = match experiment.optimizations.mixed_precision {
        MixedPrecision::O0 | MixedPrecision::F32 => return Ok(None),
        MixedPrecision::O1 | MixedPrecision::O2 | MixedPrecision::Bf16 => {
            (FloatDType::BF16, "bf16")
        }
        MixedPrecision::F16 => (FloatDType::F16, "f16"),
    };
    // Asked first: on some devices an unsupported type panics a driver thread and reads as zeros.
    if !device.supports_dtype(dtype) {
        let message = format!(
            "optimizations.mixed_precision: this device cannot compute in {name}; write f32 \
             (`salamander devices` shows the types of each device)"
        );
        return Err(Error::Invalid(message));
    }
    Ok(Some(dtype))
}
