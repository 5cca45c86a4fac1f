//! The checkpoints of a run, as a process that trains sees them: written on a thread of their own, brought from the
//! run's store when their folder is not here.

use std::path::PathBuf;

use salamander_core::layout::COUNTED;
use salamander_core::progress::StepCount;

use super::Setup;
use crate::Error;
use crate::checkpoint::{Checkpoint, CheckpointStore, Keeping, Manifest, SCRATCH, Snapshot, read};
use crate::tables::Finish;

/// Writes checkpoints and finds them again.
pub(super) struct CheckpointWriter {
    keeping: Keeping,
    /// Opened by the member that writes.
    store: Option<CheckpointStore>,
    /// Steps at the last checkpoint that was handed over.
    saved: Option<StepCount>,
}

/// What became of the checkpoints that were handed over.
#[derive(Default)]
pub(super) struct Written {
    /// Those on disk.
    pub(super) paths: Vec<PathBuf>,
    /// Why a server or the store did not take its part of one. The one before it stays in force.
    pub(super) failed: Option<Error>,
}

impl CheckpointWriter {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { keeping: setup.keeping(), store: None, saved: None }
    }

    /// What was handed over for a generation before may have come too late to count.
    pub(super) fn forget_saved(&mut self) {
        self.saved = None;
    }

    /// Hands a state over.
    pub(super) fn save(&mut self, snapshot: Snapshot, rows: Option<Finish>) -> Result<(), Error> {
        self.saved = Some(snapshot.progress.steps);
        self.open()?.save(snapshot, rows)
    }

    /// Whether one that was handed over is not on disk yet.
    pub(super) fn is_writing(&self) -> bool {
        self.store.as_ref().is_some_and(CheckpointStore::is_writing)
    }

    /// Where files of a checkpoint are while they are being written.
    pub(super) fn scratch(&self, id: &str) -> PathBuf {
        self.keeping.folder.join(format!("{SCRATCH}{id}"))
    }

    /// Whether the last state is in a checkpoint that is intact, or about to be.
    pub(super) fn has(&self, steps: StepCount, id: &str) -> Result<bool, Error> {
        // Where no list says what counts, one that was written for another generation may not.
        let listed = self.keeping.folder.join(COUNTED).exists();
        let folder = &self.keeping.folder;
        let counts = |old: &Manifest| {
            old.steps == steps && (listed || old.id == id) && read(&folder.join(&old.id)).is_ok()
        };
        Ok(self.saved == Some(steps) || CheckpointStore::list(folder)?.iter().any(counts))
    }

    /// What a killed process could not put into the run's store any more goes there.
    pub(super) fn catch_up(&mut self) -> Result<(), Error> {
        match self.keeping.storage.store {
            Some(_) => self.open().map(drop),
            None => Ok(()),
        }
    }

    /// The checkpoints since the last call: [`CheckpointStore::finished`] or [`CheckpointStore::flush`] says which.
    pub(super) fn written(
        &mut self,
        which: fn(&CheckpointStore) -> Vec<Result<PathBuf, Error>>,
    ) -> Result<Written, Error> {
        let mut written = Written::default();
        for each in self.store.as_ref().map_or_else(Vec::new, which) {
            match each {
                Ok(path) => written.paths.push(path),
                Err(
                    error @ (Error::Unreachable(_) | Error::NotWritten(_) | Error::NotStored(_)),
                ) => {
                    self.saved = None;
                    written.failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// The newest checkpoint in the folder.
    pub(super) fn latest(&self) -> Result<Option<PathBuf>, Error> {
        let newest = CheckpointStore::list(&self.keeping.folder)?.pop();
        Ok(newest.map(|manifest| self.keeping.folder.join(&manifest.id)))
    }

    /// The checkpoint with this id; the newest one before it that is intact when this one is not.
    pub(super) fn intact(&self, id: &str) -> Result<Checkpoint, Error> {
        self.keeping.intact(id)
    }

    fn open(&mut self) -> Result<&CheckpointStore, Error> {
        match &mut self.store {
            Some(store) => Ok(store),
            none => Ok(none.insert(CheckpointStore::open(self.keeping.clone())?)),
        }
    }
}
