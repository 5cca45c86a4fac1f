//! What was done, by whom and when: all that is said to a hub, and what is done to its users, checkpoints and runs.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::db::params;
use super::{Store, Tx};
use crate::Error;

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its number: what came later has a larger one.
    pub id: i64,
    /// When, in milliseconds since 1970.
    pub time: i64,
    /// By whom; empty: by somebody on this machine.
    pub user: String,
    /// What: `do` has its name.
    pub operation: Json,
}

/// Who did something, and when in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoneBy<'a> {
    pub(crate) user: &'a str,
    pub(crate) time: i64,
}

impl Store {
    /// What was done before that of this number, the newest first.
    pub fn audit(&self, before: i64, limit: i64) -> Result<Vec<AuditRow>, Error> {
        self.read(|db| {
            let sql = "SELECT id, time, \"user\", operation FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map(params![before, limit], |row| {
                let operation: String = row.get(3)?;
                Ok(AuditRow {
                    id: row.get(0)?,
                    time: row.get(1)?,
                    user: row.get(2)?,
                    operation: serde_json::from_str(&operation).unwrap_or_default(),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Keeps what was done without being said; `operation` has its name in `do`.
    pub fn note_done(&self, user: &str, time: i64, operation: &Json) -> Result<(), Error> {
        let (user, operation) = (user.to_string(), operation.to_string());
        self.write(move |tx| add(tx, DoneBy { user: &user, time }, &operation))
    }
}

/// Keeps what was done, as JSON.
pub(crate) fn add(tx: &Tx<'_>, by: DoneBy<'_>, operation: &str) -> Result<(), Error> {
    let sql = "INSERT INTO audit (time, \"user\", operation) VALUES (?1, ?2, ?3)";
    tx.prepare_cached(sql)?.execute(params![by.time, by.user, operation])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::for_each_store;

    #[test]
    fn what_was_done_is_read_page_by_page() {
        for_each_store(|store, _| {
            for number in 0..5 {
                let done = json!({"do": "something", "number": number});
                store.note_done("ada", number, &done).expect("kept");
            }
            let first = store.audit(i64::MAX, 3).expect("read");
            let rest = store.audit(first[2].id, 3).expect("read");
            let times: Vec<i64> = first.iter().chain(&rest).map(|row| row.time).collect();
            assert_eq!(times, [4, 3, 2, 1, 0]);
            assert_eq!((rest[1].user.as_str(), &rest[1].operation["number"]), ("ada", &json!(0)));
        });
    }
}
