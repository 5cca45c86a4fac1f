//! The begin of a generation: where its members' state comes from.

use std::path::PathBuf;

use salamander_core::asynchronous::Lineage;
use salamander_core::elastic::Work;
use salamander_core::progress::{RowsMove, StepCount};
use salamander_core::seed::mix;

use super::Trainer;
use crate::checkpoint::{Checkpoint, Restored, Snapshot, pack, sweep, unpack};
use crate::exchange::{Begin, Entered};
use crate::trial::Trial;
use crate::{Error, params};

/// What came of sending a state round.
struct Arrived {
    /// The state and who it is from, for a member that needs it.
    state: Option<(usize, Restored)>,
    /// Of its bytes.
    digest: u64,
}

/// The state of a member, as errors name it.
fn of(rank: usize) -> PathBuf {
    PathBuf::from(format!("the state of worker {rank}"))
}

impl<T: Trial> Trainer<T> {
    /// Goes on from a checkpoint.
    pub(crate) fn resume(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        let files = checkpoint.table_files();
        if let Some(name) = self.prepared.assets.files().difference(&checkpoint.assets) {
            let reason = format!(
                "{name} is not what it was when this was saved, so the model would see other inputs: put it back \
                 (asset-{name} in this checkpoint is a copy)"
            );
            return Err(Error::checkpoint(&checkpoint.path, reason));
        }
        let slices = self.course.plan().slices;
        if let Some(kept) = checkpoint.manifest.micro_batches.filter(|kept| *kept != slices) {
            let reason = format!(
                "it was trained with micro_batches: {kept}, and other slices add up to other bits: \
                 write that instead of {slices}"
            );
            return Err(Error::checkpoint(&checkpoint.path, reason));
        }
        let Checkpoint { path, state, .. } = checkpoint;
        self.state.restore_rows(&files, state.progress.steps)?;
        self.restore(state).map_err(|reason| Error::checkpoint(&path, reason))?;
        self.course.resume();
        Ok(())
    }

    /// Comes by the state that a generation begins with.
    pub(super) fn begin(&mut self, entered: Entered) -> Result<(), Error> {
        self.state.lineage = entered.rows;
        self.checkpoints.forget_saved();
        if let Begin::Load(id) = &entered.begin {
            // Nobody holds a state, so nothing that is still being written can count.
            sweep(&self.prepared.setup.checkpoints());
            self.state.begin_anew(&self.prepared)?;
            self.course.begin_anew();
            match id {
                Some(id) => self.resume(self.checkpoints.intact(id)?)?,
                None => self.state.restore_rows(&[], StepCount(0))?,
            }
            let to = self.course.progress().steps;
            let moved = RowsMove { to, factor: 1.0, divisor: 1.0 };
            self.course.progress_mut().rows = Some(moved);
        }
        let arrived = match entered.transfer {
            Some(source) => Some(self.transfer(source, &entered)?),
            None => None,
        };
        let digest = arrived.as_ref().map_or(0, |arrived| arrived.digest);
        // From here until the state has its name, nothing is promised: a name must stand for what it names.
        let replacing = match arrived.and_then(|arrived| arrived.state) {
            Some((source, state)) => {
                let replacing = self.exchange.replace()?;
                self.restore(state).map_err(|e| Error::checkpoint(&of(source), e))?;
                Some(replacing)
            }
            None => None,
        };
        self.state.follow_rows(entered.rows)?;
        self.exchange.adopt(digest)?;
        drop(replacing);
        if let Some(lineage) = entered.moves {
            self.relocate_rows(lineage)?;
        }
        Ok(())
    }

    /// One member sends its state to those that have none.
    fn transfer(&mut self, source: usize, entered: &Entered) -> Result<Arrived, Error> {
        let own = match source == entered.place.rank {
            true => pack(&self.snapshot(String::new(), None)).map_err(Error::Invalid)?,
            false => Vec::new(),
        };
        let state = self.exchange.transfer(source, own)?;
        let hash = blake3::hash(&state);
        let digest = hash.as_bytes().iter().fold(0, |state, byte| mix(state ^ u64::from(*byte)));
        let state = match entered.begin {
            // Decoded as a whole before anything is replaced.
            Begin::Receive => {
                let state = unpack(&state).map_err(|e| Error::checkpoint(&of(source), e))?;
                Some((source, state))
            }
            Begin::Keep | Begin::Load(_) => None,
        };
        Ok(Arrived { state, digest })
    }

    /// Moves the rows of tables to other servers. All members hold the state that they belong to, and none of them does
    /// anything before they are there.
    fn relocate_rows(&mut self, lineage: Lineage) -> Result<(), Error> {
        self.meet("rows", &())?;
        if self.place.leads() {
            let moved = self.course.progress().rows;
            self.state.advance_rows(moved)?;
            let done = moved.map(|rows| rows.to).unwrap_or_default();
            // The others wait for as long as it takes; that is no hang.
            self.exchange.working(Work::Idle, 0);
            self.state.tables.with_shared(|rows| rows.relocate(done, lineage))?;
            self.exchange.working(Work::Computing, 0);
            self.exchange.moved();
        }
        self.meet("moved rows", &())?;
        self.state.tables.with_shared(|rows| {
            rows.relocated();
            Ok(())
        })?;
        self.state.follow_rows(lineage)
    }

    /// A copy of the state, for a checkpoint or a member that joins.
    pub(super) fn snapshot(&mut self, id: String, watched: Option<f64>) -> Snapshot {
        self.callbacks.save(self.course.progress_mut());
        Snapshot {
            id,
            progress: self.course.progress().clone(),
            model: params::read(&*self.state.model),
            optimizers: self.state.optimizer_states(),
            experiment: self.prepared.experiment_text.clone(),
            assets: self.prepared.assets.files().clone(),
            watched,
            micro_batches: self.course.plan().slices,
            recovery: false,
        }
    }

    fn restore(&mut self, state: Restored) -> Result<(), String> {
        let Restored { progress, model, optimizers } = state;
        self.state.restore(model, &optimizers)?;
        self.callbacks.restore(&progress);
        self.course.restore(progress);
        Ok(())
    }
}
