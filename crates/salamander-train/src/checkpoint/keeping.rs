//! Which checkpoints of a run are kept, where they are found again, and what is removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::experiment::{CheckpointPolicy, CheckpointStorage};
use salamander_files::{put_back, real};

use super::remote::RemoteCheckpoints;
use super::store::{SCRATCH, beginning_with, best_first, names};
use super::{Checkpoint, CheckpointStore, Manifest, read};
use crate::Error;

/// Checkpoints that a run keeps at least, so that a broken one can be replaced by the one before.
const AT_LEAST: usize = 2;
/// The pause before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(2);

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

    /// Removes the checkpoints that the policy does not keep, and what is older than the newest one and does not count.
    /// Only called by whoever writes checkpoints, after `last`, which will count in a moment.
    pub(super) fn remove_superfluous(&self, last: &Path) {
        let (manifests, counting) = match (CheckpointStore::list(&self.folder), names(&self.folder))
        {
            (Ok(manifests), Ok(counting)) => (manifests, counting),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "it is not known what counts, so nothing is removed");
                return;
            }
        };
        let Some(newest) = manifests.last().map(|manifest| manifest.id.as_str()) else { return };
        let superfluous = self.superfluous(&manifests);
        let others = |name: &String| last.file_name() != Some(name.as_ref());
        for name in beginning_with("step-", &self.folder).filter(others) {
            // Something newer may still be on its way to count.
            let given_up = !counting.contains(&name) && name.as_str() < newest;
            if given_up || superfluous.contains(&name) {
                remove(&self.folder.join(name));
            }
        }
        // Whoever was writing or bringing something older was killed.
        for name in beginning_with(".step-", &self.folder).filter(|name| &name[1..] < newest) {
            remove(&self.folder.join(name));
        }
    }

    /// The checkpoints that the policy does not keep, of all that count, oldest first.
    pub(super) fn superfluous(&self, manifests: &[Manifest]) -> Vec<String> {
        let newest = manifests.iter().rev().take(AT_LEAST);
        let latest = match self.policy {
            CheckpointPolicy::All => usize::MAX,
            CheckpointPolicy::Best | CheckpointPolicy::None => {
                self.storage.save_trial_latest as usize
            }
        };
        // Those that are only to recover from take nobody's place.
        let latest = manifests.iter().rev().filter(|manifest| !manifest.recovery).take(latest);
        // Any of them may be among the best of all trials, which is known when the experiment is over.
        let storage = &self.storage;
        let good = storage.save_trial_best.max(storage.save_experiment_best) as usize;
        let best = best_first(manifests).into_iter().take(good);
        let kept: Vec<&str> = newest.chain(latest).chain(best).map(|m| m.id.as_str()).collect();
        let superfluous = manifests.iter().filter(|manifest| !kept.contains(&manifest.id.as_str()));
        superfluous.map(|manifest| manifest.id.clone()).collect()
    }

    /// The checkpoint with this id, here or in the run's store; the newest one before it that is intact when neither
    /// is.
    pub(crate) fn intact(&self, id: &str) -> Result<Checkpoint, Error> {
        self.intact_in(self.remote()?.as_ref(), id)
    }

    pub(super) fn intact_in(
        &self,
        remote: Option<&RemoteCheckpoints>,
        id: &str,
    ) -> Result<Checkpoint, Error> {
        match self.one(id, remote) {
            Err(error @ Error::Checkpoint { .. }) => {
                tracing::warn!(%error, "trying the checkpoint before it");
                let others = self.newest_of(remote, Some(id), &mut |error| {
                    tracing::warn!(%error, "trying the checkpoint before it");
                });
                others?.ok_or(error)
            }
            found => found,
        }
    }

    /// The newest checkpoint that is intact, here or in the run's store; tells `refused` about newer ones that are not.
    pub(crate) fn newest(
        &self,
        refused: &mut dyn FnMut(&Error),
    ) -> Result<Option<Checkpoint>, Error> {
        self.newest_of(self.remote()?.as_ref(), None, refused)
    }

    fn newest_of(
        &self,
        remote: Option<&RemoteCheckpoints>,
        but: Option<&str>,
        refused: &mut dyn FnMut(&Error),
    ) -> Result<Option<Checkpoint>, Error> {
        let mut tried: Vec<String> = but.into_iter().map(str::to_string).collect();
        let mut ids = names(&self.folder)?;
        for in_store in [false, true] {
            if let Some(remote) = remote.filter(|_| in_store) {
                let there = remote.counting().map_err(unreachable(remote))?;
                ids = there.into_iter().map(|manifest| manifest.id).collect();
            }
            for id in ids.iter().rev() {
                if tried.contains(id) {
                    continue;
                }
                match self.one(id, remote) {
                    Err(error @ Error::Checkpoint { .. }) => refused(&error),
                    found => return found.map(Some),
                }
                tried.push(id.clone());
            }
        }
        Ok(None)
    }

    /// One checkpoint; an intact copy in the store takes the place of a damaged folder. A store that does not answer is
    /// no reason to begin with something older: it is an error of another kind.
    fn one(&self, id: &str, remote: Option<&RemoteCheckpoints>) -> Result<Checkpoint, Error> {
        let path = self.folder.join(id);
        let (error, remote) = match (read(&path), remote) {
            (Ok(checkpoint), _) => return Ok(checkpoint),
            (Err(error), None) => return Err(error),
            (Err(error), Some(remote)) => (error, remote),
        };
        let store = remote.url();
        if path.exists() {
            tracing::warn!(%error, store, "it is brought from the store");
        }
        match remote.download(id, &self.folder) {
            Err(error) if !matches!(error, Error::Checkpoint { .. }) => {
                tracing::warn!(%error, store, "a checkpoint cannot be brought yet; trying again");
                std::thread::sleep(STORE_PAUSE);
                remote.download(id, &self.folder).map_err(unreachable(remote))
            }
            brought => brought,
        }
    }
}

/// What is wrong with a checkpoint stays that; everything else is the store's.
fn unreachable(remote: &RemoteCheckpoints) -> impl FnOnce(Error) -> Error {
    |error| match error {
        Error::Checkpoint { .. } => error,
        error => Error::Unreachable(format!("{}: {error}", remote.url())),
    }
}

/// Removes what killed processes of a run have left among its checkpoints: folders in the making, and checkpoints that
/// never counted. For when none of its processes is alive.
pub fn remove_leftovers(folder: &Path) -> Result<(), Error> {
    if !folder.is_dir() {
        return Ok(());
    }
    put_back(&*real(), folder).map_err(Error::io(folder))?;
    let counting = names(folder)?;
    // Those of asynchronous training are named otherwise, and servers begin with them.
    let rows_of_steps = format!("{SCRATCH}step-");
    let uncounted = beginning_with("step-", folder).filter(|name| !counting.contains(name));
    let scratch = beginning_with(&rows_of_steps, folder);
    for name in uncounted.chain(beginning_with(".step-", folder)).chain(scratch) {
        remove(&folder.join(name));
    }
    let temporary = beginning_with("", folder).filter(|name| name.ends_with(".tmp"));
    temporary.for_each(|name| drop(fs::remove_file(folder.join(name))));
    Ok(())
}

fn remove(path: &Path) {
    // A folder that cannot be removed is only a waste of room.
    let _ = fs::remove_dir_all(path);
}
