//! What a training is made from, and its data.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::Device;
use salamander_core::experiment::{Data, Experiment};
use salamander_core::hparams;
use salamander_data::{Dataset, Format, OpenOptions, open_indexed};

use crate::callback::Callback;
use crate::checkpoint::{Checkpoint, Keeping};
use crate::example::{AssetFiles, Assets, Example, files_said};
use crate::model::{build_in_context, with_pretrained};
use crate::tables::Tables;
use crate::trainer::StreamedData;
use crate::trial::Trial;
use crate::{Error, weights};

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
    /// What an earlier training of this process has opened, and this one leaves for the next.
    pub kept_data: KeptData,
}

/// Data that stays open from one training of a process to the next, in the same folder and with the same settings: a
/// run that pauses and goes on neither looks through its files again nor reads again what it had in memory. The default
/// has nothing yet; clones have the same.
#[derive(Clone, Debug, Default)]
pub struct KeptData(Arc<Mutex<Option<KeptFiles>>>);

#[derive(Clone, Debug)]
struct KeptFiles {
    data: Data,
    folder: PathBuf,
    training: Arc<Dataset>,
    validation: Option<Arc<Dataset>>,
}

impl KeptData {
    fn held(&self) -> MutexGuard<'_, Option<KeptFiles>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is open for these settings.
    fn find(&self, data: &Data, folder: &Path) -> Option<OpenedData> {
        let held = self.held();
        let found = held.as_ref().filter(|held| held.data == *data && held.folder == folder)?;
        let KeptFiles { training, validation, .. } = found.clone();
        Some(OpenedData { training, streamed: None, validation })
    }

    /// Keeps files that do not grow.
    fn keep(&self, data: &Data, folder: &Path, opened: &OpenedData) {
        if opened.streamed.is_none() {
            let (training, validation) = (opened.training.clone(), opened.validation.clone());
            let (data, folder) = (data.clone(), folder.to_path_buf());
            *self.held() = Some(KeptFiles { data, folder, training, validation });
        }
    }
}

impl Setup {
    /// A model that was not trained here, and its tables.
    pub(crate) fn fresh<T: Trial>(&self) -> Result<(T, Tables), Error> {
        let assets = self.assets::<T>()?;
        let device = self.device.clone().autodiff();
        let (model, cx) = build_in_context::<T>(&self.experiment, &device, assets)?;
        let model = match &self.experiment.start_from {
            Some(path) => weights::load(model, path)?,
            None => with_pretrained(model, &cx)?,
        };
        Ok((model, cx.tables))
    }

    /// What the records of a model are read with.
    pub(crate) fn assets<T: Trial>(&self) -> Result<Assets, Error> {
        let (specs, data) = (T::Example::ASSETS, &self.experiment.data);
        let hp = hparams::read::<T::Hparams>(&self.experiment.hyperparameters)?;
        let (named, said) = (T::folder(&hp), files_said(T::max_tokens(&hp)));
        let files = AssetFiles::of_training(specs, &self.folder, named.as_deref(), data, said)?;
        Assets::load(specs, files)
    }

    /// What the run keeps of its checkpoints.
    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            folder: self.checkpoints(),
            policy: self.experiment.checkpoint_policy,
            storage: self.experiment.checkpoint_storage.clone(),
        }
    }

    /// The newest checkpoint that is intact, in the run's folder or in its store; tells `refused` about newer ones that
    /// are not.
    pub fn newest_checkpoint(
        &self,
        refused: &mut dyn FnMut(&Error),
    ) -> Result<Option<Checkpoint>, Error> {
        self.keeping().newest(refused)
    }

    /// The folder of the run's checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join(salamander_core::layout::CHECKPOINTS)
    }
}

/// Opens the files of an experiment's data; `what` names them in messages. Of data that is streamed it opens what is
/// there.
pub fn open_data(what: &str, paths: &[String], data: &Data) -> Result<Arc<Dataset>, Error> {
    if data.stream && paths == data.training.0 {
        let dataset = StreamedData::so_far(data, None)?.dataset()?;
        return filled(what, paths, dataset).map(Arc::new);
    }
    open_with(what, paths, data, &OpenOptions::of(data)).map(Arc::new)
}

