//! Where versions of a model come from: the checkpoints of a run, an exported folder, a folder of another program, or
//! the model registry of a hub.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use salamander_core::layout::{ExportLayout, RunLayout};
use salamander_serve::{Loaded, Source};
use salamander_train::checkpoint::{CheckpointStore, Which};
use salamander_train::inference::AskingThread;
use salamander_train::model::Models;

use super::asked::{AskedBy, AskedModel};
use super::outputs::Outputs;
use super::{ModelToServe, RegisteredVersion, ServedFrom};
use crate::Error;
use crate::trained::{FOREIGN_CONFIG, TrainedFiles};

/// The ends of names of the files that a model of another program is read from.
const FOREIGN_FILES: [&str; 4] = ["safetensors", "bin", "json", "txt"];

/// A folder whose checkpoints are versions.
pub(super) struct CheckpointSource {
    models: Arc<Models>,
    model: ModelToServe,
    /// The model's name where it was trained.
    name: String,
    device: String,
    computing: Computing,
}

/// How a version computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computing {
    pub(super) threads: usize,
    /// The most rows that are computed at once.
    pub(super) rows: usize,
    /// Whether linear layers compute in eight bits.
    pub(super) int8: bool,
    /// Bytes of rows of tables that are kept in memory; all of them when absent.
    pub(super) table_memory: Option<usize>,
}

impl CheckpointSource {
    /// Looks whether there is something to serve.
    pub(super) fn new(
        models: Arc<Models>,
        model: &ModelToServe,
        device: &str,
        computing: Computing,
    ) -> Result<Self, Error> {
        let (folder, which) = place(&model.from)?;
        // Its weights are read when it is loaded, and only then.
        let experiment = match TrainedFiles::foreign(&models, &folder, device)? {
            Some(foreign) => foreign.experiment,
            None => TrainedFiles::experiment_in(&folder, &which)?,
        };
        let name = models.find(experiment.model())?.name().to_string();
        let (model, device) = (model.clone(), device.to_string());
        Ok(Self { models, model, name, device, computing })
    }

    pub(super) fn model_name(&self) -> &str {
        &self.name
    }

    fn newest_version(&self) -> Result<String, Error> {
        match &self.model.from {
            ServedFrom::Folder { folder, checkpoint } => newest_in(folder, checkpoint),
            ServedFrom::Registered(registry) => Ok(registry.now()?.version),
        }
    }

    fn open(&self, version: &str) -> Result<Loaded, Error> {
        let (folder, which) = match &self.model.from {
            ServedFrom::Folder { folder, .. } => (folder.clone(), Which::Id(version.to_string())),
            ServedFrom::Registered(registry) => {
                let RegisteredVersion { version: now, folder, checkpoint } = registry.now()?;
                if now != version {
                    return Err(Error::Failed(format!("it is version {now} by now")));
                }
                (folder, Which::Id(checkpoint))
            }
        };
        let mut found = open_files(&self.models, &folder, &which, &self.device)?;
        found.table_memory = self.computing.table_memory;
        let model = self.models.find(found.experiment.model())?;
        let Computing { threads, rows, int8, .. } = self.computing;
        let thread = AskingThread::new(threads, int8);
        // Others are waited for by those who ask another version meanwhile.
        thread.begin_alone();
        let instance = model.load(found.trained())?;
        let mut classes = instance.class_names();
        if classes.is_empty() {
            let files = found.trained().assets(model.assets())?;
            classes = files.get(FOREIGN_CONFIG).map(foreign_classes).unwrap_or_default();
        }
        let outputs = Outputs::new(instance.label_names(), classes);
        // The copy of the weights that was read: warming up takes memory too.
        drop(found);
        AskedModel::new(instance, model.name(), outputs, AskedBy { thread, rows }).loaded()
    }
}

/// Where a model is now, and which of its checkpoints is meant.
fn place(from: &ServedFrom) -> Result<(PathBuf, Which), Error> {
    match from {
        ServedFrom::Folder { folder, checkpoint } => Ok((folder.clone(), checkpoint.clone())),
        ServedFrom::Registered(registry) => {
            let RegisteredVersion { folder, checkpoint, .. } = registry.now()?;
            Ok((folder, Which::Id(checkpoint)))
        }
    }
}

fn open_files(
    models: &Models,
    folder: &Path,
    which: &Which,
    device: &str,
) -> Result<TrainedFiles, Error> {
    match TrainedFiles::foreign(models, folder, device)? {
        Some(foreign) => Ok(foreign),
        None => TrainedFiles::open(folder, which, device, 0),
    }
}

fn newest_in(folder: &Path, checkpoint: &Which) -> Result<String, Error> {
    let checkpoints = RunLayout::new(folder).checkpoints();
    if !checkpoints.is_dir() {
        return written_version(folder);
    }
    let id = match checkpoint {
        Which::Id(id) => return Ok(id.clone()),
        Which::Best => CheckpointStore::best(&checkpoints)?,
        Which::Latest => None,
    };
    let newest = match id {
        Some(best) => Some(best),
        None => CheckpointStore::list(&checkpoints)?.pop(),
    };
    let none = || Error::Invalid(format!("{} has no checkpoint", checkpoints.display()));
    newest.map(|manifest| manifest.id).ok_or_else(none)
}

/// Another one after another export, or another download.
fn written_version(folder: &Path) -> Result<String, Error> {
    let layout = ExportLayout::new(folder);
    if layout.experiment().is_file() {
        return Ok(format!("exported-{}", changed_at(&layout.model())?));
    }
    let mut newest = changed_at(&folder.join(FOREIGN_CONFIG))?;
    for entry in fs::read_dir(folder).map_err(Error::io(folder))?.flatten() {
        let path = entry.path();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        // Weights, their index, and what tokenizers are made of; one that goes away meanwhile is no newer one.
        if FOREIGN_FILES.contains(&end) {
            newest = newest.max(changed_at(&path).unwrap_or_default());
        }
    }
    Ok(format!("foreign-{newest}"))
}

/// When a file was written, in nanoseconds: of two within a second the later one is another version too.
fn changed_at(file: &Path) -> Result<u128, Error> {
    let about = fs::metadata(file).map_err(Error::io(file))?;
    let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(changed.unwrap_or_default().as_nanos())
}

/// Names of classes by their numbers, as Hugging Face has them.
fn foreign_classes(config: &[u8]) -> Vec<String> {
    let config: serde_json::Value = serde_json::from_slice(config).unwrap_or_default();
    let Some(named) = config["id2label"].as_object() else { return Vec::new() };
    let name = |number: usize| Some(named.get(&number.to_string())?.as_str()?.to_string());
    (0..named.len()).map_while(name).collect()
}

impl Source for CheckpointSource {
    fn newest(&self) -> Result<String, String> {
        self.newest_version().map_err(|error| error.to_string())
    }

    fn load(&self, version: &str) -> Result<Loaded, String> {
        self.open(version).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_file_is_the_version() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = |name: &str, nanos: u64| {
            let file = fs::File::create(folder.path().join(name)).expect("made");
            file.set_modified(UNIX_EPOCH + Duration::from_nanos(nanos)).expect("set");
        };
        let check = |expected: &str| {
            assert_eq!(written_version(folder.path()).expect("there"), expected);
        };
        assert!(written_version(folder.path()).is_err());
        written(FOREIGN_CONFIG, 1_000_000_000);
        check("foreign-1000000000");
        written("model.safetensors", 1_000_004_000);
        written("README.md", 9_000_000_000);
        check("foreign-1000004000");
        written(FOREIGN_CONFIG, 1_000_008_000);
        check("foreign-1000008000");
    }
}
