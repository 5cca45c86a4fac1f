//! Who is told of ends, and what they have not heard yet.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::db::{OptionalExtension, params};
use super::{Store, Tx, experiments};
use crate::Error;
use crate::ids::ExperimentId;

/// An address that is told when an experiment ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its name in the hub.
    pub id: String,
    /// The address.
    pub url: String,
    /// The ends that it is told of: `completed`, `failed`, `canceled`.
    pub states: Vec<String>,
}

/// Something that is to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The same for every try, so that whoever hears it twice knows.
    pub id: String,
    /// Who is told.
    pub webhook: String,
    /// The address.
    pub url: String,
    /// What is told, as JSON.
    pub body: String,
    /// When it happened, in milliseconds since 1970.
    pub created: i64,
    /// How often it was tried.
    pub attempts: i64,
    /// What went wrong the last time.
    pub error: Option<String>,
}

impl Store {
    /// All webhooks, the oldest first.
    pub fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        self.read(|db| {
            let sql = "SELECT id, url, states FROM webhooks ORDER BY created, id";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map((), |row| {
                let states: String = row.get(2)?;
                let states = states.split(',').map(str::to_string).collect();
                Ok(Webhook { id: row.get(0)?, url: row.get(1)?, states })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// What is to be told until a time, the oldest first.
    pub fn deliveries(&self, until: i64) -> Result<Vec<Delivery>, Error> {
        self.read(|db| {
            let sql = "SELECT d.id, d.webhook, w.url, d.body, d.created, d.attempts, d.error \
                       FROM deliveries d JOIN webhooks w ON w.id = d.webhook WHERE d.due <= ?1 \
                       ORDER BY d.created, d.id LIMIT 100";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map([until], |row| {
                Ok(Delivery {
                    id: row.get(0)?,
                    webhook: row.get(1)?,
                    url: row.get(2)?,
                    body: row.get(3)?,
                    created: row.get(4)?,
                    attempts: row.get(5)?,
                    error: row.get(6)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// It was not heard, and is told again at this time.
    pub(crate) fn tell_again(&self, id: &str, due: i64, error: &str) -> Result<(), Error> {
        let (id, error) = (id.to_string(), error.to_string());
        self.write(move |tx| {
            let sql =
                "UPDATE deliveries SET attempts = attempts + 1, due = ?2, error = ?3 WHERE id = ?1";
            tx.prepare_cached(sql)?.execute(params![id, due, error])?;
            Ok(())
        })
    }
}

/// Keeps a webhook.
pub(crate) fn add(tx: &Tx<'_>, hook: &Webhook, time: i64) -> Result<(), Error> {
    let sql = "INSERT INTO webhooks (id, url, states, created) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT DO NOTHING";
    tx.prepare_cached(sql)?.execute(params![hook.id, hook.url, hook.states.join(","), time])?;
    Ok(())
}

/// Forgets a webhook, and what it has not heard.
pub(crate) fn remove(tx: &Tx<'_>, id: &str) -> Result<(), Error> {
    tx.prepare_cached("DELETE FROM deliveries WHERE webhook = ?1")?.execute([id])?;
    tx.prepare_cached("DELETE FROM webhooks WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// It was heard, or is given up.
pub(crate) fn delivered(tx: &Tx<'_>, id: &str) -> Result<(), Error> {
    tx.prepare_cached("DELETE FROM deliveries WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// An experiment has ended: whoever wants to know is to be told.
pub(crate) fn ended(
    tx: &Tx<'_>,
    id: ExperimentId,
    (state, reason): (&str, Option<&str>),
    time: i64,
) -> Result<(), Error> {
    let hooks = tx
        .prepare_cached("SELECT id, states FROM webhooks ORDER BY id")?
        .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(String, String)>, _>>()?;
    let wants = |states: &str| states.split(',').any(|wanted| wanted == state);
    for (hook, _) in hooks.iter().filter(|(_, states)| wants(states)) {
        let Some(experiment) = experiments::get(tx, id).map(Some).or_else(absent)? else {
            continue;
        };
        let name = format!("{hook} {id} {state} {time}");
        let delivery = format!("msg_{}", &blake3::hash(name.as_bytes()).to_hex()[..24]);
        let body = json!({
            "type": format!("experiment.{state}"),
            "timestamp": time,
            "data": {
                "experiment": id, "name": experiment.name, "folder": experiment.folder,
                "owner": experiment.owner, "labels": experiment.labels, "model": experiment.model,
                "state": state, "reason": reason, "trials": experiment.trials,
                "metric": experiment.metric, "best": experiment.best, "best_run": experiment.best_run,
                "started": experiment.started,
            },
        });
        let sql = "INSERT INTO deliveries (id, webhook, experiment, body, created, attempts, due) \
                   VALUES (?1, ?2, ?3, ?4, ?5, 0, 0) ON CONFLICT DO NOTHING";
        let values = params![delivery, hook, id.0, body.to_string(), time];
        tx.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

fn absent<T>(error: Error) -> Result<Option<T>, Error> {
    match error {
        Error::NotFound(_) => Ok(None),
        other => Err(other),
    }
}

impl Store {
    /// One webhook.
    pub fn webhook(&self, id: &str) -> Result<Webhook, Error> {
        self.read(|db| {
            let sql = "SELECT id, url, states FROM webhooks WHERE id = ?1";
            let found = db.prepare_cached(sql)?.query_row([id], |row| {
                let states: String = row.get(2)?;
                let states = states.split(',').map(str::to_string).collect();
                Ok(Webhook { id: row.get(0)?, url: row.get(1)?, states })
            });
            let absent = || Error::NotFound(format!("there is no webhook {id:?}"));
            found.optional()?.ok_or_else(absent)
        })
    }
}
