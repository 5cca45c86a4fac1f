//! Experiment files: Determined's three dialects and our own fields, checked before anything runs.

mod csv;
mod data;
mod deciding;
mod limits;
mod searcher;
mod settings;
mod shapes;
mod strategy;
mod tracking;

use std::ops::Deref;
use std::path::Path;

pub use csv::{CsvHeader, CsvSettings, Separator};
pub use data::{Data, OnBadRecord};
pub use limits::{Budget, QueueResources, RetentionPolicy};
pub use searcher::{
    HalvingForm, HalvingMode, ReportOrder, SchedulerName, Searcher, SearcherName, TimeMetric,
};
pub use settings::{
    CheckpointPolicy, CheckpointStorage, Clip, Device, Elastic, Length, MixedPrecision, OnNan,
    Optimizations, Period, Reproducibility, Settings, Transport,
};
pub use shapes::{Paths, TrialSource, Workers};
pub use strategy::{Ps, PsMode, Strategy};
pub use tracking::{Mlflow, Tracking};

use crate::course::refused;
use crate::yaml::{self, Error, Node};

/// The global batch when the file does not say.
const DEFAULT_BATCH: u64 = 64;

/// An experiment: settings that the framework reads and hyperparameters that the model reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    settings: Settings,
    /// The model's hyperparameters as written.
    pub hyperparameters: Node,
    /// Records of one batch over all workers.
    pub global_batch: u64,
}

impl Deref for Experiment {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Experiment {
    /// Reads a file's text, with `--set a.b=v` arguments laid over it; a search is refused.
    pub fn parse(text: &str, sets: &[String]) -> Result<Self, Error> {
        let mut root = yaml::parse(text)?;
        for set in sets {
            root.set(set)?;
        }
        let experiment = Self::from_root(root.clone())?;
        match experiment.searcher.name {
            SearcherName::Single => Ok(experiment),
            other => {
                let place = root.get("searcher").and_then(|searcher| searcher.get("name"));
                let message = format!(
                    "{other} is a search, and one trial is needed here: write \"single\" \
                     (`salamander train` and `preview-search` take searches)"
                );
                let error = Error::at(&place.unwrap_or(&root).place, message);
                Err(error.within("name").within("searcher"))
            }
        }
    }

    /// Reads a file's tree, of one trial or a search; the hyperparameters are values and no ranges.
    pub fn from_root(mut root: Node) -> Result<Self, Error> {
        let hyperparameters = root.take("hyperparameters").unwrap_or_else(Node::empty_map);
        if !matches!(hyperparameters.value, yaml::Value::Map(_)) {
            return Err(Error::at(&hyperparameters.place, "hyperparameters: write a mapping"));
        }
        let global_batch = global_batch(&hyperparameters)?;
        let mut settings: Settings =
            yaml::from_node(&root).map_err(|error| own_names(error, &root))?;
        take_slots(&mut settings, &root);
        validate(&settings, &root)?;
        if settings.strategy == Strategy::Ps && settings.ps.mode == PsMode::Sync {
            settings.strategy = Strategy::Hybrid;
        }
        Ok(Self { settings, hyperparameters, global_batch })
    }

    /// How long to train; one epoch when the file does not say.
    pub fn length(&self) -> Length {
        let searcher = &self.searcher;
        let steps = searcher.max_steps.map(|n| Length::Batches(n * self.scheduling_unit.0));
        let time = searcher.max_time.map(|n| match searcher.time_metric {
            Some(TimeMetric::Records) => Length::Records(n),
            Some(TimeMetric::Epochs) => Length::Epochs(n),
            Some(TimeMetric::Batches) | None => Length::Batches(n),
        });
        searcher.max_length.or(self.max_length).or(steps).or(time).unwrap_or(Length::Epochs(1))
    }

    /// The watched metric's name as validation reports it.
    pub fn metric(&self) -> &str {
        let name = self.searcher.metric.as_str();
        let short = name.strip_prefix("validation_").or_else(|| name.strip_prefix("val_"));
        short.unwrap_or(name)
    }

    /// Slices of a batch: as the file says; otherwise the most workers allowed, one in a local run.
    pub fn slices(&self) -> u32 {
        let workers = if self.strategy == Strategy::Local { 1 } else { self.workers.max };
        self.micro_batches.unwrap_or(workers)
    }

    /// The model's name: what stands behind the colon of `module:Name`.
    pub fn model(&self) -> Option<&str> {
        let entrypoint = self.entrypoint.as_deref()?;
        Some(entrypoint.rsplit_once(':').map_or(entrypoint, |(_, name)| name))
    }

