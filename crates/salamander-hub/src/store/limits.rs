//! What experiments may use and have used, and how long their logs stay.

use serde::{Deserialize, Serialize};

use super::db::{OptionalExtension, params};
use super::writer::Touched;
use super::{Store, Tx, logs};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// What an experiment may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowance {
    /// Milliseconds that its process may run.
    pub max_ms: Option<i64>,
    /// The same times its slots.
    pub max_slot_ms: Option<i64>,
}

/// What an experiment may use, and has used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// What it may use.
    #[serde(flatten)]
    pub allowance: Allowance,
    /// What its processes that have ended have used.
    pub used_ms: i64,
    /// The same times their slots.
    pub used_slot_ms: i64,
    /// Why it was ended, if that is because of this.
    pub reason: Option<String>,
}

impl Usage {
    /// With a process of so many slots that has run for so long.
    pub(crate) fn with(&self, ms: i64, slots: u32) -> Self {
        let mut usage = self.clone();
        usage.used_ms += ms.max(0);
        usage.used_slot_ms += ms.max(0) * i64::from(slots);
        usage
    }

    /// Why nothing more may be used; `None`: it may.
    pub(crate) fn exhausted(&self) -> Option<String> {
        let hours = |ms: i64| ms as f64 / 3.6e6;
        let over = |most: Option<i64>, used: i64| most.filter(|most| used >= *most);
        let Allowance { max_ms, max_slot_ms } = self.allowance;
        over(max_ms, self.used_ms)
            .map(|most| format!("its budget of {} hours is used up", hours(most)))
            .or_else(|| {
                let most = over(max_slot_ms, self.used_slot_ms)?;
                Some(format!("its budget of {} slot hours is used up", hours(most)))
            })
    }
}

impl Store {
    /// What an experiment of the hub may use, and has used.
    pub fn usage(&self, id: ExperimentId) -> Result<Usage, Error> {
        self.read(|db| {
            let sql = "SELECT max_ms, max_slot_ms, used_ms, used_slot_ms, reason FROM limits \
                       WHERE experiment = ?1";
            let found = db.prepare_cached(sql)?.query_row([id.0], |row| {
                Ok(Usage {
                    allowance: Allowance { max_ms: row.get(0)?, max_slot_ms: row.get(1)? },
                    used_ms: row.get(2)?,
                    used_slot_ms: row.get(3)?,
                    reason: row.get(4)?,
                })
            });
            Ok(found.optional()?.unwrap_or_default())
        })
    }

    /// Experiments whose logs have stayed long enough: `days` after their end where their file says nothing, if that is
    /// a number at all.
    pub(crate) fn expired_logs(
        &self,
        days: Option<i64>,
        now: i64,
    ) -> Result<Vec<(ExperimentId, String)>, Error> {
        self.read(|db| {
            let sql = "SELECT e.id, e.folder FROM limits l JOIN experiments e ON e.id = l.experiment \
                       WHERE l.ended IS NOT NULL AND coalesce(l.log_days, ?1) >= 0 \
                       AND l.ended + coalesce(l.log_days, ?1) * 86400000 <= ?2 \
                       AND e.state IN ('completed', 'failed', 'canceled') ORDER BY e.id";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map(params![days.unwrap_or(-1), now], |row| {
                Ok((ExperimentId(row.get(0)?), row.get(1)?))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

/// A new experiment with what its file allows it.
pub(crate) fn begin(
    tx: &Tx<'_>,
    id: ExperimentId,
    allowance: Allowance,
    log_days: Option<i64>,
) -> Result<(), Error> {
    let sql = "INSERT INTO limits (experiment, max_ms, max_slot_ms, used_ms, used_slot_ms, log_days) \
               VALUES (?1, ?2, ?3, 0, 0, ?4) ON CONFLICT DO NOTHING";
    let Allowance { max_ms, max_slot_ms } = allowance;
    tx.prepare_cached(sql)?.execute(params![id.0, max_ms, max_slot_ms, log_days])?;
    Ok(())
}

/// Another allowance: what has stopped it before does not any more.
pub(crate) fn allow(tx: &Tx<'_>, id: ExperimentId, allowance: Allowance) -> Result<(), Error> {
    begin(tx, id, allowance, None)?;
    let sql =
        "UPDATE limits SET max_ms = ?2, max_slot_ms = ?3, reason = NULL WHERE experiment = ?1";
    let Allowance { max_ms, max_slot_ms } = allowance;
    tx.prepare_cached(sql)?.execute(params![id.0, max_ms, max_slot_ms])?;
    Ok(())
}

/// What it has used in all.
pub(crate) fn used(tx: &Tx<'_>, id: ExperimentId, ms: i64, slot_ms: i64) -> Result<(), Error> {
    begin(tx, id, Allowance::default(), None)?;
    let sql = "UPDATE limits SET used_ms = ?2, used_slot_ms = ?3 WHERE experiment = ?1";
    tx.prepare_cached(sql)?.execute(params![id.0, ms, slot_ms])?;
    Ok(())
}

/// It is ended because of what it has used.
pub(crate) fn exhaust(tx: &Tx<'_>, id: ExperimentId, reason: &str) -> Result<(), Error> {
    let sql = "UPDATE limits SET reason = ?2 WHERE experiment = ?1";
    tx.prepare_cached(sql)?.execute(params![id.0, reason])?;
    let sql = "UPDATE experiments SET wanted = 'canceled' WHERE id = ?1 AND wanted = 'run'";
    tx.prepare_cached(sql)?.execute([id.0])?;
    Ok(())
}

/// It has ended, at this time.
pub(crate) fn ended(tx: &Tx<'_>, id: ExperimentId, time: i64) -> Result<(), Error> {
    begin(tx, id, Allowance::default(), None)?;
    let sql = "UPDATE limits SET ended = ?2 WHERE experiment = ?1";
    tx.prepare_cached(sql)?.execute(params![id.0, time])?;
    Ok(())
}

/// Its logs are gone.
pub(crate) fn drop_logs(tx: &Tx<'_>, id: ExperimentId) -> Result<(), Error> {
    let runs = [RunId::whole(id).number(), RunId::whole(ExperimentId(id.0 + 1)).number()];
    let sql = "SELECT DISTINCT run FROM log_blocks WHERE run >= ?1 AND run < ?2";
    let there = tx
        .prepare_cached(sql)?
        .query_map(runs, |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    for run in there {
        logs::forget(tx, RunId::from_number(run), None)?;
        tx.touch(Touched::Logs(run));
    }
    let sql = "UPDATE limits SET ended = NULL WHERE experiment = ?1";
    tx.prepare_cached(sql)?.execute([id.0])?;
    Ok(())
}
