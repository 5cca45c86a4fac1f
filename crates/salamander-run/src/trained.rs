//! A trained model to use, a run's checkpoint or an exported folder, and the data to use it on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use salamander_core::experiment::{Data, Experiment};
use salamander_core::layout::{ExportLayout, RunLayout};
use salamander_core::report::{Evaluation, EvaluationPart};
use salamander_core::status::State;
use salamander_core::words::{count, program_name};
use salamander_data::{Dataset, Format};
use salamander_files::{Durability, replace};
use salamander_train::checkpoint::{Checkpoint, CheckpointStore, Which};
use salamander_train::device;
use salamander_train::evaluate::BatchRange;
use salamander_train::model::{Instance, Model, Models, Trained, Weights};
use salamander_train::predict::Predictions;
use salamander_train::trainer::open_data;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::experiment::wrong;
use crate::folder_status::FolderStatus;
use crate::predict::{ClassNames, PredictionOutput};
use crate::search::{is_search, no_single_run};
use crate::tasks::{self, ModelUse, Sharing};

/// A trained model, found but not loaded: its weights are read when it is used.
pub struct TrainedModel {
    models: Arc<Models>,
    found: TrainedFiles,
    warn: Option<Warn>,
}

/// Tells a warning.
type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// How many records were predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// With an output each.
    pub records: u64,
    /// That could not be decoded.
    pub skipped: u64,
}

impl TrainedModel {
    pub(crate) fn open(
        models: Arc<Models>,
        folder: &Path,
        checkpoint: &Which,
        device: &str,
    ) -> Result<Self, Error> {
        let found = TrainedFiles::open(folder, checkpoint, device, 0)?;
        models.find(found.experiment.model())?;
        Ok(Self { models, found, warn: None })
    }

    /// Tells somebody what is odd about data that it is used on, such as a column that no record has.
    #[must_use]
    pub fn warning(mut self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.warn = Some(Box::new(warn));
        self
    }

    /// The experiment that it was trained by.
    pub fn experiment(&self) -> &Experiment {
        &self.found.experiment
    }

    /// The checkpoint's id, or `exported`.
    pub fn checkpoint(&self) -> &str {
        &self.found.label
    }

    /// Names of its classes.
    pub fn class_names(&self) -> Result<Vec<String>, Error> {
        let model = self.model()?;
        Ok(model.class_names(&self.found.trained().assets(model.assets())?)?)
    }

    /// Measures it on files, or on the validation data of its experiment. Sharing the work changes nothing but the
    /// time.
    pub fn evaluate(
        &self,
        data: &[String],
        sharing: Option<Sharing<'_>>,
    ) -> Result<Evaluation, Error> {
        let experiment = &self.found.experiment;
        let data = self.open_data(DataFiles::to_evaluate(data, experiment)?)?;
        let Some(mut sharing) = sharing else {
            let all = BatchRange::all(&data.dataset, ModelUse::Evaluate.over(experiment));
            let whole = self.instance()?.evaluate(all, &mut || Ok(()))?;
            return Ok(whole.finish());
        };
        let mut whole = EvaluationPart::default();
        tasks::run(ModelUse::Evaluate, &self.found, data, &mut sharing, &mut |part| {
            let text = fs::read_to_string(part).map_err(Error::io(part))?;
            whole.merge(&serde_json::from_str(&text).map_err(Error::broken(part))?);
            Ok(())
        })?;
        Ok(whole.finish())
    }

    /// Its outputs for every record of files, batch by batch; labels may be absent.
    pub fn predict(
        &self,
        data: &[String],
        each: &mut dyn FnMut(Predictions) -> Result<(), Error>,
    ) -> Result<Predicted, Error> {
        let experiment = &self.found.experiment;
        let dataset = self.open_data(DataFiles::given(data, experiment))?.dataset;
        let over = ModelUse::Predict.over(experiment);
        let mut failed = None;
        let all = BatchRange::all(&dataset, over);
        let predicted = self.instance()?.predict(all, &mut |batch| {
            each(batch).map_err(|error| {
                failed = Some(error);
                salamander_train::Error::Leaving
            })
        });
        match failed {
            Some(error) => Err(error),
            None => {
                let skipped = predicted?;
                Ok(Predicted { records: dataset.len() - skipped, skipped })
            }
        }
    }

