//! The checkpoints of a run: written on a thread of their own, put into a store if the run has one, the superfluous
//! ones removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use salamander_core::experiment::{CheckpointPolicy, CheckpointStorage};
use salamander_core::layout::COUNTED;

use super::remote::RemoteCheckpoints;
use super::uploader::{self, Uploader};
use super::{Checkpoint, Manifest, Snapshot, read, read_manifest, write};
use crate::Error;
use crate::tables::Finish;
use crate::threads::OwnedThread;

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

/// What a run keeps of its checkpoints, and where.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    /// The folder of checkpoints, which is in the run's.
    pub folder: PathBuf,
    /// Which ones are kept.
    pub policy: CheckpointPolicy,
    /// How many, and in which store besides.
    pub storage: CheckpointStorage,
}

impl Keeping {
    /// The run's folder.
    pub(super) fn run(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// The run's place in a store, if it has one.
    pub(crate) fn remote(&self) -> Result<Option<RemoteCheckpoints>, Error> {
        RemoteCheckpoints::of_run(&self.storage, self.run())
    }

    /// Removes the checkpoints that the policy does not keep.
    pub(super) fn remove_superfluous(&self) {
        for id in self.superfluous(&Store::list(&self.folder)) {
            // A folder that cannot be removed is only a waste of room.
            let _ = fs::remove_dir_all(self.folder.join(id));
        }
    }

    /// The checkpoints that the policy does not keep, of all that count, oldest first.
    pub(super) fn superfluous(&self, manifests: &[Manifest]) -> Vec<String> {
        if self.policy == CheckpointPolicy::All {
            return Vec::new();
        }
        let latest = (self.storage.save_trial_latest as usize).max(AT_LEAST);
        let newest = manifests.iter().rev().take(latest);
        let best = best_first(manifests).into_iter().take(self.storage.save_trial_best as usize);
        let kept: Vec<&str> = newest.chain(best).map(|m| m.id.as_str()).collect();
        let superfluous = manifests.iter().filter(|manifest| !kept.contains(&manifest.id.as_str()));
        superfluous.map(|manifest| manifest.id.clone()).collect()
    }
}

enum WriteCommand {
    Save(Box<Snapshot>, Option<Finish>),
    Flush(Sender<()>),
}

/// The folder of a run's checkpoints, and the thread that writes them.
pub struct Store {
    /// Dropped first, which ends the thread; the results are there until then.
    sender: SyncSender<WriteCommand>,
    thread: OwnedThread,
    results: Receiver<Result<PathBuf, Error>>,
}

impl Store {
    /// Starts the writer. Only the copy to the host holds training up; two snapshots at most are in
    /// memory. With a store a checkpoint is finished when it is there.
    pub(crate) fn open(keeping: Keeping) -> Result<Self, Error> {
        fs::create_dir_all(&keeping.folder).map_err(Error::io(&keeping.folder))?;
        let (sender, orders) = sync_channel::<WriteCommand>(1);
        let (done, results) = channel();
        let uploader = keeping.remote()?;
        let uploader =
            uploader.map(|remote| Uploader::start(remote, keeping.clone(), done.clone()));
        let uploader = uploader.transpose()?;
        let writer = move || {
            for order in orders {
                match (order, &uploader) {
                    (WriteCommand::Flush(done), Some(uploader)) => {
                        uploader.send(uploader::UploadCommand::Flush(done))
                    }
                    (WriteCommand::Flush(done), None) => drop(done.send(())),
                    (WriteCommand::Save(snapshot, tables), uploader) => {
                        match (write(&keeping.folder, &snapshot, tables), uploader) {
                            // The uploader tells what becomes of it.
                            (Ok(path), Some(uploader)) => {
                                uploader.send(uploader::UploadCommand::Put(path))
                            }
                            (written, _) => {
                                if written.is_ok() {
                                    keeping.remove_superfluous();
                                }
                                let _ = done.send(written);
                            }
                        }
                    }
                }
            }
        };
        let thread = OwnedThread::spawn("checkpoints".to_string(), "the writer", writer)?;
        Ok(Self { sender, thread, results })
    }

    /// Hands a snapshot to the writer.
    pub(crate) fn save(&self, snapshot: Snapshot, tables: Option<Finish>) -> Result<(), Error> {
        let ended = |_| Error::Invalid("the checkpoint writer has ended".to_string());
        self.sender.send(WriteCommand::Save(Box::new(snapshot), tables)).map_err(ended)
    }

    /// Checkpoints that were finished since the last call, or why they could not be.
    pub(crate) fn finished(&self) -> Vec<Result<PathBuf, Error>> {
        self.results.try_iter().collect()
    }

    /// Waits until everything handed over is on disk, and tells what was.
    pub(crate) fn flush(&self) -> Vec<Result<PathBuf, Error>> {
        let (done, wait) = channel();
        if self.sender.send(WriteCommand::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
        self.finished()
    }

    /// Waits for everything handed over.
    pub(crate) fn close(self) -> Result<Vec<PathBuf>, Error> {
        let Self { sender, thread, results } = self;
        drop(sender);
        drop(thread);
        results.try_iter().collect()
    }

    /// All checkpoints of a folder that count and have a readable manifest, oldest first.
    pub fn list(folder: &Path) -> Vec<Manifest> {
        let names = names(folder).into_iter();
        oldest_first(names.filter_map(|name| read_manifest(&folder.join(name)).ok()))
    }

    /// The checkpoint whose watched metric is the best, by its manifest.
    pub fn best(folder: &Path) -> Option<Manifest> {
        best_first(&Self::list(folder)).first().map(|best| Manifest::clone(best))
    }

    /// Reads the checkpoint that is meant.
    pub fn find(folder: &Path, which: &Which) -> Result<Checkpoint, Error> {
        let manifests = Self::list(folder);
        let found = match which {
            Which::Latest => manifests.last(),
            Which::Best => best_first(&manifests).first().copied().or(manifests.last()),
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

/// The names of all checkpoints that count, oldest first. In a distributed run only those count that the master has
/// journaled: a worker that was dropped may have left others.
fn names(folder: &Path) -> Vec<String> {
    let counted = fs::read_to_string(folder.join(COUNTED)).ok();
    let counts = |name: &String| match &counted {
        Some(list) => list.lines().any(|line| line == name),
        None => true,
    };
    let mut names: Vec<String> = beginning_with("step-", folder).filter(counts).collect();
    names.sort();
    names
}

/// The names in a folder that begin with these letters.
pub(crate) fn beginning_with(prefix: &str, folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(move |name| name.starts_with(prefix))
}

/// Removes the folders in which servers were writing rows when their run was killed.
pub(crate) fn sweep(folder: &Path) {
    for name in beginning_with(SCRATCH, folder) {
        // A folder that cannot be removed is only a waste of room.
        let _ = fs::remove_dir_all(folder.join(name));
    }
}

/// Checkpoints in the order in which they were made.
pub(super) fn oldest_first(manifests: impl Iterator<Item = Manifest>) -> Vec<Manifest> {
    let mut manifests: Vec<Manifest> = manifests.collect();
    manifests.sort_by(|a, b| (a.steps, &a.id).cmp(&(b.steps, &b.id)));
    manifests
}

/// Those that were validated, by what was watched.
fn best_first(manifests: &[Manifest]) -> Vec<&Manifest> {
    let mut validated: Vec<(f64, &Manifest)> =
        manifests.iter().filter_map(|manifest| Some((manifest.watched?, manifest))).collect();
    validated.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    validated.into_iter().map(|(_, manifest)| manifest).collect()
}
