//! A checkpoint's folder from the files that servers wrote: dense parameters and the ledger are read back from them, so
//! that the folder says what the partitions hold and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use salamander_core::asynchronous::{Applied, Numbering};
use salamander_core::course::KeptRows;
use salamander_core::ledger::{Ledger, Tally};
use salamander_core::plan::Plan;
use salamander_ps::{Held, checkpoint as rows};

use super::dense::{BLOCK, Dense, TABLE};
use crate::Error;
use crate::checkpoint::{self, CheckpointStore, Keeping, Snapshot, beginning_with, read_manifest};
use crate::example::AssetFiles;
use crate::progress::Progress;

/// What all checkpoints of a run have in common.
pub(super) struct CheckpointFolders {
    pub(super) keeping: Keeping,
    pub(super) experiment: String,
    pub(super) assets: AssetFiles,
    /// Everything the model keeps, as it began.
    pub(super) model: Vec<(String, TensorData)>,
    pub(super) dense: Dense,
    pub(super) plan: Plan,
    pub(super) names: Numbering,
    pub(super) epochs: u64,
}

impl CheckpointFolders {
    /// Makes the folder, unless it is there; returns its name and the progress in it.
    pub(super) fn keep(&self, kept: KeptRows) -> Result<(String, Progress), Error> {
        let KeptRows { checkpoint: kept, files, mut progress, watched, recovery } = kept;
        let held = rows::held(&files)?;
        self.fill_in(&mut progress, &held);
        let ending = format!("-{:03}-{:04}", kept.id.term.0, kept.id.number);
        let store = CheckpointStore::open(self.keeping.clone())?;
        let name = match self.find(&ending) {
            Some(there) => there,
            None => {
                let snapshot = Snapshot {
                    id: format!("{}{ending}", checkpoint::id(progress.steps)),
                    progress: progress.clone(),
                    model: self.parameters(&files)?,
                    optimizers: Default::default(),
                    experiment: self.experiment.clone(),
                    assets: self.assets.clone(),
                    watched,
                    micro_batches: self.plan.slices,
                    recovery,
                };
                let name = snapshot.id.clone();
                store.save(snapshot, Some(Box::new(move |folder: &Path| link(&files, folder))))?;
                name
            }
        };
        self.close(store)?;
        Ok((name, progress))
    }

    /// Waits for the writer. A checkpoint that cannot be put into the run's store counts here all the same.
    fn close(&self, store: CheckpointStore) -> Result<(), Error> {
        match store.close() {
            Err(Error::NotStored(reason)) => {
                tracing::error!(reason, "a checkpoint is not in the store");
                Ok(())
            }
            closed => closed.map(drop),
        }
    }

    /// The folder of a checkpoint with this ending.
    fn find(&self, ending: &str) -> Option<String> {
        let folder = &self.keeping.folder;
        let is_it =
            |name: &String| name.ends_with(ending) && read_manifest(&folder.join(name)).is_ok();
        beginning_with("step-", folder).find(is_it)
    }

    /// The model with the dense parameters that the files hold.
    fn parameters(&self, files: &[PathBuf]) -> Result<Vec<(String, TensorData)>, Error> {
        let mut blocks = vec![0.0; self.dense.blocks() * BLOCK];
        let mut found = BTreeSet::new();
        rows::for_each_row(files, TABLE, |id, row| {
            let at = id as usize;
            if let Some(block) = blocks.chunks_exact_mut(BLOCK).nth(at) {
                block.copy_from_slice(row);
                found.insert(at);
            }
        })?;
        if found.len() != self.dense.blocks() {
            let (found, all) = (found.len(), self.dense.blocks());
            let reason = format!("{found} of {all} blocks of dense parameters are in the files");
            return Err(Error::Invalid(reason));
        }
        let mut trained = self.dense.scatter(&blocks, &found);
        let value = |(path, first): &(String, TensorData)| {
            (path.clone(), trained.remove(path).unwrap_or_else(|| first.clone()))
        };
        Ok(self.model.iter().map(value).collect())
    }

    /// What the partitions say about records and steps.
    fn fill_in(&self, progress: &mut Progress, held: &[Held]) {
        let sets = held.iter().map(|held| held.applied.clone());
        let all = Applied::everything(self.names.slices(), self.epochs);
        let applied = sets.fold(all, |both, set| both.intersect(&set));
        progress.after = None;
        progress.steps = self.names.complete_steps(&applied, self.epochs);
        let steps = self.plan.steps().max(1);
        (progress.epoch, progress.step) = (progress.steps.0 / steps, progress.steps.0 % steps);
        let within = progress.step * self.plan.aggregation;
        progress.batches = progress.epoch * self.plan.batches() + within;
        progress.ledger = self.ledger(&applied, held);
        progress.records = progress.ledger.lines().iter().map(|line| line.applied).sum();
    }

