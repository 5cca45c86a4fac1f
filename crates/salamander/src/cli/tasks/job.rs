//! What the workers of an evaluation or a prediction are told, and the folder that they leave their parts in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use salamander_data::Dataset;
use salamander_net::Token;
use salamander_train::checkpoint::write_atomic;
use serde::{Deserialize, Serialize};

use super::super::trained::{Files, Found};

const JOB: &str = "job.json";
const LOCK: &str = "lock";
/// How the names of scratch folders begin.
const PREFIX: &str = "tasks-";

/// What is done with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::cli) enum Work {
    Evaluate,
    Predict,
}

/// All that a worker needs to know, chosen once: a newer checkpoint changes nothing any more.
#[derive(Serialize, Deserialize)]
pub(in crate::cli) struct Job {
    pub(in crate::cli) work: Work,
    pub(in crate::cli) folder: PathBuf,
    pub(in crate::cli) checkpoint: String,
    pub(in crate::cli) device: String,
    pub(in crate::cli) files: Files,
    /// What all must see in the files.
    pub(in crate::cli) records: u64,
    pub(in crate::cli) fingerprint: u64,
}

impl Job {
    pub(in crate::cli) fn new(work: Work, found: &Found, files: Files, dataset: &Dataset) -> Self {
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

    pub(super) fn write(&self, scratch: &Path) -> Result<()> {
        Ok(write_atomic(&scratch.join(JOB), &serde_json::to_vec(self)?)?)
    }

    pub(super) fn read(scratch: &Path) -> Result<Self> {
        let path = scratch.join(JOB);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// Tasks are ranges of batches, so every process must cut the same records.
    pub(super) fn check(&self, dataset: &Dataset) -> Result<()> {
        if (dataset.len(), fingerprint(dataset)) != (self.records, self.fingerprint) {
            let (found, expected) = (dataset.len(), self.records);
            let what = &self.files.what;
            bail!("{what}: the files have changed: {found} records, {expected} when it began");
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

/// The result of a task: a file, because a report to the master has to be short.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finished {
    pub(super) file: String,
    pub(super) skipped: u64,
}

/// Named by the lease too: who has lost a task cannot spoil the file of who got it.
pub(super) fn part_name(task: u64, fence: u64) -> String {
    format!("task-{task:06}-{fence}.jsonl")
}

/// The folder of the parts; removed at the end.
pub(super) struct Scratch {
    path: PathBuf,
    /// Held, not read: a folder whose lock is free was left by a process that was killed.
    _lock: File,
}

impl Scratch {
    /// Makes a folder within a run's, and removes what others have left there.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        remove_abandoned(folder);
        let name = format!("{PREFIX}{:.8}", Token::random()?.to_hex());
        let cannot = || format!("cannot make a folder in {}", folder.display());
        // Locked before it has the name that others look for.
        let beside = folder.join(format!(".{name}"));
        fs::create_dir(&beside).with_context(cannot)?;
        let lock = File::create(beside.join(LOCK)).with_context(cannot)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(cannot)?;
        let path = folder.join(name);
        fs::rename(&beside, &path).with_context(cannot)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let lock = File::open(entry.path().join(LOCK)).ok().filter(|_| is_scratch);
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
        File::create(left.join(LOCK)).expect("made");
        let scratch = Scratch::create(run.path()).expect("made");
        assert!(!left.exists());
        remove_abandoned(run.path());
        assert!(scratch.path().exists());
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!path.exists());
    }
}
