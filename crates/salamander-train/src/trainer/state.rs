//! The state of a training: taken for checkpoints and joiners, put back on resume and on joining.

use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::loss_scale::Scaler;
use salamander_core::seed::mix;

use super::Trainer;
use super::held::Held;
use crate::Error;
use crate::checkpoint::{
    self, Checkpoint, Restored, SCRATCH, Snapshot, Store, Vault, pack, sweep, unpack,
};
use crate::exchange::{Begin, Entered};
use crate::optimize::OptimizerState;
use crate::params;
use crate::progress::RowsMove;
use crate::tables::RowStore;
use crate::trial::Trial;

/// The pause before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(2);

impl<T: Trial> Trainer<T> {
    /// Goes on from a checkpoint.
    pub fn resume(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        let files = checkpoint.table_files();
        let Checkpoint { path, state, .. } = checkpoint;
        self.restore_rows(&files, state.progress.steps)?;
        self.restore(state).map_err(|reason| Error::checkpoint(&path, reason))?;
        self.progress.interrupted = false;
        Ok(())
    }

    /// Comes by the state that a generation begins with.
    pub(super) fn begin(&mut self, entered: Entered) -> Result<(), Error> {
        self.lineage = entered.rows;
        // What was written for the generation before may have come too late to count.
        self.saved = None;
        if let Begin::Load(id) = &entered.begin {
            // Nobody holds a state, so nothing that is still being written can count.
            sweep(&self.setup.checkpoints());
            let (model, tables, progress) = self.setup.fresh::<T>()?;
            if let Some(rows) = self.tables.close() {
                tables.with_optimizer(self.passes[0].optimizer).open(rows)?;
                tables.compute_in(self.arithmetic.precision);
            }
            (self.model, self.tables, self.progress) = (Held::new(model), tables, progress);
            self.optimizers = self.passes.iter().map(OptimizerState::new).collect();
            match id {
                Some(id) => self.resume(self.intact(id)?)?,
                None => self.restore_rows(&[], 0)?,
            }
            let to = self.progress.steps;
            self.progress.rows = Some(RowsMove { to, factor: 1.0, divisor: 1.0 });
        }
        let mut digest = 0;
        if let Some(source) = entered.transfer {
            let own = match source == entered.place.rank {
                true => pack(&self.snapshot(String::new(), None)).map_err(Error::Invalid)?,
                false => Vec::new(),
            };
            let state = self.exchange.transfer(source, own)?;
            let hash = blake3::hash(&state);
            digest = hash.as_bytes().iter().fold(0, |state, byte| mix(state ^ u64::from(*byte)));
            if entered.begin == Begin::Receive {
                // Decoded as a whole before anything is replaced.
                let sender = format!("the state of worker {source}");
                let state = unpack(&state).map_err(|e| Error::checkpoint(Path::new(&sender), e))?;
                self.restore(state).map_err(|e| Error::checkpoint(Path::new(&sender), e))?;
            }
        }
        self.follow_rows(entered.rows)?;
        self.exchange.adopt(digest)?;
        if entered.moves {
            self.relocate_rows(entered.generation)?;
        }
        Ok(())
    }

    /// Moves the rows of tables to other servers. All members hold the state that they belong to, and none of them does
    /// anything before they are there.
    fn relocate_rows(&mut self, lineage: u64) -> Result<(), Error> {
        self.meet("rows", &())?;
        if self.place.leads() {
            self.advance_rows()?;
            let version = self.progress.rows.map_or(0, |rows| rows.to);
            self.tables.with_store(|rows| rows.relocate(version, lineage))?;
            self.exchange.moved();
        }
        self.meet("moved rows", &())?;
        self.tables.with_store(|rows| {
            rows.relocated();
            Ok(())
        })?;
        self.follow_rows(lineage)
    }

    fn follow_rows(&mut self, lineage: u64) -> Result<(), Error> {
        self.lineage = lineage;
        let follow = |rows: &mut dyn RowStore| {
            rows.follow(lineage);
            Ok(())
        };
        self.tables.with_store(follow).map(drop)
    }

    fn restore_rows(&mut self, files: &[PathBuf], version: u64) -> Result<(), Error> {
        let lineage = self.lineage;
        self.tables.with_store(|rows| rows.restore(files, version, lineage)).map(drop)
    }

    /// The checkpoint with this id; the newest one before it that is intact when this one is not.
    fn intact(&self, id: &str) -> Result<Checkpoint, Error> {
        let folder = self.setup.checkpoints();
        self.fetch(id, &folder)?;
        checkpoint::read(&folder.join(id)).or_else(|error| {
            tracing::warn!(%error, "trying the checkpoint before it");
            Store::newest_intact(&folder, &mut |error| tracing::warn!(%error)).ok_or(error)
        })
    }