/// Opens all data of an experiment. The indexes are kept in the run's folder, so that a resumed run and every
/// worker of a distributed one start at once; the callbacks are told how far it is. Who waits for records that are
/// still to be written is told to `stop`.
pub fn open_all(
    experiment: &Experiment,
    folder: &Path,
    callbacks: &mut Vec<Box<dyn Callback>>,
    stop: &AtomicBool,
) -> Result<(Arc<Dataset>, Option<Arc<Dataset>>), Error> {
    let OpenedData { training, validation, .. } =
        OpenedData::open(experiment, folder, callbacks, stop)?;
    Ok((training, validation))
}

/// All data of an experiment.
pub(super) struct OpenedData {
    pub(super) training: Arc<Dataset>,
    /// Where it is still being written.
    pub(super) streamed: Option<StreamedData>,
    pub(super) validation: Option<Arc<Dataset>>,
}

impl OpenedData {
    /// See [`OpenedData::open`]; what was opened before in this process is not opened again.
    pub(super) fn of(setup: &Setup, callbacks: &mut Vec<Box<dyn Callback>>) -> Result<Self, Error> {
        let Setup { experiment, folder, stop, kept_data, .. } = setup;
        if let Some(opened) = kept_data.find(&experiment.data, folder) {
            return Ok(opened);
        }
        let opened = Self::open(experiment, folder, callbacks, stop)?;
        kept_data.keep(&experiment.data, folder, &opened);
        Ok(opened)
    }

    /// See [`open_all`]; of streamed data it waits for the first record, unless it is told to stop.
    pub(super) fn open(
        experiment: &Experiment,
        folder: &Path,
        callbacks: &mut Vec<Box<dyn Callback>>,
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
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
        let progress = Some(&progress as &(dyn Fn(usize, usize) + Sync));
        let options = OpenOptions { cache_folder, progress, ..OpenOptions::of(data) };
        let cached =
            |dataset: Dataset| Arc::new(dataset.with_cache(data.cache_bytes(), Some(folder)));
        let (training, streamed) = if data.stream {
            let mut streamed = StreamedData::so_far(data, Some(folder))?;
            streamed.await_first(stop, &mut || {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.iter_mut().for_each(|callback| callback.waiting(0));
            })?;
            (Arc::new(streamed.dataset()?), Some(streamed))
        } else {
            (cached(open_with("data.training", &data.training.0, data, &options)?), None)
        };
        let validation = match data.validation.0.as_slice() {
            [] => None,
            paths => Some(cached(open_with("data.validation", paths, data, &options)?)),
        };
        Ok(Self { training, streamed, validation })
    }
}

fn open_with(
    what: &str,
    names: &[String],
    data: &Data,
    options: &OpenOptions<'_>,
) -> Result<Dataset, Error> {
    let format = data.format.as_deref().map(str::parse::<Format>).transpose();
    let format = format.map_err(|error| Error::Invalid(format!("data.format: {error}")))?;
    let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    filled(what, names, Dataset::new(Arc::from(open_indexed(&paths, format, options)?))?)
}

/// A dataset that has records.
fn filled(what: &str, paths: &[String], dataset: Dataset) -> Result<Dataset, Error> {
    if dataset.is_empty() {
        return Err(Error::Invalid(format!("{what}: no records in {}", paths.join(", "))));
    }
    Ok(dataset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn data_stays_open_for_the_next_training_in_the_same_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let setup = testing::setup(folder.path(), "x,y,side\n1,2,0\n3,4,1\n", "");
        let opened =
            |setup: &Setup| OpenedData::of(setup, &mut Vec::new()).expect("opened").training;
        let first = opened(&setup);
        assert!(Arc::ptr_eq(&first, &opened(&setup)));
        let next = Setup { stop: Arc::default(), ..setup.clone() };
        assert!(Arc::ptr_eq(&first, &opened(&next)));
        // Other settings, another folder or another process of a run read for themselves.
        let mut reads = setup.clone();
        reads.experiment.settings_mut().data.threads = Some(7);
        let other = opened(&reads);
        assert!(!Arc::ptr_eq(&first, &other));
        let elsewhere = Setup { folder: folder.path().join("other"), ..reads.clone() };
        assert!(!Arc::ptr_eq(&other, &opened(&elsewhere)));
        let alone = Setup { kept_data: KeptData::default(), ..setup };
        assert!(!Arc::ptr_eq(&first, &opened(&alone)));
    }
}
