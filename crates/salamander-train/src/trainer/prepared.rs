//! An experiment that is ready to be trained: checked, its data open. The same in every process of a run, whatever the
//! strategy.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType};
use salamander_core::callback::Callbacks;
use salamander_core::course::{Course, DataSizes, UNCOUNTED};
use salamander_core::experiment::{Clip, Experiment, MixedPrecision};
use salamander_core::hparams::{self, Hparams};
use salamander_core::order::Order;
use salamander_core::plan::Slice;
use salamander_core::seed::derive;
use salamander_data::Dataset;

use super::setup::OpenedData;
use super::{Setup, StreamedData};
use crate::Error;
use crate::arithmetic::number;
use crate::callback::Callback;
use crate::example::{Assets, ExampleContext};
use crate::exchange::TrainedOn;
use crate::loader::{LoadJob, Loader, LoaderOptions};
use crate::step::Arithmetic;
use crate::tables::{Opened, Tables};
use crate::trial::{BatchOf, Pass, Trial};

/// What follows from an experiment and a model.
pub(crate) struct Prepared {
    pub(crate) setup: Setup,
    pub(crate) passes: Vec<Pass>,
    pub(crate) clip: Option<Clip>,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) training: Arc<Dataset>,
    /// Where `training` is still being written.
    pub(crate) streamed: Option<StreamedData>,
    pub(crate) validation: Option<Arc<Dataset>>,
    /// What records are read with.
    pub(crate) assets: Assets,
    /// The configuration in force, as text.
    pub(crate) experiment_text: String,
    /// What of it decides about the result, as text.
    deciding: String,
}

impl Prepared {
    /// Checks the experiment and opens the data. The model's callbacks come before the others.
    pub(crate) fn new<T: Trial>(
        setup: Setup,
        mut callbacks: Vec<Box<dyn Callback>>,
    ) -> Result<(Self, Course, Callbacks), Error> {
        let experiment = &setup.experiment;
        let hp = hparams::read::<T::Hparams>(&experiment.hyperparameters)?;
        let assets = setup.assets::<T>()?;
        let precision = precision(experiment, &setup.device)?;
        let OpenedData { training, streamed, validation } = OpenedData::of(&setup, &mut callbacks)?;
        let records = validation.as_ref().map_or(0, |dataset| dataset.len());
        // Not even where all of it is there by now: the others may have come earlier.
        let counted = if streamed.is_some() { UNCOUNTED } else { training.len() };
        let sizes = DataSizes { training: counted, validation: records };
        let course = Course::new(experiment, T::schedule(&hp), sizes)?;
        let passes = T::passes(&hp);
        for pass in &passes {
            pass.optimizer.validate().map_err(Error::model::<T>)?;
        }
        let (seed, on_nan) = (course.seed(), experiment.on_nan);
        let mut all = T::callbacks(&hp);
        all.extend(callbacks);
        let prepared = Self {
            passes,
            clip: experiment.clip.or_else(|| T::clip(&hp)),
            arithmetic: Arithmetic { seed, precision, loss_scale: None, on_nan },
            training,
            streamed,
            validation,
            assets,
            experiment_text: experiment.to_yaml(&hp.to_json()),
            deciding: experiment.deciding(&hp.to_json()).to_string(),
            setup,
        };
        Ok((prepared, course, Callbacks::new(all)))
    }

    /// Loads micro-batches to train on, in this order.
    pub(crate) fn loader<T: Trial>(
        &self,
        slices: impl Iterator<Item = Slice> + Send + 'static,
    ) -> Result<Loader<BatchOf<T>>, Error> {
        let data = &self.setup.experiment.data;
        let (seed, shuffle, records) = (self.arithmetic.seed, data.shuffle, self.training.len());
        let jobs = slices.map(move |slice| {
            let order = Order::new(records, shuffle, seed, slice.name.epoch);
            LoadJob { slice, order }
        });
        let options = LoaderOptions {
            device: self.setup.device.clone().autodiff(),
            on_bad_record: data.on_bad_record,
            reading: ExampleContext { labels: true, assets: self.assets.clone() },
            augment: Some(seed),
            threads: data.threads(),
        };
        Loader::start::<T::Example>(Arc::clone(&self.training), jobs, options)
    }

    /// What all processes of a run must agree on.
    pub(crate) fn trained_on(&self, course: &Course) -> TrainedOn {
        let optimizer = format!("{:?} {:?} {:?}", self.passes, self.clip, course.schedule());
        let training = match &self.streamed {
            Some(streamed) => streamed.identity(),
            None => self.training.identity(),
        };
        let validation = self.validation.as_ref().map_or(0, |dataset| dataset.identity());
        TrainedOn {
            records: course.plan().records,
            fingerprint: self.assets.in_fingerprint(course.fingerprint()),
            settings: number(self.deciding.as_bytes()),
            optimizer: number(optimizer.as_bytes()),
            files: derive(training, &[validation]).max(1),
            release: number(env!("CARGO_PKG_VERSION").as_bytes()),
            ..TrainedOn::default()
        }
    }

    /// Opens the tables of a model, if it has any.
    pub(crate) fn open_tables(&self, tables: &Tables, rows: Opened) -> Result<(), Error> {
        tables.with_optimizer(self.passes[0].optimizer).open(rows)?;
        tables.compute_in(self.arithmetic.precision);
        Ok(())
    }
}

fn precision(experiment: &Experiment, device: &Device) -> Result<Option<FloatDType>, Error> {
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