    /// Writes its outputs for every record of files into a file: `.parquet`, `.csv` or `.jsonl`, which is there
    /// completely or not at all. Sharing the work changes nothing but the time.
    pub fn predict_to(
        &self,
        data: &[String],
        out: &Path,
        sharing: Option<Sharing<'_>>,
    ) -> Result<Predicted, Error> {
        let model = self.model()?;
        let files = self.found.trained().assets(model.assets())?;
        let (labels, classes) = (model.label_names(&files)?, model.class_names(&files)?);
        let mut output = PredictionOutput::create(out, ClassNames { labels, classes })?;
        let predicted = match sharing {
            None => self.predict(data, &mut |batch| output.write(&batch))?,
            Some(mut sharing) => {
                let data = self.open_data(DataFiles::given(data, &self.found.experiment))?;
                let mut add = |part: &Path| output.append(part);
                tasks::run(ModelUse::Predict, &self.found, data, &mut sharing, &mut add)?
            }
        };
        output.finish()?;
        Ok(predicted)
    }

    /// Writes its weights as safetensors, and what is needed to use them, into a folder; returns the file of weights.
    pub fn export(&self, out: &Path) -> Result<PathBuf, Error> {
        let layout = ExportLayout::new(out);
        fs::create_dir_all(out).map_err(Error::io(out))?;
        self.instance()?.export(&layout.model())?;
        let hparams = self.model()?.hparams_in_force(&self.found.experiment)?;
        let (path, text) = (layout.experiment(), self.found.experiment.to_yaml(&hparams));
        replace(&path, text.as_bytes(), Durability::Synced).map_err(Error::io(&path))?;
        Ok(layout.model())
    }

    /// Writes it into a folder as another program reads it, in one of the model's [layouts](Model::exports).
    pub fn export_as(&self, format: &str, out: &Path) -> Result<(), Error> {
        let model = self.model()?;
        let known = model.exports();
        if !known.contains(&format) {
            let name = model.name();
            let reason = match known {
                [] => format!("{name} has no other format than salamander's own"),
                known => format!("{name} can be exported as: {}", known.join(", ")),
            };
            return Err(Error::Invalid(format!("there is no export as {format}: {reason}")));
        }
        fs::create_dir_all(out).map_err(Error::io(out))?;
        Ok(self.instance()?.export_as(format, out)?)
    }

    /// Opens files that have at least one of its inputs.
    fn open_data(&self, files: DataFiles) -> Result<OpenedFiles, Error> {
        let dataset = files.open(&self.found.experiment)?;
        let warnings = self.model()?.check_columns(&dataset)?;
        if let Some(warn) = &self.warn {
            warnings.iter().for_each(|warning| warn(warning));
        }
        Ok(OpenedFiles { files, dataset })
    }

    fn model(&self) -> Result<&dyn Model, Error> {
        Ok(self.models.find(self.found.experiment.model())?)
    }

    fn instance(&self) -> Result<Box<dyn Instance>, Error> {
        Ok(self.model()?.load(self.found.trained())?)
    }
}

/// What was found, with the experiment that it was trained by.
pub(crate) struct TrainedFiles {
    pub(crate) experiment: Experiment,
    pub(crate) label: String,
    /// The run's folder, or the exported one.
    pub(crate) folder: PathBuf,
    /// As it was asked for.
    pub(crate) device_name: String,
    /// Bytes of rows of tables that are kept in memory; all of them when absent.
    pub(crate) table_memory: Option<usize>,
    source: WeightSource,
    device: Device,
}

/// What a folder of Hugging Face has.
pub(crate) const FOREIGN_CONFIG: &str = "config.json";

enum WeightSource {
    Checkpoint(Box<Checkpoint>),
    File(PathBuf),
    Foreign(PathBuf),
}

