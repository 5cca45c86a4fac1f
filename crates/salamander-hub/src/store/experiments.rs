//! Experiments: what people want of them, what their folders say, and what follows from both.

use serde::{Deserialize, Serialize};

use super::db::{Db, DbError, DbRow, OptionalExtension, params};
use super::page::{Conditions, ListQuery, ListSource, Page, Selection, Sort, page};
use super::writer::Touched;
use super::{Store, Tx, runs};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// An experiment: one file, with one trial or a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its number.
    pub id: ExperimentId,
    /// Its name.
    pub name: String,
    /// Its folder below the runs.
    pub folder: String,
    /// `hub`: the hub starts it; `folder`: somebody else did, and the hub only looks.
    pub origin: String,
    /// Who made it.
    pub owner: String,
    /// What it is about.
    pub description: String,
    /// What it is doing, or how it ended.
    pub state: String,
    /// Why.
    pub reason: Option<String>,
    /// `single` or `search`.
    pub kind: String,
    /// The model's name.
    pub model: Option<String>,
    /// Who comes first in the queue: the smaller number.
    pub priority: i64,
    /// Slots that it needs at least.
    pub slots: i64,
    /// Slots that it can use.
    pub max_slots: i64,
    /// Whether lists leave it out.
    pub archived: bool,
    /// When it was made, in milliseconds since 1970.
    pub created: i64,
    /// When it was started or resumed last.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// The metric that its trials are compared by.
    pub metric: Option<String>,
    /// Whether a smaller one is better.
    pub smaller_is_better: bool,
    /// The best value of it.
    pub best: Option<f64>,
    /// The run that measured it.
    pub best_run: Option<RunId>,
    /// How much is done, 0 to 1.
    pub progress: Option<f64>,
    /// Trials so far.
    pub trials: i64,
    /// How often its process was started again.
    pub restarts: i64,
    /// Labels.
    pub labels: Vec<String>,
    /// The program that the hub starts it with.
    pub program: Option<String>,
    /// The program's hash when it was created.
    pub program_hash: Option<String>,
    /// The number of its last change.
    pub change: i64,
}

/// What the queue needs to know of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExperimentJob {
    pub(crate) id: ExperimentId,
    pub(crate) folder: String,
    pub(crate) state: String,
    pub(crate) wanted: String,
    pub(crate) priority: i64,
    pub(crate) slots: i64,
    pub(crate) max_slots: i64,
    pub(crate) restarts: i64,
    pub(crate) sets: Vec<String>,
    pub(crate) base: Option<String>,
    pub(crate) program: Option<String>,
    pub(crate) program_hash: Option<String>,
}

/// What an experiment's folder says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) name: Option<String>,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) kind: &'static str,
    pub(crate) model: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
    pub(crate) metric: Option<String>,
    pub(crate) smaller_is_better: bool,
    pub(crate) best: Option<f64>,
    pub(crate) best_trial: Option<i64>,
    pub(crate) progress: Option<f64>,
    pub(crate) trials: i64,
}

/// The kind of experiments that MLflow's clients have made.
pub(crate) const OF_CLIENTS: &str = "mlflow";

const COLUMNS: &str = "id, name, folder, origin, owner, description, state, reason, kind, model, priority, slots, \
    max_slots, archived, created, started, ended, metric, smaller_is_better, best, best_trial, progress, trials, \
    restarts, program, program_hash, change, \
    (SELECT string_agg(label, '\n' ORDER BY label) FROM labels WHERE experiment = experiments.id)";

const TABLE: ListSource = ListSource { columns: COLUMNS, from: "experiments", id: "id" };

