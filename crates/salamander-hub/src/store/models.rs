//! The registry: names for checkpoints that are used elsewhere.

use serde::{Deserialize, Serialize};

use super::db::{Db, OptionalExtension, params};
use super::{Store, Tx};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// A registered model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRow {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Who made it.
    pub owner: String,
    /// When, in milliseconds since 1970.
    pub created: i64,
    /// Its versions, the first one first.
    pub versions: Vec<ModelVersion>,
}

/// A version of a model: a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    /// Its number, from 1.
    pub version: i64,
    /// The run that trained it.
    pub run: RunId,
    /// The checkpoint's name.
    pub checkpoint: String,
    /// What is to be said of it.
    pub notes: String,
    /// Who registered it.
    pub owner: String,
    /// When, in milliseconds since 1970.
    pub created: i64,
    /// Its aliases, such as `champion`.
    pub aliases: Vec<String>,
    /// The run's folder below the runs, while it is there.
    pub folder: Option<String>,
}

impl ModelRow {
    /// The version of a number (`2`, `v2`) or an alias; with neither the newest.
    pub fn version(&self, which: &str) -> Result<&ModelVersion, Error> {
        let number = which.strip_prefix('v').unwrap_or(which).parse::<i64>().ok();
        let is_meant = |version: &&ModelVersion| {
            version.aliases.iter().any(|alias| alias == which) || number == Some(version.version)
        };
        let found = match which {
            "" => self.versions.last(),
            _ => self.versions.iter().find(is_meant),
        };
        found.ok_or_else(|| {
            let known = self.versions.iter().map(|v| {
                let aliases = v.aliases.iter().map(|alias| format!(" ({alias})"));
                format!("{}{}", v.version, aliases.collect::<String>())
            });
            let (name, known) = (&self.name, known.collect::<Vec<_>>());
            Error::NotFound(match known.as_slice() {
                [] => format!("model {name:?} has no version yet"),
                known => format!("model {name:?} has no {which:?}: there are {}", known.join(", ")),
            })
        })
    }
}

impl Store {
    /// All models, by name.
    pub fn models(&self) -> Result<Vec<ModelRow>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT name FROM models ORDER BY name")?;
            let names: Vec<String> =
                query.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
            names.iter().map(|name| get(db, name)).collect()
        })
    }

    /// One model.
    pub fn model(&self, name: &str) -> Result<ModelRow, Error> {
        self.read(|db| get(db, name))
    }

    /// The version that `NAME@ALIAS`, `NAME@VERSION` or `NAME`, the newest, stands for.
    pub fn model_version(&self, reference: &str) -> Result<ModelVersion, Error> {
        let (name, which) = reference.split_once('@').unwrap_or((reference, ""));
        self.model(name)?.version(which).cloned()
    }

    /// The number of the last version that a model ever had.
    pub(crate) fn last_version(&self, name: &str) -> Result<i64, Error> {
        let model = self.model(name)?;
        let ever = self.meta(&format!("last_version {name}"))?.and_then(|text| text.parse().ok());
        let now = model.versions.last().map(|version| version.version);
        Ok(ever.max(now).unwrap_or(0))
    }

    /// Whether a version of a model comes from an experiment, so that it must stay.
    pub(crate) fn is_source(&self, id: ExperimentId) -> Result<bool, Error> {
        self.read(|db| {
            let sql = "SELECT 1 FROM model_versions WHERE run >= ?1 AND run < ?2 LIMIT 1";
            let (first, last) = (RunId::whole(id), RunId::whole(ExperimentId(id.0 + 1)));
            Ok(db.prepare_cached(sql)?.exists([first.number(), last.number()])?)
        })
    }

    /// Whether a checkpoint is a version of a model, so that it must stay.
    pub fn is_registered(&self, run: RunId, checkpoint: &str) -> Result<bool, Error> {
        self.read(|db| {
            let sql = "SELECT 1 FROM model_versions WHERE run = ?1 AND checkpoint = ?2 LIMIT 1";
            let mut query = db.prepare_cached(sql)?;
            Ok(query.exists(params![run.number(), checkpoint])?)
        })
    }
}

/// Gives a model another name; doing that twice changes nothing.
pub(crate) fn rename(tx: &Tx<'_>, name: &str, to: &str) -> Result<(), Error> {
    let tables = [("models", "name"), ("model_versions", "model"), ("model_aliases", "model")];
    for (table, column) in tables {
        let sql = format!("UPDATE {table} SET {column} = ?2 WHERE {column} = ?1");
        tx.prepare_cached(&sql)?.execute(params![name, to])?;
    }
    let (from, to) = (format!("last_version {name}"), format!("last_version {to}"));
    if let Some(last) = super::get_meta(tx, &from)? {
        super::set_meta(tx, &to, &last)?;
    }
    let sql = "DELETE FROM meta WHERE key = ?1";
    tx.prepare_cached(sql)?.execute([from])?;
    Ok(())
}

pub(crate) fn get(db: &Db, name: &str) -> Result<ModelRow, Error> {
    let sql = "SELECT name, description, owner, created FROM models WHERE name = ?1";
    let model = db
        .prepare_cached(sql)?
        .query_row([name], |row| {
            Ok(ModelRow {
                name: row.get(0)?,
                description: row.get(1)?,
                owner: row.get(2)?,
                created: row.get(3)?,
                versions: Vec::new(),
            })
        })
        .optional()?;
    let mut model = model.ok_or_else(|| Error::NotFound(format!("there is no model {name:?}")))?;
    let sql = "SELECT v.version, v.run, v.checkpoint, v.notes, v.owner, v.created, r.folder, \
               (SELECT string_agg(alias, '\n' ORDER BY alias) FROM model_aliases a \
               WHERE a.model = v.model AND a.version = v.version) \
               FROM model_versions v LEFT JOIN runs r ON r.id = v.run WHERE v.model = ?1 ORDER BY v.version";
    let mut query = db.prepare_cached(sql)?;
    let rows = query.query_map([name], |row| {
        let aliases: Option<String> = row.get(7)?;
        Ok(ModelVersion {
            version: row.get(0)?,
            run: RunId::from_number(row.get(1)?),
            checkpoint: row.get(2)?,
            notes: row.get(3)?,
            owner: row.get(4)?,
            created: row.get(5)?,
            folder: row.get(6)?,
            aliases: aliases
                .map_or(Vec::new(), |text| text.split('\n').map(String::from).collect()),
        })
    })?;
    model.versions = rows.collect::<Result<_, _>>()?;
    Ok(model)
}