    /// Brings a checkpoint from the run's store, if this process does not see its folder. A store that does not answer
    /// is no reason to begin with something older: the generation is given up, and the next one asks again.
    fn fetch(&self, id: &str, folder: &Path) -> Result<(), Error> {
        if folder.join(id).exists() {
            return Ok(());
        }
        let storage = &self.setup.experiment.checkpoint_storage;
        let Some(vault) = Vault::of_run(storage, &self.setup.folder)? else { return Ok(()) };
        let bring = || match vault.download(id, folder) {
            Ok(_) => Ok(Some(id.to_string())),
            Err(error @ Error::Checkpoint { .. }) => {
                tracing::warn!(%error, "trying the checkpoint before it");
                vault.newest(folder, &mut |error| tracing::warn!(%error))
            }
            Err(error) => Err(error),
        };
        let store = vault.url();
        let brought = bring().or_else(|error| {
            tracing::warn!(%error, store, "a checkpoint cannot be brought yet; trying again");
            std::thread::sleep(STORE_PAUSE);
            bring()
        });
        let brought = brought.map_err(|error| Error::Unreachable(format!("{store}: {error}")))?;
        tracing::info!(?brought, store, "from the store");
        Ok(())
    }

    /// Opens the writer of checkpoints.
    pub(super) fn open_store(&mut self) -> Result<(), Error> {
        if self.store.is_none() {
            let experiment = &self.setup.experiment;
            let (policy, storage) =
                (experiment.checkpoint_policy, experiment.checkpoint_storage.clone());
            self.store = Some(Store::open(&self.setup.checkpoints(), policy, storage)?);
        }
        Ok(())
    }

    /// Hands the state to the writer of checkpoints.
    pub(super) fn save(&mut self, watched: Option<f64>) -> Result<(), Error> {
        let id = self.exchange.checkpoint_id(self.progress.steps);
        let snapshot = self.snapshot(id, watched);
        self.saved = Some(self.progress.steps);
        self.open_store()?;
        let scratch = self.setup.checkpoints().join(format!("{SCRATCH}{}", snapshot.id));
        let rows = self.tables.with_store(|rows| rows.save(&scratch))?;
        self.store.as_ref().map_or(Ok(()), |store| store.save(snapshot, rows))
    }

    /// Tells of the checkpoints that are on disk by now. One whose rows a server could not write is left out: the one
    /// before it stays in force, and training goes on.
    pub(super) fn report_saved(&mut self) -> Result<(), Error> {
        let finished = self.store.as_ref().map_or_else(Vec::new, Store::finished);
        if let Some(error) = self.tell_saved(finished)? {
            tracing::warn!(%error, "a checkpoint was not written");
        }
        Ok(())
    }

    /// Waits for all checkpoints to be on disk.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let finished = self.store.as_ref().map_or_else(Vec::new, Store::flush);
        self.tell_saved(finished)?.map_or(Ok(()), Err)
    }

    /// Returns why a server did not write its part, if one did not.
    fn tell_saved(
        &mut self,
        finished: Vec<Result<PathBuf, Error>>,
    ) -> Result<Option<Error>, Error> {
        let mut failed = None;
        for written in finished {
            match written {
                Ok(path) => {
                    self.exchange.wrote(&path.file_name().unwrap_or_default().to_string_lossy());
                    self.callbacks.iter_mut().for_each(|c| c.checkpoint_saved(&path));
                }
                Err(
                    error @ (Error::Unreachable(_) | Error::NotWritten(_) | Error::NotStored(_)),
                ) => {
                    self.saved = None;
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(failed)
    }

    fn snapshot(&mut self, id: String, watched: Option<f64>) -> Snapshot {
        for callback in &self.callbacks {
            if let Some((name, state)) = callback.state() {
                self.progress.callbacks.insert(name.to_string(), state);
            }
        }
        let named = self.passes.iter().zip(&self.optimizers);
        let optimizers = named.map(|(pass, state)| (pass.name.to_string(), state.params()));
        Snapshot {
            id,
            progress: self.progress.clone(),
            model: params::read(&*self.model),
            optimizers: optimizers.collect(),
            experiment: self.setup.experiment.to_yaml(&self.hyperparameters),
            watched,
        }
    }

    fn restore(&mut self, state: Restored) -> Result<(), String> {
        let Restored { progress, model, optimizers } = state;
        let model = params::write(self.model.clone(), model)?;
        let mut restored: Vec<OptimizerState> =
            self.passes.iter().map(OptimizerState::new).collect();
        for (pass, state) in self.passes.iter().zip(&mut restored) {
            for (name, param) in optimizers.get(pass.name).into_iter().flatten() {
                if param.slots.len() != pass.optimizer.slots().len() {
                    return Err(format!("its optimizer state for {name} is of another optimizer"));
                }
                state.insert(name.clone(), param.clone());
            }
        }
        for callback in &mut self.callbacks {
            if let Some((name, _)) = callback.state()
                && let Some(state) = progress.callbacks.get(name)
            {
                callback.restore(state);
            }
        }
        (self.model, self.optimizers, self.progress) = (Held::new(model), restored, progress);
        // A checkpoint of a run that did not scale its loss.
        let scaling = self.setup.experiment.optimizations.scaling();
        self.progress.scaler = self.progress.scaler.or(scaling.as_ref().map(Scaler::new));
        Ok(())
    }
}