    /// Settings to change before the run: the seed that was chosen, flags of the command line.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Makes paths independent of the working directory.
    pub fn resolve_paths(&mut self, folder: &Path) {
        let data = &mut self.settings.data;
        for path in data.training.0.iter_mut().chain(&mut data.validation.0) {
            // An address such as s3://bucket/file stands where it stands.
            if !path.contains("://") {
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        }
        if let Some(path) = &mut self.settings.start_from {
            *path = folder.join(&*path);
        }
    }

    /// The configuration in force, with the model's hyperparameters as it read them.
    pub fn to_yaml(&self, hyperparameters: &serde_json::Value) -> String {
        let mut root = serde_json::to_value(&self.settings).unwrap_or_default();
        let mut shown = hyperparameters.clone();
        if let (Some(root), Some(shown)) = (root.as_object_mut(), shown.as_object_mut()) {
            shown.insert("global_batch_size".to_string(), self.global_batch.into());
            root.insert("hyperparameters".to_string(), shown.clone().into());
        }
        yaml::to_yaml(&root)
    }
}

/// Determined's slots of a trial are our workers, unless the file has a number of them.
fn take_slots(settings: &mut Settings, root: &Node) {
    let slots = settings.resources.slots_per_trial.filter(|slots| *slots > 0);
    if let Some(max) = slots.filter(|_| root.get("workers").is_none()) {
        settings.workers = Workers { min: 1, max };
        if max > 1 && root.get("strategy").is_none() {
            settings.strategy = Strategy::Allreduce;
        }
    }
}

fn global_batch(hyperparameters: &Node) -> Result<u64, Error> {
    let Some(node) = hyperparameters.get("global_batch_size") else {
        return Ok(DEFAULT_BATCH);
    };
    let field = "hyperparameters.global_batch_size";
    let node = node.get("val").unwrap_or(node);
    match yaml::from_node::<u64>(node).map_err(|error| error.within(field))? {
        0 => Err(Error::at(&node.place, format!("{field}: a batch needs at least one record"))),
        batch => Ok(batch),
    }
}

/// `hyperparameters` is taken out before serde looks, so it is missing from serde's list of names.
fn own_names(error: Error, root: &Node) -> Error {
    let near = |name: &str| yaml::nearest(name, ["hyperparameters"]).is_some();
    let wrong = root.entries().iter().find(|(key, _)| near(&key.name));
    match wrong {
        Some((key, _)) => Error::unknown_field(&key.name, ["hyperparameters"]).or_at(&key.place),
        None => error,
    }
}

fn validate(settings: &Settings, root: &Node) -> Result<(), Error> {
    let Some((path, message)) = mistake(settings) else { return Ok(()) };
    let mut node = root;
    for name in path.split('.') {
        node = node.get(name).unwrap_or(node);
    }
    Err(Error::at(&node.place, format!("{path}: {message}")))
}

/// The first setting that cannot be followed, and why.
fn mistake(settings: &Settings) -> Option<(&'static str, String)> {
    let Settings { searcher, elastic, .. } = settings;
    let lengths = [
        searcher.max_steps.is_some(),
        searcher.max_length.is_some(),
        searcher.max_time.is_some(),
        settings.max_length.is_some(),
    ];
    let many_lengths = lengths.into_iter().filter(|given| *given).count() > 1;
    let seconds = |value: f64| value.is_finite() && value > 0.0;
    let limit = settings.clip.map(|(Clip::Norm(limit) | Clip::Value(limit))| limit);
    let rules = [
        (!many_lengths, "searcher", "max_steps, max_length and max_time exclude each other"),
        (
            settings.optimizations.aggregation_frequency > 0,
            "optimizations.aggregation_frequency",
            "must be at least 1",
        ),
        (
            settings.threads.is_none_or(|threads| (1..=1024).contains(&threads)),
            "threads",
            "must lie in 1..=1024",
        ),
        (settings.micro_batches != Some(0), "micro_batches", "must be at least 1"),
        (seconds(elastic.silence), "elastic.silence", "write seconds above 0"),
        (seconds(elastic.hang), "elastic.hang", "write seconds above 0"),
        (
            settings.recovery_period.0 >= 0.0 && settings.recovery_period.0.is_finite(),
            "recovery_period",
            "write seconds; 0 is none",
        ),
        (settings.scheduling_unit.0 > 0, "scheduling_unit", "must be at least 1"),
        (limit.is_none_or(|limit| limit > 0.0), "clip", "the limit must be above 0"),
    ];
    let broken = rules.into_iter().find(|(holds, ..)| !holds);
    let broken = broken.map(|(_, path, message)| (path, message)).or_else(|| refused(settings));
    let broken = broken
        .or_else(|| settings.data.columns_named_twice())
        .or_else(|| settings.data.streamed_wrongly());
    broken
        .map(|(path, message)| (path, message.to_string()))
        .or_else(|| precision(settings))
        .or_else(|| settings.tracking.mistake())
        .or_else(|| settings.budget.mistake())
        .or_else(|| settings.retention_policy.mistake())
        .or_else(|| settings.resources.mistake())
}

/// What is wrong with the type to compute in.
fn precision(settings: &Settings) -> Option<(&'static str, String)> {
    let Optimizations { mixed_precision, loss_scale, .. } = &settings.optimizations;
    let none_needed = "f32 needs none; leave it out, or write optimizations.mixed_precision: f16";
    let reason = match loss_scale.as_ref()?.validate() {
        Ok(()) if mixed_precision.is_full() => none_needed.to_string(),
        checked => checked.err()?,
    };
    Some(("optimizations.loss_scale", reason))
}

/// The JSON Schema of experiment files, for editors.
pub fn schema() -> serde_json::Value {
    let mut schema = serde_json::Value::from(schemars::schema_for!(Settings));
    let hyperparameters = serde_json::json!({
        "description": "The model's hyperparameters (see `salamander models`) and global_batch_size: the records of \
                        a batch over all workers, 64 by default.",
        "type": "object",
        "properties": {"global_batch_size": {"type": "integer", "minimum": 1}},
    });
    schema["title"] = "Salamander experiment".into();
    schema["properties"]["hyperparameters"] = hyperparameters;
    schema
}

#[cfg(test)]
mod tests;
