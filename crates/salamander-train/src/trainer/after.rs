//! What the course asks for between steps: validations, checkpoints, and the end.

use std::path::PathBuf;
use std::time::Instant;

use salamander_core::elastic::Work;
use salamander_core::report::{EndReport, EpochReport, EvaluationPart, Timings};
use salamander_core::tree::{self, Share};

use super::tree_fold::TreeFold;
use super::{Outcome, Trainer};
use crate::Error;
use crate::checkpoint::{CheckpointStore, Snapshot};
use crate::evaluate::{self, BatchRange, Over, evaluate_share};
use crate::trial::Trial;

impl<T: Trial> Trainer<T> {
    /// Each member validates its share; the parts add up to each record once.
    pub(super) fn validate(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        self.move_rows()?;
        let Some(dataset) = &self.prepared.validation else {
            return Err(Error::Invalid("data.validation: there are no files".to_string()));
        };
        let over = Over::new(&self.prepared.setup.experiment, true);
        let leaves: Vec<u32> = (0..evaluate::batches(dataset, over.batch) as u32).collect();
        let own = self.place.share(leaves.len());
        let (callbacks, exchange) = (&mut self.callbacks, &mut self.exchange);
        callbacks.tell(|callback| callback.validation_start(own.len() as u64));
        let batches = own.start as u64..own.end as u64;
        let part = BatchRange { dataset, over, batches };
        let share = Share { leaves: &leaves, own };
        let (model, assets) = (&*self.state.model, &self.prepared.assets);
        let own = evaluate_share(model, assets, part, share, &mut || {
            // With many batches this takes long; who hangs comes to no next one.
            exchange.working(Work::Computing, 0);
            callbacks.tell(|callback| callback.validation_batch());
            Ok(())
        });
        // Rows that cannot be had are no fault of the model, whatever it makes of that.
        self.state.tables.check()?;
        let own = own?;
        let members: Vec<Vec<EvaluationPart>> = self.meet("validation", &own)?;
        // In the order of batches, whoever went over them: schedules and the best checkpoint depend on the last digit.
        let fold = TreeFold::of(&leaves, self.place.size)?;
        let parts = fold.matched(members.into_iter())?;
        let all = tree::fold(parts, &fold.joins, EvaluationPart::join).unwrap_or_default();
        let found = all.finish().metrics;
        let value = self.course.watched(&found)?;
        let applying = self.exchange.commit(value.to_bits())?;
        let stop = self.callbacks.ask(|callback, control| callback.validation_end(&found, control));
        let told = self.course.validated(found, stop, self.started.elapsed())?;
        self.tell_epoch(told);
        drop(applying);
        self.timings.test += started.elapsed();
        Ok(())
    }

    pub(super) fn tell_epoch(&mut self, report: Option<EpochReport>) {
        if let Some(report) = report {
            self.callbacks.tell(|callback| callback.epoch_end(&report));
        }
    }

    /// All members meet, so that all of them hold what is written; then one writes it.
    pub(super) fn save_together(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        self.move_rows()?;
        // What recovers a run must be what all members hold.
        let weights = (self.place.size > 1).then(|| self.own_weights());
        let all: Vec<Option<u64>> = self.meet("checkpoint", &weights)?;
        self.agree(&all)?;
        let _applying = self.exchange.commit(1)?;
        let (recovery, watched) = (self.course.is_recovery(), self.course.saved());
        if self.place.leads() {
            // A disk may be slow, for which this member is not to blame.
            self.exchange.working(Work::Idle, 0);
            self.save(watched, recovery)?;
            self.exchange.working(Work::Computing, 0);
        }
        self.saving += started.elapsed();
        Ok(())
    }

    /// Whoever wants to leave may do so once the checkpoint is written. Nobody goes on before that: what was done since
    /// would be done again.
    pub(super) fn hold(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.holds) {
            return Ok(());
        }
        let written = self.checkpoints.written(CheckpointStore::flush)?;
        self.tell_saved(&written.paths);
        if let Some(error) = &written.failed {
            tracing::warn!(%error, "the checkpoint that a server waits for was not written");
        }
        self.exchange.hold(self.place.leads() && written.failed.is_none())
    }

    /// Hands the state to the writer of checkpoints.
    fn save(&mut self, watched: Option<f64>, recovery: bool) -> Result<(), Error> {
        let id = self.exchange.checkpoint_id(self.course.progress().steps);
        let snapshot = Snapshot { recovery, ..self.snapshot(id, watched) };
        let rows = self.state.save_rows(&self.checkpoints.scratch(&snapshot.id))?;
        self.checkpoints.save(snapshot, rows)
    }

    /// Tells of the checkpoints that are on disk by now. One whose rows a server could not write is left out: the one
    /// before it stays in force, and training goes on.
    pub(super) fn report_saved(&mut self) -> Result<(), Error> {
        let written = self.checkpoints.written(CheckpointStore::finished)?;
        self.tell_saved(&written.paths);
        if let Some(error) = written.failed {
            tracing::warn!(%error, "a checkpoint was not written");
        }
        Ok(())
    }

    /// Waits for all checkpoints to be on disk.
    fn flush(&mut self) -> Result<(), Error> {
        let written = self.checkpoints.written(CheckpointStore::flush)?;
        self.tell_saved(&written.paths);
        written.failed.map_or(Ok(()), Err)
    }

    fn tell_saved(&mut self, paths: &[PathBuf]) {
        for path in paths {
            self.exchange.wrote(&path.file_name().unwrap_or_default().to_string_lossy());
            self.callbacks.tell(|callback| callback.checkpoint_saved(path));
        }
    }

    /// The last state is reached: it is on disk before anybody says so.
    pub(super) fn conclude(&mut self) -> Result<(), Error> {
        self.move_rows()?;
        let ranks: Vec<Timings> = self.meet("the end", &self.timings.clone())?;
        drop(self.exchange.commit(0)?);
        if self.place.leads() {
            let steps = self.course.progress().steps;
            let id = self.exchange.checkpoint_id(steps);
            if !self.checkpoints.has(steps, &id)? {
                self.save(None, false)?;
            }
            self.checkpoints.catch_up()?;
        }
        self.flush()?;
        let report = EndReport { progress: self.course.progress().clone(), ranks };
        self.exchange.conclude(self.course.ending(), report)
    }

    pub(super) fn finish(mut self, started: Instant) -> Result<Outcome, Error> {
        self.flush()?;
        let progress = self.course.progress().clone();
        self.callbacks.tell(|callback| callback.training_end(&progress));
        let timings = Timings { wall: started.elapsed(), ..self.timings };
        let (interrupted, ranks) = (progress.interrupted, Vec::new());
        let checkpoint = self.checkpoints.latest()?;
        Ok(Outcome { interrupted, progress, timings, ranks, checkpoint })
    }
}
