//! The checkpoints of a run: written on a thread of their own, put into a store if the run has one, the superfluous
//! ones removed.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::read::read_to_use;
use super::uploader::{self, Uploader};
use super::{
    Checkpoint, Counted, EXPERIMENT, Keeping, Manifest, Snapshot, read, read_manifest, write,
};
use crate::Error;
use crate::tables::Finish;
use crate::threads::{OwnedThread, panic_text};

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

enum WriteCommand {
    Save(Box<Snapshot>, Option<Finish>),
    Flush(Sender<()>),
}

/// The folder of a run's checkpoints, and the thread that writes them.
pub struct CheckpointStore {
    /// Dropped first, which ends the thread; the results are there until then.
    sender: SyncSender<WriteCommand>,
    thread: OwnedThread,
    results: Receiver<Result<PathBuf, Error>>,
    /// Snapshots that were handed over and are not on disk yet.
    unwritten: Arc<AtomicUsize>,
}

impl CheckpointStore {
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
        let unwritten = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&unwritten);
        let writer = move || {
            for order in orders {
                match (order, &uploader) {
                    (WriteCommand::Flush(done), Some(uploader)) => {
                        uploader.send(uploader::UploadCommand::Flush(done))
                    }
                    (WriteCommand::Flush(done), None) => drop(done.send(())),
                    (WriteCommand::Save(snapshot, tables), uploader) => {
                        let written = write_caught(&keeping.folder, &snapshot, tables);
                        left.fetch_sub(1, Ordering::Relaxed);
                        match (written, uploader) {
                            // The uploader tells what becomes of it.
                            (Ok(path), Some(uploader)) => {
                                uploader.send(uploader::UploadCommand::Put(path))
                            }
                            (written, _) => {
                                if let Ok(path) = &written {
                                    keeping.remove_superfluous(path);
                                }
                                let _ = done.send(written);
                            }
                        }
                    }
                }
            }
        };
        let thread = OwnedThread::spawn("checkpoints".to_string(), "the writer", writer)?;
        Ok(Self { sender, thread, results, unwritten })
    }

    /// Whether a snapshot that was handed over is not on disk yet.
    pub(crate) fn is_writing(&self) -> bool {
        self.unwritten.load(Ordering::Relaxed) > 0
    }

    /// Hands a snapshot to the writer. Waits if one is being written and another is there already.
    pub(crate) fn save(&self, snapshot: Snapshot, tables: Option<Finish>) -> Result<(), Error> {
        let command = WriteCommand::Save(Box::new(snapshot), tables);
        self.unwritten.fetch_add(1, Ordering::Relaxed);
        self.sender.send(command).map_err(|_| ended())
    }

    /// Checkpoints that were finished since the last call, or why they could not be.
    pub(crate) fn finished(&self) -> Vec<Result<PathBuf, Error>> {
        self.results.try_iter().collect()
    }

    /// Waits until everything handed over is on disk, and tells what was.
    pub(crate) fn flush(&self) -> Vec<Result<PathBuf, Error>> {
        let (done, wait) = channel();
        let sent = self.sender.send(WriteCommand::Flush(done)).is_ok();
        let flushed = sent && wait.recv().is_ok();
        let mut finished = self.finished();
        if !flushed {
            finished.push(Err(ended()));
        }
        finished
    }

    /// Waits for everything handed over.
    pub(crate) fn close(self) -> Result<Vec<PathBuf>, Error> {
        let flushed = self.flush();
        let Self { sender, thread, results, .. } = self;
        drop(sender);
        drop(thread);
        flushed.into_iter().chain(results.try_iter()).collect()
    }

    /// All checkpoints of a folder that count and have a readable manifest, oldest first.
    pub fn list(folder: &Path) -> Result<Vec<Manifest>, Error> {
        let names = names(folder)?.into_iter();
        Ok(oldest_first(names.filter_map(|name| read_manifest(&folder.join(name)).ok())))
    }

    /// The checkpoint whose watched metric is the best, by its manifest.
    pub fn best(folder: &Path) -> Result<Option<Manifest>, Error> {
        Ok(best_first(&Self::list(folder)?).first().map(|best| Manifest::clone(best)))
    }

    /// Reads the checkpoint that is meant.
    pub fn find(folder: &Path, which: &Which) -> Result<Checkpoint, Error> {
        read(&Self::path(folder, which)?)
    }

    /// Reads the checkpoint that is meant to use its model: what optimizers kept is verified, but not in memory.
    pub fn find_to_use(folder: &Path, which: &Which) -> Result<Checkpoint, Error> {
        read_to_use(&Self::path(folder, which)?)
    }

    /// Reads only the configuration in force of the checkpoint that is meant; also its path.
    pub fn experiment(folder: &Path, which: &Which) -> Result<(PathBuf, String), Error> {
        let path = Self::path(folder, which)?;
        let text = fs::read_to_string(path.join(EXPERIMENT));
        let text = text.map_err(|error| Error::checkpoint(&path, error))?;
        Ok((path, text))
    }

    fn path(folder: &Path, which: &Which) -> Result<PathBuf, Error> {
        let manifests = Self::list(folder)?;
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
        Ok(folder.join(&manifest.id))
    }

    /// Reads the newest checkpoint that is intact; tells `refused` about newer ones that are not.
    pub fn newest_intact(
        folder: &Path,
        refused: &mut dyn FnMut(&Error),
    ) -> Result<Option<Checkpoint>, Error> {
        for name in names(folder)?.iter().rev() {
            match read(&folder.join(name)) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => refused(&error),
            }
        }
        Ok(None)
    }
}

/// The writer lives on when writing panics, and says so.
fn write_caught(
    folder: &Path,
    snapshot: &Snapshot,
    tables: Option<Finish>,
) -> Result<PathBuf, Error> {
    let written = catch_unwind(AssertUnwindSafe(|| write(folder, snapshot, tables)));
    written.unwrap_or_else(|panic| {
        let text = panic_text(&*panic).unwrap_or("it panicked without a message");
        Err(Error::checkpoint(&folder.join(&snapshot.id), format!("writing it: {text}")))
    })
}

fn ended() -> Error {
    Error::Invalid("the thread that writes checkpoints has ended; its log says why".to_string())
}

/// The names of all checkpoints that count, oldest first.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let counted = Counted::read(folder)?;
    // A folder that cannot be read is not an empty one.
    match fs::read_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(folder)(error)),
        _ => {}
    }
    let counts = |name: &String| counted.as_ref().is_none_or(|list| list.has(name));
    let mut names: Vec<String> = beginning_with("step-", folder).filter(counts).collect();
    names.sort();
    Ok(names)
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
pub(super) fn best_first(manifests: &[Manifest]) -> Vec<&Manifest> {
    let mut validated: Vec<(f64, &Manifest)> =
        manifests.iter().filter_map(|manifest| Some((manifest.watched?, manifest))).collect();
    validated.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    validated.into_iter().map(|(_, manifest)| manifest).collect()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
