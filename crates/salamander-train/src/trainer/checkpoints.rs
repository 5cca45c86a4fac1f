//! The checkpoints of a run, as a process that trains sees them: written on a thread of their own, brought from the
//! run's store when their folder is not here.

use std::path::PathBuf;
use std::time::Duration;

use salamander_core::layout::COUNTED;

use super::Setup;
use crate::Error;
use crate::checkpoint::{self, Checkpoint, Keeping, Manifest, SCRATCH, Snapshot, Store};
use crate::tables::Finish;

/// The pause before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(2);

/// Writes checkpoints and finds them again.
pub(super) struct CheckpointWriter {
    keeping: Keeping,
    /// Opened by the member that writes.
    store: Option<Store>,
    /// Steps at the last checkpoint that was handed over.
    saved: Option<u64>,
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

    /// Where files of a checkpoint are while they are being written.
    pub(super) fn scratch(&self, id: &str) -> PathBuf {
        self.keeping.folder.join(format!("{SCRATCH}{id}"))
    }

    /// Whether the last state is in a checkpoint, or about to be.
    pub(super) fn has(&self, steps: u64, id: &str) -> bool {
        // Where no list says what counts, one that was written for another generation may not.
        let listed = self.keeping.folder.join(COUNTED).exists();
        let counts = |old: &Manifest| old.steps == steps && (listed || old.id == id);
        self.saved == Some(steps) || Store::list(&self.keeping.folder).iter().any(counts)
    }

    /// What a killed process could not put into the run's store any more goes there.
    pub(super) fn catch_up(&mut self) -> Result<(), Error> {
        match self.keeping.storage.store {
            Some(_) => self.open().map(drop),
            None => Ok(()),
        }
    }

    /// The checkpoints since the last call: [`Store::finished`] or [`Store::flush`] says which.
    pub(super) fn written(
        &mut self,
        which: fn(&Store) -> Vec<Result<PathBuf, Error>>,
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
    pub(super) fn latest(&self) -> Option<PathBuf> {
        Store::list(&self.keeping.folder)
            .last()
            .map(|manifest| self.keeping.folder.join(&manifest.id))
    }

    /// The checkpoint with this id; the newest one before it that is intact when this one is not.
    pub(super) fn intact(&self, id: &str) -> Result<Checkpoint, Error> {
        self.fetch(id)?;
        checkpoint::read(&self.keeping.folder.join(id)).or_else(|error| {
            tracing::warn!(%error, "trying the checkpoint before it");
            Store::newest_intact(&self.keeping.folder, &mut |error| tracing::warn!(%error))
                .ok_or(error)
        })
    }

    fn open(&mut self) -> Result<&Store, Error> {
        match &mut self.store {
            Some(store) => Ok(store),
            none => Ok(none.insert(Store::open(self.keeping.clone())?)),
        }
    }

    /// Brings a checkpoint from the run's store, if this process does not see its folder. A store that does not answer
    /// is no reason to begin with something older: the generation is given up, and the next one asks again.
    fn fetch(&self, id: &str) -> Result<(), Error> {
        let folder = &self.keeping.folder;
        if folder.join(id).exists() {
            return Ok(());
        }
        let Some(remote) = self.keeping.remote()? else { return Ok(()) };
        let bring = || match remote.download(id, folder) {
            Ok(_) => Ok(Some(id.to_string())),
            Err(error @ Error::Checkpoint { .. }) => {
                tracing::warn!(%error, "trying the checkpoint before it");
                remote.newest(folder, &mut |error| tracing::warn!(%error))
            }
            Err(error) => Err(error),
        };
        let store = remote.url();
        let brought = bring().or_else(|error| {
            tracing::warn!(%error, store, "a checkpoint cannot be brought yet; trying again");
            std::thread::sleep(STORE_PAUSE);
            bring()
        });
        let brought = brought.map_err(|error| Error::Unreachable(format!("{store}: {error}")))?;
        tracing::info!(?brought, store, "from the store");
        Ok(())
    }
}
