//! What the workers of an evaluation or a prediction are told, and the folder that they leave their parts in.

use std::fs;
use std::path::{Path, PathBuf};

use salamander_core::experiment::Experiment;
use salamander_core::layout::{self, RunLayout};
use salamander_data::Dataset;
use salamander_files::{Durability, LockedFolder, replace};
use salamander_train::evaluate::Over;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::trained::{DataFiles, TrainedFiles};

/// How the names of scratch folders begin.
const PREFIX: &str = "tasks-";

/// What is done with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModelUse {
    Evaluate,
    Predict,
}

impl ModelUse {
    /// How batches are cut and read.
    pub(crate) fn over(self, experiment: &Experiment) -> Over {
        Over::new(experiment, self == ModelUse::Evaluate)
    }
}

/// All that a worker needs to know, chosen once: a newer checkpoint changes nothing any more.
#[derive(Serialize, Deserialize)]
pub(crate) struct TaskJob {
    pub(crate) work: ModelUse,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: String,
    pub(crate) device: String,
    pub(crate) files: DataFiles,
    /// What all must see in the files.
    pub(crate) records: u64,
    pub(crate) fingerprint: u64,
}

impl TaskJob {
    pub(super) fn new(
        work: ModelUse,
        found: &TrainedFiles,
        files: DataFiles,
        dataset: &Dataset,
    ) -> Self {
        Self {
            work,
            folder: found.folder.clone(),
            checkpoint: found.label.clone(),
            device: found.device_name.clone(),
            files,
            records: dataset.len(),
            fingerprint: fingerprint(dataset),
        }
    }

    pub(super) fn write(&self, scratch: &RunLayout) -> Result<(), Error> {
        let path = scratch.job();
        let text = serde_json::to_vec(self).map_err(Error::broken(&path))?;
        replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path))
    }

    pub(super) fn read(scratch: &RunLayout) -> Result<Self, Error> {
        let path = scratch.job();
        let text = fs::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&text).map_err(Error::broken(&path))
    }

    /// Tasks are ranges of batches, so every process must cut the same records.
    pub(super) fn check(&self, dataset: &Dataset) -> Result<(), Error> {
        if (dataset.len(), fingerprint(dataset)) != (self.records, self.fingerprint) {
            let (found, expected) = (dataset.len(), self.records);
            let what = &self.files.what;
            return Err(Error::Invalid(format!(
                "{what}: the files have changed: {found} records, {expected} when it began"
            )));
        }
        Ok(())
    }
}

/// The files and how many records are in each.
fn fingerprint(dataset: &Dataset) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for shard in dataset.shards() {
        hasher.update(&shard.records.to_le_bytes());
        hasher.update(&(shard.name.len() as u64).to_le_bytes()).update(shard.name.as_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Named by the lease too: who has lost a task cannot spoil the file of who got it.
pub(crate) fn part_name(task: u64, fence: u64) -> String {
    format!("task-{task:06}-{fence}.jsonl")
}

/// The folder of the parts; removed at the end.
pub(crate) struct Scratch {
    layout: RunLayout,
    /// Held, not read.
    _folder: LockedFolder,
}

impl Scratch {
    /// Makes a folder within a run's, and removes what others have left there.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        let made = LockedFolder::create(folder, PREFIX, layout::LOCK).map_err(Error::io(folder))?;
        Ok(Self { layout: RunLayout::new(made.path()), _folder: made })
    }

    pub(crate) fn layout(&self) -> &RunLayout {
        &self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_parts_is_known_as_one_in_use_and_what_was_left_is_removed() {
        let run = tempfile::tempdir().expect("a folder");
        let left = run.path().join("tasks-1");
        fs::create_dir(&left).expect("made");
        fs::write(RunLayout::new(&left).lock(), "").expect("written");
        let scratch = Scratch::create(run.path()).expect("made");
        assert!(!left.exists() && scratch.layout().lock().is_file());
        let path = scratch.layout().folder().to_path_buf();
        drop(scratch);
        assert!(!path.exists());
    }
}
