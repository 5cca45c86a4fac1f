//! Checkpoints that are to be removed, and those that experiments start from, which stay.

use super::db::{Db, OptionalExtension, params};
use super::writer::Touched;
use super::{Store, Tx};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// A checkpoint, by its run and its name.
pub(crate) type Place = (RunId, String);

impl Store {
    /// Checkpoints that it was decided to remove, and that may still be there.
    pub(crate) fn garbage(&self) -> Result<Vec<(ExperimentId, Place)>, Error> {
        self.read(|db| {
            let sql = "SELECT experiment, run, checkpoint FROM garbage ORDER BY run, checkpoint";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map((), |row| {
                Ok((ExperimentId(row.get(0)?), (RunId::from_number(row.get(1)?), row.get(2)?)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Experiments that are over, and for which nothing was decided yet.
    pub(crate) fn uncollected(&self) -> Result<Vec<(ExperimentId, String)>, Error> {
        self.read(|db| {
            let sql = "SELECT e.id, e.folder FROM uncollected u JOIN experiments e ON e.id = u.experiment \
                       ORDER BY e.id";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map((), |row| Ok((ExperimentId(row.get(0)?), row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The run of a folder below the runs.
    pub(crate) fn run_of(&self, folder: &str) -> Result<Option<RunId>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT id FROM runs WHERE folder = ?1")?;
            Ok(query.query_row([folder], |row| row.get(0)).optional()?.map(RunId::from_number))
        })
    }

    /// Whether it was decided to remove a checkpoint.
    pub(crate) fn is_garbage(&self, run: RunId, checkpoint: &str) -> Result<bool, Error> {
        self.read(|db| {
            let sql = "SELECT 1 FROM garbage WHERE run = ?1 AND checkpoint = ?2";
            Ok(db.prepare_cached(sql)?.exists(params![run.number(), checkpoint])?)
        })
    }

    /// Checkpoints that are versions of models.
    pub(crate) fn registered(&self) -> Result<Vec<Place>, Error> {
        self.read(|db| places(db, "SELECT run, checkpoint FROM model_versions"))
    }

    /// Checkpoints that experiments start from which are not completed.
    pub(crate) fn needed_sources(&self) -> Result<Vec<Place>, Error> {
        self.read(|db| {
            let sql = "SELECT s.run, s.checkpoint FROM sources s JOIN experiments e ON e.id = s.experiment \
                       WHERE e.state <> 'completed'";
            places(db, sql)
        })
    }

    /// Whether an experiment that is not completed starts from one of an experiment's runs.
    pub(crate) fn is_started_from(&self, id: ExperimentId) -> Result<bool, Error> {
        Ok(self.needed_sources()?.iter().any(|(run, _)| run.experiment() == id))
    }

    /// What an experiment starts from.
    pub fn source_of(&self, id: ExperimentId) -> Result<Option<(RunId, String)>, Error> {
        self.read(|db| {
            let sql = "SELECT run, checkpoint FROM sources WHERE experiment = ?1";
            let found = db
                .prepare_cached(sql)?
                .query_row([id.0], |row| Ok((RunId::from_number(row.get(0)?), row.get(1)?)));
            Ok(found.optional()?)
        })
    }

    /// Experiments of the hub that start from a run of an experiment.
    pub fn started_from(&self, id: ExperimentId) -> Result<Vec<ExperimentId>, Error> {
        let (first, last) = (RunId::whole(id), RunId::whole(ExperimentId(id.0 + 1)));
        self.read(|db| {
            let sql =
                "SELECT experiment FROM sources WHERE run >= ?1 AND run < ?2 ORDER BY experiment";
            let mut query = db.prepare_cached(sql)?;
            let numbers = [first.number(), last.number()];
            let rows = query.query_map(numbers, |row| Ok(ExperimentId(row.get(0)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

fn places(db: &Db, sql: &str) -> Result<Vec<Place>, Error> {
    let mut query = db.prepare_cached(sql)?;
    let rows = query.query_map((), |row| Ok((RunId::from_number(row.get(0)?), row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// An experiment is over: it is to be decided what goes.
pub(crate) fn ended(tx: &Tx<'_>, id: ExperimentId) -> Result<(), Error> {
    let sql = "INSERT INTO uncollected (experiment) VALUES (?1) ON CONFLICT DO NOTHING";
    tx.prepare_cached(sql)?.execute([id.0])?;
    Ok(())
}

/// Keeps what was decided; it is carried out afterwards, as often as it takes.
pub(crate) fn collect(tx: &Tx<'_>, id: ExperimentId, places: &[Place]) -> Result<(), Error> {
    tx.prepare_cached("DELETE FROM uncollected WHERE experiment = ?1")?.execute([id.0])?;
    discard(tx, id, places)
}

/// Keeps that these are to go, whatever is decided of others.
pub(crate) fn discard(tx: &Tx<'_>, id: ExperimentId, places: &[Place]) -> Result<(), Error> {
    for (run, name) in places {
        let sql = "INSERT INTO garbage (experiment, run, checkpoint) VALUES (?1, ?2, ?3) \
                   ON CONFLICT DO NOTHING";
        tx.prepare_cached(sql)?.execute(params![id.0, run.number(), name])?;
    }
    Ok(())
}

/// What was decided for an experiment is carried out: for these, or, where none is named, for all. Those that somebody
/// has decided on meanwhile still have their folders.
pub(crate) fn swept(tx: &Tx<'_>, id: ExperimentId, places: &[Place]) -> Result<(), Error> {
    let sql = "SELECT run, checkpoint FROM garbage WHERE experiment = ?1";
    let rows = tx
        .prepare_cached(sql)?
        .query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(i64, String)>, _>>()?;
    let is_gone = |run: i64, name: &str| {
        places.is_empty() || places.iter().any(|one| one.0.number() == run && one.1 == name)
    };
    for (run, name) in rows.into_iter().filter(|(run, name)| is_gone(*run, name)) {
        let sql = "UPDATE checkpoints SET state = 'deleted' WHERE run = ?1 AND name = ?2";
        tx.prepare_cached(sql)?.execute(params![run, name])?;
        let sql = "DELETE FROM garbage WHERE run = ?1 AND checkpoint = ?2";
        tx.prepare_cached(sql)?.execute(params![run, name])?;
        tx.touch(Touched::Run(run));
    }
    Ok(())
}

/// Keeps what an experiment starts from.
pub(crate) fn set_source(tx: &Tx<'_>, id: ExperimentId, source: &Place) -> Result<(), Error> {
    let sql = "INSERT INTO sources (experiment, run, checkpoint) VALUES (?1, ?2, ?3) \
               ON CONFLICT DO NOTHING";
    tx.prepare_cached(sql)?.execute(params![id.0, source.0.number(), source.1])?;
    Ok(())
}

/// Forgets all of it for an experiment that is gone.
pub(crate) fn forget(tx: &Tx<'_>, id: ExperimentId) -> Result<(), Error> {
    for table in ["garbage", "uncollected", "sources", "limits", "deliveries"] {
        tx.execute(&format!("DELETE FROM {table} WHERE experiment = ?1"), [id.0])?;
    }
    let (first, last) = (RunId::whole(id).number(), RunId::whole(ExperimentId(id.0 + 1)).number());
    tx.execute("DELETE FROM killed_trials WHERE run >= ?1 AND run < ?2", [first, last])?;
    Ok(())
}