fn read(row: &DbRow<'_>) -> Result<Experiment, DbError> {
    let id: i64 = row.get(0)?;
    let best_trial: Option<i64> = row.get(20)?;
    let labels: Option<String> = row.get(27)?;
    Ok(Experiment {
        id: ExperimentId(id),
        name: row.get(1)?,
        folder: row.get(2)?,
        origin: row.get(3)?,
        owner: row.get(4)?,
        description: row.get(5)?,
        state: row.get(6)?,
        reason: row.get(7)?,
        kind: row.get(8)?,
        model: row.get(9)?,
        priority: row.get(10)?,
        slots: row.get(11)?,
        max_slots: row.get(12)?,
        archived: row.get(13)?,
        created: row.get(14)?,
        started: row.get(15)?,
        ended: row.get(16)?,
        metric: row.get(17)?,
        smaller_is_better: row.get(18)?,
        best: row.get(19)?,
        best_run: best_trial.and_then(|trial| RunId::new(id, trial)),
        progress: row.get(21)?,
        trials: row.get(22)?,
        restarts: row.get(23)?,
        program: row.get(24)?,
        program_hash: row.get(25)?,
        change: row.get(26)?,
        labels: labels.map_or(Vec::new(), |labels| labels.split('\n').map(String::from).collect()),
    })
}

impl Store {
    /// A page of experiments, the newest first unless told otherwise.
    pub fn experiments(&self, query: &ListQuery) -> Result<Page<Experiment>, Error> {
        query.check()?;
        let (name, descending) = Sort::direction(query.sort.as_deref(), "-id");
        let key = match name {
            "id" | "name" | "state" | "priority" | "created" | "started" | "ended" | "best"
            | "progress" | "trials" | "owner" | "model" => name.to_string(),
            other => return Err(unknown_sort(other)),
        };
        let mut conditions = Conditions::default();
        if let Some(states) = &query.state {
            conditions.one_of("state", states);
        }
        if let Some(label) = &query.label {
            let condition = "id IN (SELECT experiment FROM labels WHERE label = ?)";
            conditions.add(condition, label.clone());
        }
        if let Some(model) = &query.model {
            conditions.add("model = ?", model.clone());
        }
        if let Some(name) = &query.name {
            let found = self.dialect().find("lower(name || ' ' || folder)", "lower(?)");
            conditions.add(&format!("{found} > 0"), name.clone());
        }
        if !query.archived.unwrap_or(false) {
            conditions.plain("archived = 0");
        }
        let sort = Sort { key, value: None, descending };
        self.read(|db| page(db, TABLE, Selection { conditions, sort }, query, read))
    }

    /// One experiment.
    pub fn experiment(&self, id: ExperimentId) -> Result<Experiment, Error> {
        self.read(|db| get(db, id))
    }

