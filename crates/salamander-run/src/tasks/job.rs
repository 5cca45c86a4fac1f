//! What the workers of an evaluation or a prediction are told, and the folder that they leave their parts in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use salamander_core::experiment::Experiment;
use salamander_core::layout::RunLayout;
use salamander_data::Dataset;
use salamander_files::{Durability, replace};
use salamander_net::Token;
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
    /// Held, not read: a folder whose lock is free was left by a process that was killed.
    _lock: File,
}

impl Scratch {
    /// Makes a folder within a run's, and removes what others have left there.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        remove_abandoned(folder);
        let name = format!("{PREFIX}{:.8}", Token::random()?.to_hex());
        // Locked before it has the name that others look for.
        let beside = RunLayout::new(folder.join(format!(".{name}")));
        let lock = fs::create_dir(beside.folder()).and_then(|()| File::create(beside.lock()));
        let lock = lock.map_err(Error::io(folder))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| Error::io(folder)(error.into()))?;
        let layout = RunLayout::new(folder.join(name));
        fs::rename(beside.folder(), layout.folder()).map_err(Error::io(folder))?;
        Ok(Self { layout, _lock: lock })
    }

    pub(crate) fn layout(&self) -> &RunLayout {
        &self.layout
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = fs::remove_dir_all(self.layout.folder());
    }
}

fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let lock = File::open(RunLayout::new(entry.path()).lock()).ok().filter(|_| is_scratch);
        let free = |lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if lock.as_ref().is_some_and(free) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_in_use_is_not() {
        let run = tempfile::tempdir().expect("a folder");
        let left = run.path().join("tasks-1");
        fs::create_dir(&left).expect("made");
        File::create(RunLayout::new(&left).lock()).expect("made");
        let scratch = Scratch::create(run.path()).expect("made");
        assert!(!left.exists());
        remove_abandoned(run.path());
        let path = scratch.layout().folder().to_path_buf();
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