impl TrainedFiles {
    /// Opens the run or the exported model of a folder, on the device of this name for this worker.
    pub(crate) fn open(
        folder: &Path,
        which: &Which,
        device_name: &str,
        worker: u32,
    ) -> Result<Self, Error> {
        let device = device::select_for(device_name, worker as usize)?;
        let run = RunLayout::new(folder);
        let checkpoints = run.checkpoints();
        let (experiment, label, source) = if checkpoints.is_dir() {
            if CheckpointStore::list(&checkpoints)?.is_empty() {
                return Err(no_checkpoint(&run));
            }
            let checkpoint = CheckpointStore::find_to_use(&checkpoints, which)?;
            let experiment = Experiment::parse(&checkpoint.experiment, &[])
                .map_err(Error::broken(&checkpoint.path))?;
            let label = checkpoint.manifest.id.clone();
            (experiment, label, WeightSource::Checkpoint(Box::new(checkpoint)))
        } else {
            let (experiment, weights) = exported(&run)?;
            (experiment, "exported".to_string(), WeightSource::File(weights))
        };
        let (folder, device_name) = (folder.to_path_buf(), device_name.to_string());
        Ok(TrainedFiles {
            experiment,
            label,
            folder,
            device_name,
            table_memory: None,
            source,
            device,
        })
    }

    /// The experiment of a run's checkpoint or of an exported model, without its weights.
    pub(crate) fn experiment_in(folder: &Path, which: &Which) -> Result<Experiment, Error> {
        let run = RunLayout::new(folder);
        let checkpoints = run.checkpoints();
        if !checkpoints.is_dir() {
            return Ok(exported(&run)?.0);
        }
        if CheckpointStore::list(&checkpoints)?.is_empty() {
            return Err(no_checkpoint(&run));
        }
        let (path, text) = CheckpointStore::experiment(&checkpoints, which)?;
        Experiment::parse(&text, &[]).map_err(Error::broken(&path))
    }

    /// Opens a folder of another program, such as a model of Hugging Face; nothing where it is a folder of ours.
    pub(crate) fn foreign(
        models: &Models,
        folder: &Path,
        device_name: &str,
    ) -> Result<Option<Self>, Error> {
        let ours = RunLayout::new(folder).checkpoints().is_dir()
            || ExportLayout::new(folder).experiment().is_file();
        if ours || !folder.join(FOREIGN_CONFIG).is_file() {
            return Ok(None);
        }
        let folder = fs::canonicalize(folder).map_err(Error::io(folder))?;
        let adopted = models.iter().find_map(|model| Some((model, model.adopts(&folder)?)));
        let Some((model, hparams)) = adopted else {
            return Err(not_taken(&folder));
        };
        let text =
            format!("entrypoint: {}\nhyperparameters: {{global_batch_size: 1}}\n", model.name());
        let sets: Vec<String> = hparams.as_object().map_or(Vec::new(), |hparams| {
            hparams.iter().map(|(name, value)| format!("hyperparameters.{name}={value}")).collect()
        });
        let experiment = Experiment::parse(&text, &sets).map_err(|error| wrong(&folder, error))?;
        let device = device::select_for(device_name, 0)?;
        let source = WeightSource::Foreign(folder.clone());
        let (label, device_name) = ("foreign".to_string(), device_name.to_string());
        Ok(Some(TrainedFiles {
            experiment,
            label,
            folder,
            device_name,
            table_memory: None,
            source,
            device,
        }))
    }

    pub(crate) fn trained(&self) -> Trained<'_> {
        let weights = match &self.source {
            WeightSource::Checkpoint(checkpoint) => Weights::Checkpoint(checkpoint),
            WeightSource::File(path) => Weights::File(path),
            WeightSource::Foreign(folder) => Weights::Foreign(folder),
        };
        let table_memory = self.table_memory;
        Trained { experiment: &self.experiment, weights, device: &self.device, table_memory }
    }
}

