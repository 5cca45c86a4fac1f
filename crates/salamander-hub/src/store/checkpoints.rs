//! Checkpoints: which there are, how good they are, and which are gone.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::db::{Db, DbError, DbRow, OptionalExtension, params};
use super::writer::Touched;
use super::{Store, Tx};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// A checkpoint of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The run.
    pub run: RunId,
    /// Its folder's name below the run's checkpoints.
    pub name: String,
    /// Steps done.
    pub steps: i64,
    /// The epoch of the next step.
    pub epoch: i64,
    /// The watched metric, smaller being better.
    pub watched: Option<f64>,
    /// Whether it is only to recover from.
    pub recovery: bool,
    /// The hash of all that was learned.
    pub weights_hash: Option<String>,
    /// The size of its files.
    pub bytes: i64,
    /// The last validation.
    pub validation: Json,
    /// `completed`, or `deleted`.
    pub state: String,
    /// When it was written, in milliseconds since 1970.
    pub created: i64,
}

const COLUMNS: &str =
    "run, name, steps, epoch, watched, recovery, weights_hash, bytes, validation, state, created";

fn read(row: &DbRow<'_>) -> Result<Checkpoint, DbError> {
    let validation: String = row.get(8)?;
    Ok(Checkpoint {
        run: RunId::from_number(row.get(0)?),
        name: row.get(1)?,
        steps: row.get(2)?,
        epoch: row.get(3)?,
        watched: row.get(4)?,
        recovery: row.get(5)?,
        weights_hash: row.get(6)?,
        bytes: row.get(7)?,
        validation: serde_json::from_str(&validation).unwrap_or_default(),
        state: row.get(9)?,
        created: row.get(10)?,
    })
}

impl Store {
    /// The checkpoints of a run, the oldest first; those that are gone as well.
    pub fn checkpoints(&self, run: RunId) -> Result<Vec<Checkpoint>, Error> {
        self.read(|db| {
            let sql =
                format!("SELECT {COLUMNS} FROM checkpoints WHERE run = ?1 ORDER BY steps, name");
            rows(db, &sql, &[run.number()])
        })
    }

    /// The checkpoints of all trials of an experiment, the best first.
    pub fn experiment_checkpoints(&self, id: ExperimentId) -> Result<Vec<Checkpoint>, Error> {
        let (first, last) = (RunId::whole(id), RunId::whole(ExperimentId(id.0 + 1)));
        self.read(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM checkpoints WHERE run >= ?1 AND run < ?2 \
                 ORDER BY state, watched IS NULL, watched, run, steps"
            );
            rows(db, &sql, &[first.number(), last.number()])
        })
    }

    /// One checkpoint.
    pub fn checkpoint(&self, run: RunId, name: &str) -> Result<Checkpoint, Error> {
        self.read(|db| get(db, run, name))
    }
}

fn rows(db: &Db, sql: &str, runs: &[i64]) -> Result<Vec<Checkpoint>, Error> {
    let rows = db.prepare_cached(sql)?.query_map(runs, read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn get(db: &Db, run: RunId, name: &str) -> Result<Checkpoint, Error> {
    let sql = format!("SELECT {COLUMNS} FROM checkpoints WHERE run = ?1 AND name = ?2");
    let found = db.prepare_cached(&sql)?.query_row(params![run.number(), name], read).optional()?;
    found.ok_or_else(|| Error::NotFound(format!("run {run} has no checkpoint {name:?}")))
}

/// Keeps which checkpoints a run has now; those that were there before are deleted ones. One that was written again may
/// say more than before, such as what was measured there.
pub(crate) fn set(tx: &Tx<'_>, run: RunId, there: &[Checkpoint]) -> Result<(), Error> {
    let known = format!("SELECT {COLUMNS} FROM checkpoints WHERE run = ?1 AND state = 'completed'");
    let known = rows(tx, &known, &[run.number()])?;
    for gone in known.iter().filter(|old| !there.iter().any(|now| now.name == old.name)) {
        let sql = "UPDATE checkpoints SET state = 'deleted' WHERE run = ?1 AND name = ?2";
        tx.prepare_cached(sql)?.execute(params![run.number(), gone.name])?;
    }
    let again = "DO UPDATE SET steps = ?3, epoch = ?4, watched = ?5, recovery = ?6, weights_hash = ?7, \
                 bytes = ?8, validation = ?9, state = ?10, created = ?11";
    for new in there.iter().filter(|now| !known.contains(now)) {
        insert(tx, new, again)?;
    }
    tx.touch(Touched::Run(run.number()));
    Ok(())
}

/// Keeps that there was a checkpoint, where that is not known.
pub(crate) fn keep_known(tx: &Tx<'_>, checkpoint: &Checkpoint) -> Result<(), Error> {
    insert(tx, checkpoint, "DO NOTHING")
}

fn insert(tx: &Tx<'_>, new: &Checkpoint, again: &str) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO checkpoints ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
         ON CONFLICT (run, name) {again}"
    );
    tx.prepare_cached(&sql)?.execute(params![
        new.run.number(),
        new.name,
        new.steps,
        new.epoch,
        new.watched,
        new.recovery,
        new.weights_hash,
        new.bytes,
        new.validation.to_string(),
        new.state,
        new.created,
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::for_each_store;
    use super::*;

    #[test]
    fn a_checkpoint_that_is_written_again_has_what_it_says_then() {
        for_each_store(|store, _| {
            let run = RunId::new(1, 1).expect("small");
            let first = Checkpoint {
                run,
                name: "step-00000010".to_string(),
                steps: 10,
                epoch: 1,
                watched: None,
                recovery: true,
                weights_hash: Some("x".to_string()),
                bytes: 7,
                validation: Json::Null,
                state: "completed".to_string(),
                created: 5,
            };
            let measured = Checkpoint {
                watched: Some(-0.75),
                recovery: false,
                validation: json!({"accuracy": 0.75}),
                ..first.clone()
            };
            let keep = |there: Vec<Checkpoint>| {
                store.write(move |tx| set(tx, run, &there)).expect("written");
                store.checkpoints(run).expect("read")
            };
            assert_eq!(keep(vec![first.clone()]), [first]);
            assert_eq!(keep(vec![measured.clone()]), std::slice::from_ref(&measured));
            let gone = Checkpoint { state: "deleted".to_string(), ..measured.clone() };
            assert_eq!(keep(Vec::new()), [gone]);
            assert_eq!(keep(vec![measured.clone()]), [measured]);
        });
    }
}