    /// The worst that any partition says: records that were counted twice, if there are any, otherwise the fewest that
    /// were counted.
    fn ledger(&self, applied: &Applied, held: &[Held]) -> Ledger {
        let mut ledger = Ledger::default();
        let epochs: BTreeSet<u64> =
            held.iter().flat_map(|held| held.pages.keys().copied()).collect();
        for epoch in epochs {
            let page = |held: &Held| held.pages.get(&epoch).copied().unwrap_or_default();
            let counted = |page: &salamander_ps::LedgerPage| page.applied + page.skipped;
            let more = |held: &Held| {
                counted(&page(held)).saturating_sub(self.records(&held.applied, epoch))
            };
            let duplicated = held.iter().map(more).max().unwrap_or(0);
            let worst = match duplicated {
                0 => held.iter().map(page).min_by_key(counted),
                _ => held.iter().map(page).max_by_key(counted),
            };
            let worst = worst.unwrap_or_default();
            let tally = Tally {
                applied: worst.applied,
                skipped: worst.skipped,
                digest: worst.digest,
                positions: self.positions(applied, epoch),
                ..Tally::default()
            };
            ledger.replace(epoch, self.plan.records, &tally, duplicated);
        }
        ledger
    }

    /// The records of an epoch whose names are in a set.
    fn records(&self, applied: &Applied, epoch: u64) -> u64 {
        self.positions(applied, epoch).iter().map(|range| range.end - range.start).sum()
    }

    /// The positions of an epoch's order whose names are in a set.
    fn positions(&self, applied: &Applied, epoch: u64) -> Vec<std::ops::Range<u64>> {
        if applied.lacks(epoch, self.names.all()).is_empty() {
            return std::iter::once(0..self.plan.records).collect();
        }
        let mut all = Vec::new();
        for step in 0..self.plan.steps() {
            let slices = self.plan.micro_batches(epoch, step, self.plan.aggregation);
            let done = slices.into_iter().filter(|slice| applied.contains(slice.name));
            all.extend(done.map(|slice| slice.positions));
        }
        all
    }
}

/// Puts the servers' files into a folder without a copy where the disk can, because servers may still begin with them.
fn link(files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut linked = Vec::new();
    for file in files {
        let to = folder.join(file.file_name().unwrap_or_default());
        if fs::hard_link(file, &to).is_err() {
            fs::copy(file, &to).map_err(Error::io(file))?;
        }
        linked.push(to);
    }
    Ok(linked)
}

#[cfg(test)]
mod tests {
    use salamander_core::experiment::{CheckpointPolicy, CheckpointStorage};
    use salamander_core::ledger::LedgerLine;
    use salamander_core::plan::MicroBatch;
    use salamander_core::seed::mix;
    use salamander_ps::{LedgerPage, Pages};

    use super::*;

    const RECORDS: u64 = 10;

    /// Two slices of two records in a step: three steps, the last one short.
    fn folders() -> CheckpointFolders {
        let plan = Plan { records: RECORDS, batch: 4, aggregation: 1, slices: 2 };
        CheckpointFolders {
            keeping: Keeping {
                folder: PathBuf::new(),
                policy: CheckpointPolicy::Best,
                storage: CheckpointStorage::default(),
            },
            experiment: String::new(),
            assets: AssetFiles::default(),
            model: Vec::new(),
            dense: Dense::empty(),
            plan,
            names: Numbering::of(&plan),
            epochs: 2,
        }
    }

    /// A partition that has the names with these numbers, some of them twice.
    fn held(folders: &CheckpointFolders, numbers: &[u64]) -> Held {
        let mut applied = Applied::new(2);
        let mut page = LedgerPage::default();
        for number in numbers {
            let name: MicroBatch = folders.names.name(0, *number);
            applied.insert(name);
            let slices = folders.plan.micro_batches(0, name.step, 1);
            let slice = slices.iter().find(|slice| slice.name == name).expect("it has one");
            for record in slice.positions.clone() {
                page.add(&LedgerPage { applied: 1, skipped: 0, digest: mix(record) });
            }
        }
        Held { partitions: vec![0], applied, pages: Pages::from([(0, page)]) }
    }

    fn line(partitions: &[&[u64]]) -> (LedgerLine, u64) {
        let folders = folders();
        let held: Vec<Held> = partitions.iter().map(|names| held(&folders, names)).collect();
        let mut progress = Progress::default();
        folders.fill_in(&mut progress, &held);
        (progress.ledger.lines().remove(0), progress.steps.0)
    }

    #[test]
    fn a_complete_epoch_is_clean() {
        let all = [0, 1, 2, 3, 4].as_slice();
        let (line, steps) = line(&[all, all]);
        assert_eq!((line.applied, line.missing, line.duplicated), (RECORDS, 0, 0));
        assert!(line.intact);
        assert_eq!(steps, 3);
    }

    #[test]
    fn what_one_partition_lacks_is_missing() {
        let (line, steps) = line(&[&[0, 1, 2, 3, 4], &[0, 1, 3, 4]]);
        assert_eq!((line.applied, line.missing, line.duplicated), (8, 2, 0));
        assert_eq!(steps, 1);
    }

    #[test]
    fn what_one_partition_counted_twice_is_duplicated() {
        let (line, _) = line(&[&[0, 1, 2, 3, 4], &[0, 1, 2, 2, 3, 4]]);
        assert_eq!((line.applied, line.missing, line.duplicated), (RECORDS + 2, 0, 2));
    }
}