/// Why a folder of another program is not used: what it says that its model is.
fn not_taken(folder: &Path) -> Error {
    let config = fs::read(folder.join(FOREIGN_CONFIG)).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap_or_default();
    let said = |key: &str| match &config[key] {
        serde_json::Value::Null => format!("no {key}"),
        value => format!("{key} {value}"),
    };
    Error::Invalid(format!(
        "{}: it has a {FOREIGN_CONFIG} with {} and {}, but no model of this program takes it (is it a classifier of \
         BERT or RoBERTa, with its tokenizer.json?)",
        folder.display(),
        said("model_type"),
        said("architectures")
    ))
}

/// Why a run has no checkpoint, and what to do.
fn no_checkpoint(run: &RunLayout) -> Error {
    let status = FolderStatus::read(run);
    let folder = run.folder().display();
    let reason = match (status.state, status.error) {
        (State::Failed, error) => {
            format!("the run failed before its first one: {}", error.unwrap_or_default())
        }
        (State::Completed, _) => {
            "its experiment keeps none (checkpoint_policy, checkpoint_storage)".to_string()
        }
        (State::Interrupted, _) => {
            format!(
                "the run ended before its first one: go on with `{} train --resume {folder}`",
                program_name()
            )
        }
        _ => {
            let steps = count(status.steps.0, "step");
            format!(
                "the run is going on, {steps} done: the first one is written at the end of an epoch, or as \
                 min_checkpoint_period in its experiment says"
            )
        }
    };
    Error::Invalid(format!("{folder} has no checkpoint yet: {reason}"))
}

fn exported(run: &RunLayout) -> Result<(Experiment, PathBuf), Error> {
    let folder = run.folder();
    let layout = ExportLayout::new(folder);
    let (weights, file) = (layout.model(), layout.experiment());
    if !weights.is_file() {
        if is_search(folder) {
            return Err(no_single_run(folder));
        }
        if run.lock().is_file() || run.journal().is_file() {
            return Err(no_checkpoint(run));
        }
        let folder = folder.display();
        return Err(Error::Invalid(format!("{folder}: neither a run nor an exported model")));
    }
    let text = fs::read_to_string(&file).map_err(Error::io(&file))?;
    let experiment = Experiment::parse(&text, &[]).map_err(|error| wrong(&file, error))?;
    Ok((experiment, weights))
}

/// The files that a trained model is used on.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DataFiles {
    /// Names them in messages.
    pub(crate) what: String,
    pub(crate) paths: Vec<String>,
    pub(crate) format: Option<String>,
}

/// Files and their records.
pub(crate) struct OpenedFiles {
    pub(crate) files: DataFiles,
    pub(crate) dataset: Arc<Dataset>,
}

impl DataFiles {
    /// Those that were named, which need not have the format of the experiment's; but that is taken for files that do
    /// not tell theirs.
    pub(crate) fn given(paths: &[String], experiment: &Experiment) -> Self {
        let tells = |path: &String| {
            let path = Path::new(path);
            path.is_dir() || Format::guess(path).is_ok()
        };
        let format = experiment.data.format.clone().filter(|_| !paths.iter().all(tells));
        Self { what: "--data".to_string(), paths: paths.to_vec(), format }
    }

    /// Those that were named, or the experiment's validation data.
    fn to_evaluate(given: &[String], experiment: &Experiment) -> Result<Self, Error> {
        let data = &experiment.data;
        match (given, data.validation.0.as_slice()) {
            ([], []) => Err(Error::Invalid(
                "the experiment has no validation data: name files with --data".to_string(),
            )),
            ([], validation) => Ok(DataFiles {
                what: "data.validation".to_string(),
                paths: validation.to_vec(),
                format: data.format.clone(),
            }),
            (given, _) => Ok(DataFiles::given(given, experiment)),
        }
    }

    pub(crate) fn open(&self, experiment: &Experiment) -> Result<Arc<Dataset>, Error> {
        let data = Data { format: self.format.clone(), ..experiment.data.clone() };
        Ok(open_data(&self.what, &self.paths, &data)?)
    }
}

#[cfg(test)]
mod tests;
