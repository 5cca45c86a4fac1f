//! The checkpoints of a run: written on a thread of their own, put into a store if the run has one, the superfluous
//! ones removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use salamander_core::experiment::{CheckpointPolicy, CheckpointStorage};
use salamander_core::layout::COUNTED;

use super::mirror::{Keeping, Mirror};
use super::vault::Vault;
use super::{Checkpoint, Manifest, Snapshot, read, read_manifest, write};
use crate::Error;
use crate::tables::Finish;

/// Checkpoints that a run keeps at least, so that a broken one can be replaced by the one before.
const AT_LEAST: usize = 2;

/// How the names of folders begin in which servers write rows for a checkpoint.
pub(crate) const SCRATCH: &str = ".rows-";

/// Which checkpoint of a run is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with the best validation.
    Best,
    /// The newest.
    Latest,
    /// The one with this id.
    Id(String),
}

impl std::str::FromStr for Which {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "best" => Which::Best,
            "latest" => Which::Latest,
            id => Which::Id(id.to_string()),
        })
    }
}

enum Order {
    Save(Box<Snapshot>, Option<Finish>),
    Flush(Sender<()>),
}

/// The folder of a run's checkpoints, and the thread that writes them.
pub struct Store {
    sender: Option<SyncSender<Order>>,
    results: Receiver<Result<PathBuf, Error>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Starts the writer. Only the copy to the host holds training up; two snapshots at most are in
    /// memory. With a store a checkpoint is finished when it is there.
    pub fn open(
        folder: &Path,
        policy: CheckpointPolicy,
        storage: CheckpointStorage,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let (sender, orders) = sync_channel::<Order>(1);
        let (done, results) = channel();
        let folder = folder.to_path_buf();
        let mirror = mirror(&folder, policy, &storage, &done)?;
        let writer = move || {
            for order in orders {
                let (snapshot, tables) = match order {
                    Order::Save(snapshot, tables) => (snapshot, tables),
                    Order::Flush(done) => {
                        match &mirror {
                            Some(mirror) => mirror.flush(done),
                            None => drop(done.send(())),
                        }
                        continue;
                    }
                };
                let result = match (write(&folder, &snapshot, tables), &mirror) {
                    (Ok(path), Some(mirror)) => {
                        mirror.put(path);
                        continue;
                    }
                    (result, _) => result,
                };
                if result.is_ok() && policy != CheckpointPolicy::All {
                    remove_superfluous(&folder, &storage);
                }
                if done.send(result).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_string())
            .spawn(writer)
            .map_err(|error| Error::Invalid(format!("cannot start the writer: {error}")))?;
        Ok(Self { sender: Some(sender), results, thread: Some(thread) })
    }

    /// Hands a snapshot to the writer.
    pub fn save(&self, snapshot: Snapshot, tables: Option<Finish>) -> Result<(), Error> {
        let sender = self.sender.as_ref();
        let order = Order::Save(Box::new(snapshot), tables);
        let sent = sender.is_some_and(|sender| sender.send(order).is_ok());
        if sent { Ok(()) } else { Err(Error::Invalid("the checkpoint writer has ended".into())) }
    }

    /// Checkpoints that were finished since the last call, or why they could not be.
    pub fn finished(&self) -> Vec<Result<PathBuf, Error>> {
        self.results.try_iter().collect()
    }

    /// Waits until everything handed over is on disk, and tells what was.
    pub fn flush(&self) -> Vec<Result<PathBuf, Error>> {
        let (done, wait) = channel();
        let sent = self.sender.as_ref().is_some_and(|s| s.send(Order::Flush(done)).is_ok());
        if sent {
            let _ = wait.recv();
        }
        self.finished()
    }

    /// Waits for everything handed over.
    pub fn close(mut self) -> Result<Vec<PathBuf>, Error> {
        self.join();
        self.finished().into_iter().collect()
    }

    fn join(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// All checkpoints of a folder that count and have a readable manifest, oldest first.
    pub fn list(folder: &Path) -> Vec<Manifest> {
        let mut manifests: Vec<Manifest> = names(folder)
            .iter()
            .filter_map(|name| read_manifest(&folder.join(name)).ok())
            .collect();
        manifests.sort_by(|a, b| (a.steps, &a.id).cmp(&(b.steps, &b.id)));
        manifests
    }

    /// The checkpoint whose watched metric is the best, by its manifest.
    pub fn best(folder: &Path) -> Option<Manifest> {
        best(&Self::list(folder)).cloned()
    }

    /// Reads the checkpoint that is meant.
    pub fn find(folder: &Path, which: &Which) -> Result<Checkpoint, Error> {
        let manifests = Self::list(folder);
        let found = match which {
            Which::Latest => manifests.last(),
            Which::Best => best(&manifests).or(manifests.last()),
            Which::Id(id) => manifests.iter().find(|manifest| manifest.id == *id),
        };
        let Some(manifest) = found else {
            let known: Vec<&str> = manifests.iter().map(|m| m.id.as_str()).collect();
            let reason = match which {
                Which::Id(id) => format!("there is no \"{id}\" (there are: {})", known.join(", ")),
                _ => "there is none yet".to_string(),
            };
            return Err(Error::checkpoint(folder, reason));
        };
        read(&folder.join(&manifest.id))
    }

    /// Reads the newest checkpoint that is intact; tells `refused` about newer ones that are not.
    pub fn newest_intact(folder: &Path, refused: &mut dyn FnMut(&Error)) -> Option<Checkpoint> {
        for name in names(folder).iter().rev() {
            match read(&folder.join(name)) {
                Ok(checkpoint) => return Some(checkpoint),
                Err(error) => refused(&error),
            }
        }
        None
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.join();
    }
}

/// The names of all checkpoints that count, oldest first. In a distributed run only those count that the master has
/// journaled: a worker that was dropped may have left others.
fn names(folder: &Path) -> Vec<String> {
    let counted = fs::read_to_string(folder.join(COUNTED)).ok();
    let counts = |name: &String| match &counted {
        Some(list) => list.lines().any(|line| line == name),
        None => true,
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("step-"))
        .filter(counts)
        .collect();
    names.sort();
    names
}

/// Removes the folders in which servers were writing rows when their run was killed.
pub(crate) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            // A folder that cannot be removed is only a waste of room.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn best(manifests: &[Manifest]) -> Option<&Manifest> {
    let watched = manifests.iter().filter(|manifest| manifest.watched.is_some());
    watched.min_by(|a, b| a.watched.unwrap_or(f64::MAX).total_cmp(&b.watched.unwrap_or(f64::MAX)))
}

/// Starts the owner of the run's place in a store, if it has one.
fn mirror(
    folder: &Path,
    policy: CheckpointPolicy,
    storage: &CheckpointStorage,
    results: &Sender<Result<PathBuf, Error>>,
) -> Result<Option<Mirror>, Error> {
    let run = folder.parent().unwrap_or(folder);
    let Some(vault) = Vault::of_run(storage, run)? else { return Ok(None) };
    let keeping = Keeping { folder: folder.to_path_buf(), policy, storage: storage.clone() };
    Mirror::start(vault, keeping, results.clone()).map(Some)
}

/// The folder of the newest checkpoint that counts.
pub(super) fn newest_counted(folder: &Path) -> Option<PathBuf> {
    Store::list(folder).pop().map(|manifest| folder.join(manifest.id))
}

pub(super) fn remove_superfluous(folder: &Path, storage: &CheckpointStorage) {
    for id in superfluous(&Store::list(folder), storage) {
        // A folder that cannot be removed is only a waste of room.
        let _ = fs::remove_dir_all(folder.join(id));
    }
}

/// The checkpoints that the policy does not keep, of all that count, oldest first.
pub(super) fn superfluous(manifests: &[Manifest], storage: &CheckpointStorage) -> Vec<String> {
    let latest = (storage.save_trial_latest as usize).max(AT_LEAST);
    let mut by_value: Vec<&Manifest> = manifests.iter().filter(|m| m.watched.is_some()).collect();
    by_value
        .sort_by(|a, b| a.watched.unwrap_or(f64::MAX).total_cmp(&b.watched.unwrap_or(f64::MAX)));
    by_value.truncate(storage.save_trial_best as usize);
    let newest = manifests.iter().rev().take(latest);
    let kept: Vec<&str> = newest.chain(by_value).map(|m| m.id.as_str()).collect();
    let superfluous = manifests.iter().filter(|manifest| !kept.contains(&manifest.id.as_str()));
    superfluous.map(|manifest| manifest.id.clone()).collect()
}
