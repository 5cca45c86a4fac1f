//! Experiment files: Determined's three dialects and our own fields, checked before anything runs.

mod settings;
mod shapes;
mod strategy;

use std::ops::Deref;
use std::path::Path;

pub use settings::{
    CheckpointPolicy, CheckpointStorage, Clip, Data, Device, Elastic, Length, MixedPrecision,
    OnBadRecord, OnNan, Optimizations, Period, Reproducibility, Searcher, SearcherName, Settings,
    TimeMetric, Transport,
};
pub use shapes::{Paths, Workers};
pub use strategy::{Ps, PsMode, Strategy};

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
    /// Reads a file's text, with `--set a.b=v` arguments laid over it.
    pub fn parse(text: &str, sets: &[String]) -> Result<Self, Error> {
        let mut root = yaml::parse(text)?;
        for set in sets {
            root.set(set)?;
        }
        let hyperparameters = root.take("hyperparameters").unwrap_or_else(Node::empty_map);
        if !matches!(hyperparameters.value, yaml::Value::Map(_)) {
            return Err(Error::at(&hyperparameters.place, "hyperparameters: write a mapping"));
        }
        let global_batch = global_batch(&hyperparameters)?;
        let mut settings: Settings =
            yaml::from_node(&root).map_err(|error| own_names(error, &root))?;
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
    let at = |path: &str, message: &str| {
        let mut node = root;
        for name in path.split('.') {
            node = node.get(name).unwrap_or(node);
        }
        Err(Error::at(&node.place, format!("{path}: {message}")))
    };
    if settings.searcher.name != SearcherName::Single {
        return at("searcher.name", "this version trains one trial; write \"single\"");
    }
    let lengths = [
        settings.searcher.max_steps.is_some(),
        settings.searcher.max_length.is_some(),
        settings.searcher.max_time.is_some(),
        settings.max_length.is_some(),
    ];
    if lengths.iter().filter(|given| **given).count() > 1 {
        return at("searcher", "max_steps, max_length and max_time exclude each other");
    }
    if settings.optimizations.aggregation_frequency == 0 {
        return at("optimizations.aggregation_frequency", "must be at least 1");
    }
    if let Err((field, message)) = precision(settings) {
        return at(field, &message);
    }
    if let Some((field, message)) = crate::course::refused(settings) {
        return at(field, message);
    }
    if settings.threads.is_some_and(|threads| !(1..=1024).contains(&threads)) {
        return at("threads", "must lie in 1..=1024");
    }
    if settings.micro_batches == Some(0) {
        return at("micro_batches", "must be at least 1");
    }
    let seconds = |value: f64| value.is_finite() && value > 0.0;
    if !seconds(settings.elastic.silence) {
        return at("elastic.silence", "write seconds above 0");
    }
    if !seconds(settings.elastic.hang) {
        return at("elastic.hang", "write seconds above 0");
    }
    if settings.scheduling_unit.0 == 0 {
        return at("scheduling_unit", "must be at least 1");
    }
    match settings.clip {
        Some(Clip::Norm(limit) | Clip::Value(limit)) if limit.is_nan() || limit <= 0.0 => {
            at("clip", "the limit must be above 0")
        }
        _ => Ok(()),
    }
}

/// What is wrong with the type to compute in: the field and why.
fn precision(settings: &Settings) -> Result<(), (&'static str, String)> {
    let Optimizations { mixed_precision, loss_scale, .. } = &settings.optimizations;
    let (field, scale) = ("optimizations.mixed_precision", "optimizations.loss_scale");
    if let Some(rule) = loss_scale {
        rule.validate().map_err(|reason| (scale, reason))?;
        if mixed_precision.is_full() {
            let message = format!("f32 needs none; leave it out, or write {field}: f16");
            return Err((scale, message));
        }
    }
    Ok(())
}

/// The JSON Schema of experiment files, for editors.
pub fn schema() -> serde_json::Value {
    let mut schema = serde_json::Value::from(schemars::schema_for!(Settings));
    let hyperparameters = serde_json::json!({
        "description": "The model's hyperparameters (see `salamander models`) and global_batch_size.",
        "type": "object",
        "properties": {"global_batch_size": {"type": "integer", "minimum": 1}},
    });
    schema["title"] = "Salamander experiment".into();
    schema["properties"]["hyperparameters"] = hyperparameters;
    schema
}

#[cfg(test)]
mod tests;
