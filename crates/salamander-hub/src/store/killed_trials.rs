//! Trials that somebody has ended, and folders that went away under their runs.

use super::db::{DbRow, params};
use super::writer::Touched;
use super::{Store, Tx, experiments};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

impl Store {
    /// Trials that are to be ended and may not know it yet.
    pub(crate) fn killed_trials(&self) -> Result<Vec<RunId>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT run FROM killed_trials ORDER BY run")?;
            let rows = query.query_map((), |row| Ok(RunId::from_number(row.get(0)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Their search knows.
    pub(crate) fn forget_killed_trial(&self, run: RunId) -> Result<(), Error> {
        self.write(move |tx| {
            let sql = "DELETE FROM killed_trials WHERE run = ?1";
            tx.prepare_cached(sql)?.execute([run.number()])?;
            Ok(())
        })
    }

    /// Experiments that somebody else started and that train, as far as is known, by their folders. Those of MLflow's
    /// clients have none.
    pub(crate) fn training_elsewhere(&self) -> Result<Vec<(ExperimentId, String)>, Error> {
        self.read(|db| {
            let sql = "SELECT id, folder FROM experiments WHERE state = 'running' AND origin = 'folder' \
                       AND kind <> ?1";
            let mut query = db.prepare_cached(sql)?;
            let row = |row: &DbRow<'_>| Ok((ExperimentId(row.get(0)?), row.get(1)?));
            let rows = query.query_map([experiments::OF_CLIENTS], row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The folder of an experiment went away while it trained.
    pub(crate) fn folder_gone(&self, id: ExperimentId) -> Result<(), Error> {
        self.write(move |tx| {
            let reason = "its folder is gone";
            let sql = "UPDATE experiments SET state = 'interrupted', fact = 'interrupted', reason = ?2, \
                       change = ?3 WHERE id = ?1";
            tx.prepare_cached(sql)?.execute(params![id.0, reason, tx.change])?;
            let sql = "UPDATE runs SET state = 'interrupted', reason = ?2, change = ?3 \
                       WHERE experiment = ?1 AND state IN ('running', 'queued')";
            tx.prepare_cached(sql)?.execute(params![id.0, reason, tx.change])?;
            tx.touch(Touched::Experiment(id.0));
            Ok(())
        })
    }
}

/// Somebody ends a trial.
pub(crate) fn kill(tx: &Tx<'_>, run: RunId) -> Result<(), Error> {
    let sql = "INSERT INTO killed_trials (run) VALUES (?1) ON CONFLICT DO NOTHING";
    tx.prepare_cached(sql)?.execute([run.number()])?;
    Ok(())
}