    /// The experiment of a folder below the runs.
    pub fn experiment_of(&self, folder: &str) -> Result<Option<ExperimentId>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT id FROM experiments WHERE folder = ?1")?;
            Ok(query.query_row([folder], |row| row.get(0)).optional()?.map(ExperimentId))
        })
    }

    /// The number of the next experiment; none is ever given twice, not even after a deletion.
    pub(crate) fn next_experiment(&self) -> Result<ExperimentId, Error> {
        self.read(|db| {
            let sql = "SELECT coalesce(max(number), 0) + 1 FROM (SELECT id AS number FROM experiments UNION ALL \
                       SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'last_experiment') AS numbers";
            Ok(ExperimentId(db.prepare_cached(sql)?.query_row((), |row| row.get(0))?))
        })
    }

    /// Its file: as it was created with, or else as it is in force.
    pub fn experiment_config(&self, id: ExperimentId) -> Result<Option<String>, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT config FROM experiments WHERE id = ?1")?;
            let found = query.query_row([id.0], |row| row.get(0)).optional()?;
            found.ok_or_else(|| no_experiment(id))
        })
    }

    /// Experiments that the hub starts and that are not over, in the order of the queue.
    pub(crate) fn jobs(&self) -> Result<Vec<ExperimentJob>, Error> {
        self.read(|db| {
            let sql = "SELECT id, folder, state, wanted, priority, slots, max_slots, restarts, sets, base, \
                       program, program_hash FROM experiments WHERE wanted = 'deleted' OR \
                       (origin = 'hub' AND state NOT IN ('completed', 'failed', 'canceled')) ORDER BY priority, id";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map((), |row| {
                let sets: String = row.get(8)?;
                Ok(ExperimentJob {
                    id: ExperimentId(row.get(0)?),
                    folder: row.get(1)?,
                    state: row.get(2)?,
                    wanted: row.get(3)?,
                    priority: row.get(4)?,
                    slots: row.get(5)?,
                    max_slots: row.get(6)?,
                    restarts: row.get(7)?,
                    sets: serde_json::from_str(&sets).unwrap_or_default(),
                    base: row.get(9)?,
                    program: row.get(10)?,
                    program_hash: row.get(11)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// How many experiments are in which state.
    pub(crate) fn count_experiments(&self) -> Result<Vec<(String, i64)>, Error> {
        self.read(|db| {
            let mut query =
                db.prepare_cached("SELECT state, count(*) FROM experiments GROUP BY state")?;
            let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Says where an experiment of the hub stands.
    pub(crate) fn set_state(
        &self,
        id: ExperimentId,
        state: &'static str,
        reason: Option<String>,
    ) -> Result<(), Error> {
        self.write(move |tx| {
            let sql = "UPDATE experiments SET state = ?2, reason = ?3, change = ?4 WHERE id = ?1";
            let values = params![id.0, state, reason, tx.change];
            tx.prepare_cached(sql)?.execute(values)?;
            tx.touch(Touched::Experiment(id.0));
            runs::touch_waiting(tx, id)
        })
    }
}

pub(crate) fn get(db: &Db, id: ExperimentId) -> Result<Experiment, Error> {
    let sql = format!("SELECT {COLUMNS} FROM experiments WHERE id = ?1");
    let found = db.prepare_cached(&sql)?.query_row([id.0], read).optional()?;
    found.ok_or_else(|| no_experiment(id))
}

pub(super) fn unknown_sort(name: &str) -> Error {
    Error::Invalid(format!("sort: there is no {name:?} to sort by"))
}

fn no_experiment(id: ExperimentId) -> Error {
    Error::NotFound(format!("there is no experiment {id}"))
}

/// Keeps what a folder says. The state follows from it alone where somebody else started it, and so does the name.
pub(crate) fn set_facts(tx: &Tx<'_>, id: ExperimentId, facts: &Facts) -> Result<(), Error> {
    let sql = "UPDATE experiments SET fact = ?3, fact_reason = ?4, kind = ?5, \
        name = CASE origin WHEN 'hub' THEN name ELSE coalesce(?2, name) END, \
        model = coalesce(?6, model), config = CASE origin WHEN 'hub' THEN config ELSE coalesce(?7, config) END, \
        started = ?8, ended = ?9, metric = ?10, smaller_is_better = ?11, best = ?12, best_trial = ?13, \
        progress = ?14, trials = ?15, change = ?16, \
        state = CASE origin WHEN 'hub' THEN state ELSE ?3 END, \
        reason = CASE origin WHEN 'hub' THEN reason ELSE ?4 END, \
        description = CASE description WHEN '' THEN coalesce(?17, '') ELSE description END WHERE id = ?1";
    tx.prepare_cached(sql)?.execute(params![
        id.0,
        facts.name,
        facts.state,
        facts.reason,
        facts.kind,
        facts.model,
        facts.config,
        facts.started,
        facts.ended,
        facts.metric,
        facts.smaller_is_better,
        facts.best,
        facts.best_trial,
        facts.progress,
        facts.trials,
        tx.change,
        facts.description,
    ])?;
    tx.touch(Touched::Experiment(id.0));
    Ok(())
}

/// Gives an experiment with one trial that trial's best value and progress.
pub(crate) fn follow_single(tx: &Tx<'_>, id: ExperimentId) -> Result<(), Error> {
    let Some(run) = RunId::new(id.0, 1) else { return Ok(()) };
    let sql = "UPDATE experiments SET (best, best_trial, progress) = (SELECT best, \
               CASE WHEN best IS NULL THEN NULL ELSE 1 END, CASE WHEN steps > total_steps THEN 1.0 \
               ELSE CAST(steps AS DOUBLE PRECISION) / nullif(total_steps, 0) END \
               FROM runs WHERE id = ?2) WHERE id = ?1";
    tx.prepare_cached(sql)?.execute(params![id.0, run.number()])?;
    Ok(())
}
