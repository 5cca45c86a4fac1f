//! Runs: trials of experiments, each with a folder.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::db::{Db, DbError, DbRow, OptionalExtension, SqlDialect, params};
use super::experiments::unknown_sort;
use super::page::{Conditions, ListQuery, ListSource, Page, Selection, Sort, page};
use super::points::metric_id;
use super::writer::Touched;
use super::{Store, Tx};
use crate::Error;
use crate::ids::{ExperimentId, RunId};

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its name among all: `EXPERIMENT.TRIAL`.
    pub id: RunId,
    /// The experiment that it is a trial of.
    pub experiment: ExperimentId,
    /// The trial's number, from 1.
    pub trial: i64,
    /// The folder below the runs.
    pub folder: String,
    /// A name for people.
    pub name: String,
    /// What it is doing, or how it ended.
    pub state: String,
    /// Why.
    pub reason: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// Its hyperparameters.
    pub hparams: Json,
    /// Steps done.
    pub steps: i64,
    /// Steps in all, once they are known.
    pub total_steps: Option<i64>,
    /// The epoch of the last step, from 0.
    pub epoch: i64,
    /// Epochs in all.
    pub epochs: Option<i64>,
    /// Steps of an epoch: what turns steps into epochs.
    pub steps_per_epoch: Option<i64>,
    /// Parameters of the model.
    pub parameters: Option<i64>,
    /// Workers that took part.
    pub workers: Option<i64>,
    /// The watched metric.
    pub metric: Option<String>,
    /// Whether a smaller one is better.
    pub smaller_is_better: bool,
    /// The best value of it.
    pub best: Option<f64>,
    /// Steps done then.
    pub best_steps: Option<i64>,
    /// How far a search has let it go.
    pub length: Option<i64>,
    /// What a search has measured there.
    pub measured: Option<f64>,
    /// When it was started or resumed last, in milliseconds since 1970.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// Whether its experiment is archived.
    pub archived: bool,
    /// Who made its experiment.
    pub owner: String,
    /// Its experiment's labels.
    pub labels: Vec<String>,
    /// The number of its last change.
    pub change: i64,
    /// The last values of the metrics that were asked for.
    #[serde(default)]
    pub metrics: BTreeMap<String, Option<f64>>,
}

/// What a run's folder says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunFacts {
    pub(crate) folder: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) hparams: Json,
    pub(crate) total_steps: Option<i64>,
    pub(crate) epochs: Option<i64>,
    pub(crate) steps_per_epoch: Option<i64>,
    pub(crate) parameters: Option<i64>,
    pub(crate) workers: Option<i64>,
    pub(crate) metric: Option<String>,
    pub(crate) smaller_is_better: bool,
    pub(crate) length: Option<i64>,
    pub(crate) measured: Option<f64>,
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
    pub(crate) pid: Option<i64>,
    pub(crate) summary: Option<String>,
}

/// How far a run's metrics file has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MetricsProgress {
    pub(crate) steps: i64,
    pub(crate) epoch: i64,
}

/// A validation, or the end of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Steps done.
    pub steps: i64,
    /// The epoch, from 0.
    pub epoch: i64,
    /// Whether the epoch is complete.
    pub complete: bool,
    /// Whether it is the best so far.
    pub best: bool,
    /// Seconds since the epoch began.
    pub seconds: Option<f64>,
    /// Over the records trained in this epoch.
    pub training: Json,
    /// Over the validation data.
    pub validation: Option<Json>,
}

/// Whether a run stands as its experiment does: nobody trains it, and the hub knows why better than its folder.
const AS_EXPERIMENT: &str =
    "r.state = 'interrupted' AND e.origin = 'hub' AND e.state IN ('paused', 'queued', 'canceled')";
const FROM: &str = "runs r JOIN experiments e ON e.id = r.experiment";

static STATE: LazyLock<String> =
    LazyLock::new(|| format!("CASE WHEN {AS_EXPERIMENT} THEN e.state ELSE r.state END"));
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let (state, reason) =
        (&*STATE, format!("CASE WHEN {AS_EXPERIMENT} THEN e.reason ELSE r.reason END"));
    format!(
        "r.id, r.experiment, r.trial, r.folder, r.name, {state}, {reason}, r.model, r.hparams, r.steps, \
         r.total_steps, r.epoch, r.epochs, r.steps_per_epoch, r.parameters, r.workers, r.metric, \
         r.smaller_is_better, r.best, r.best_steps, r.length, r.started, r.ended, e.archived, e.owner, r.change, \
         (SELECT string_agg(label, '\n' ORDER BY label) FROM labels WHERE experiment = r.experiment), r.measured"
    )
});

fn read(row: &DbRow<'_>) -> Result<Run, DbError> {
    let hparams: String = row.get(8)?;
    let labels: Option<String> = row.get(26)?;
    Ok(Run {
        id: RunId::from_number(row.get(0)?),
        experiment: ExperimentId(row.get(1)?),
        trial: row.get(2)?,
        folder: row.get(3)?,
        name: row.get(4)?,
        state: row.get(5)?,
        reason: row.get(6)?,
        model: row.get(7)?,
        hparams: serde_json::from_str(&hparams).unwrap_or_default(),
        steps: row.get(9)?,
        total_steps: row.get(10)?,
        epoch: row.get(11)?,
        epochs: row.get(12)?,
        steps_per_epoch: row.get(13)?,
        parameters: row.get(14)?,
        workers: row.get(15)?,
        metric: row.get(16)?,
        smaller_is_better: row.get(17)?,
        best: row.get(18)?,
        best_steps: row.get(19)?,
        length: row.get(20)?,
        started: row.get(21)?,
        ended: row.get(22)?,
        archived: row.get(23)?,
        owner: row.get(24)?,
        change: row.get(25)?,
        labels: labels.map_or(Vec::new(), |labels| labels.split('\n').map(String::from).collect()),
        measured: row.get(27)?,
        metrics: BTreeMap::new(),
    })
}

impl Store {
    /// A page of runs, those that were started last first unless told otherwise.
    pub fn runs(&self, query: &ListQuery) -> Result<Page<Run>, Error> {
        query.check()?;
        let sort = sort(self.dialect(), query.sort.as_deref())?;
        let mut conditions = Conditions::default();
        if let Some(states) = &query.state {
            conditions.one_of(&STATE, states);
        }
        if let Some(label) = &query.label {
            let condition = "r.experiment IN (SELECT experiment FROM labels WHERE label = ?)";
            conditions.add(condition, label.clone());
        }
        if let Some(model) = &query.model {
            conditions.add("r.model = ?", model.clone());
        }
        if let Some(name) = &query.name {
            let found = self.dialect().find("lower(r.name || ' ' || r.folder)", "lower(?)");
            conditions.add(&format!("{found} > 0"), name.clone());
        }
        if let Some(experiment) = query.experiment {
            conditions.add("r.experiment = ?", experiment);
        }
        if let Some(ids) = &query.ids {
            let numbers = ids.split(',').map(|id| Ok(id.trim().parse::<RunId>()?.number()));
            conditions.one_of_numbers("r.id", &numbers.collect::<Result<Vec<_>, Error>>()?);
        }
        if !query.archived.unwrap_or(false) {
            conditions.plain("e.archived = 0");
        }
        let source = ListSource { columns: &COLUMNS, from: FROM, id: "r.id" };
        self.read(|db| {
            let mut found = page(db, source, Selection { conditions, sort }, query, read)?;
            add_last_values(db, &mut found.items, query.metrics.as_deref())?;
            Ok(found)
        })
    }

    /// One run, with the last values of all its metrics.
    pub fn run(&self, id: RunId) -> Result<Run, Error> {
        self.read(|db| {
            let sql = format!("SELECT {} FROM {FROM} WHERE r.id = ?1", *COLUMNS);
            let found = db.prepare_cached(&sql)?.query_row([id.number()], read).optional()?;
            let mut run = found.ok_or_else(|| no_run(id))?;
            add_last_values(db, std::slice::from_mut(&mut run), Some("*"))?;
            Ok(run)
        })
    }

    /// How many runs are in which state.
    pub(crate) fn count_runs(&self) -> Result<Vec<(String, i64)>, Error> {
        self.read(|db| {
            let sql = format!("SELECT {}, count(*) FROM {FROM} GROUP BY 1", *STATE);
            let mut query = db.prepare_cached(&sql)?;
            let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// What a run wrote at its end: timings, ledger, restarts; null before.
    pub fn run_summary(&self, id: RunId) -> Result<Json, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT summary FROM runs WHERE id = ?1")?;
            let found: Option<Option<String>> =
                query.query_row([id.number()], |row| row.get(0)).optional()?;
            let text = found.ok_or_else(|| no_run(id))?;
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Json::Null))
        })
    }

    /// Validations and ends of epochs of a run.
    pub fn validations(&self, id: RunId) -> Result<Vec<Validation>, Error> {
        self.read(|db| {
            let sql = "SELECT steps, epoch, complete, best, seconds, training, validation FROM validations \
                       WHERE run = ?1 ORDER BY number";
            let mut query = db.prepare_cached(sql)?;
            let json = |text: String| serde_json::from_str(&text).unwrap_or(Json::Null);
            let rows = query.query_map([id.number()], |row| {
                Ok(Validation {
                    steps: row.get(0)?,
                    epoch: row.get(1)?,
                    complete: row.get(2)?,
                    best: row.get(3)?,
                    seconds: row.get(4)?,
                    training: json(row.get(5)?),
                    validation: row.get::<Option<String>>(6)?.map(json),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The folder of a run, below the runs.
    pub fn run_folder(&self, id: RunId) -> Result<String, Error> {
        self.read(|db| {
            let mut query = db.prepare_cached("SELECT folder FROM runs WHERE id = ?1")?;
            let found = query.query_row([id.number()], |row| row.get(0)).optional()?;
            found.ok_or_else(|| no_run(id))
        })
    }
}

fn no_run(id: RunId) -> Error {
    Error::NotFound(format!("there is no run {id}"))
}

fn sort(dialect: SqlDialect, sort: Option<&str>) -> Result<Sort, Error> {
    let (name, descending) = Sort::direction(sort, "-started");
    if let Some(metric) = name.strip_prefix("metric:") {
        let key = "(SELECT last FROM run_metrics WHERE run = r.id AND metric = \
                   (SELECT id FROM metrics WHERE name = ?))"
            .to_string();
        let value = Some(metric.to_string().into());
        return Ok(Sort { key, value, descending });
    }
    if let Some(path) = name.strip_prefix("hparam:") {
        let quoted: Vec<String> =
            path.split('.').map(|part| format!("\"{}\"", part.replace(['"', '\\'], ""))).collect();
        let value = Some(format!("$.{}", quoted.join(".")).into());
        return Ok(Sort { key: dialect.json_key("r.hparams"), value, descending });
    }
    let key = match name {
        "state" => STATE.clone(),
        "id" | "name" | "model" | "started" | "ended" | "steps" | "epoch" | "best" | "trial"
        | "length" => format!("r.{name}"),
        other => return Err(unknown_sort(other)),
    };
    Ok(Sort { key, value: None, descending })
}

/// Gives runs the last values of metrics; without a wish, those of the watched one and of the loss.
fn add_last_values(db: &Db, runs: &mut [Run], wanted: Option<&str>) -> Result<(), Error> {
    if wanted == Some("*") {
        return add_all_last_values(db, runs);
    }
    let mut ids: HashMap<String, Option<i64>> = HashMap::new();
    let mut query =
        db.prepare_cached("SELECT last FROM run_metrics WHERE run = ?1 AND metric = ?2")?;
    for run in runs {
        let watched = run.metric.as_deref().map(|metric| format!("validation/{metric}"));
        let usual = format!("loss,{}", watched.unwrap_or_default());
        for name in wanted.unwrap_or(&usual).split(',').filter(|name| !name.is_empty()) {
            let id = match ids.get(name) {
                Some(id) => *id,
                None => *ids.entry(name.to_string()).or_insert(metric_id(db, name)?),
            };
            let Some(id) = id else { continue };
            let found = query.query_row([run.id.number(), id], |row| row.get(0)).optional()?;
            if let Some(value) = found {
                run.metrics.insert(name.to_string(), value);
            }
        }
    }
    Ok(())
}

fn add_all_last_values(db: &Db, runs: &mut [Run]) -> Result<(), Error> {
    // By number: runs of a page mostly have the same metrics, whose names are read once.
    let mut names: HashMap<i64, String> = HashMap::new();
    let mut values = db.prepare_cached("SELECT metric, last FROM run_metrics WHERE run = ?1")?;
    let mut named = db.prepare_cached("SELECT name FROM metrics WHERE id = ?1")?;
    for run in runs {
        let of_run = values.query_map([run.id.number()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for found in of_run {
            let (metric, last): (i64, Option<f64>) = found?;
            let name = match names.get(&metric) {
                Some(name) => name.clone(),
                None => {
                    let name: String = named.query_row([metric], |row| row.get(0))?;
                    names.entry(metric).or_insert(name).clone()
                }
            };
            run.metrics.insert(name, last);
        }
    }
    Ok(())
}

/// Keeps what a run's folder says; its row is made where there is none.
pub(crate) fn set_facts(tx: &Tx<'_>, id: RunId, facts: &RunFacts) -> Result<(), Error> {
    let known = "SELECT 1 FROM experiments WHERE id = ?1";
    if !tx.prepare_cached(known)?.exists([id.experiment().0])? {
        // It was deleted while its folder was read.
        return Ok(());
    }
    let sql = "INSERT INTO runs (id, experiment, trial, folder, name, state, reason, model, hparams, total_steps, \
        epochs, steps_per_epoch, parameters, workers, metric, smaller_is_better, length, started, ended, pid, summary, \
        change, measured) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
        ?18, ?19, ?20, ?21, ?22, ?23) ON CONFLICT (id) DO UPDATE SET folder = ?4, name = ?5, state = ?6, \
        reason = ?7, model = ?8, \
        hparams = ?9, total_steps = ?10, epochs = ?11, steps_per_epoch = ?12, parameters = ?13, workers = ?14, \
        metric = ?15, smaller_is_better = ?16, length = ?17, started = ?18, ended = ?19, pid = ?20, summary = ?21, \
        change = ?22, measured = ?23";
    tx.prepare_cached(sql)?.execute(params![
        id.number(),
        id.experiment().0,
        id.trial(),
        facts.folder,
        facts.name,
        facts.state,
        facts.reason,
        facts.model,
        facts.hparams.to_string(),
        facts.total_steps,
        facts.epochs,
        facts.steps_per_epoch,
        facts.parameters,
        facts.workers,
        facts.metric,
        facts.smaller_is_better,
        facts.length,
        facts.started,
        facts.ended,
        facts.pid,
        facts.summary,
        tx.change,
        facts.measured,
    ])?;
    tx.touch(Touched::Run(id.number()));
    Ok(())
}

/// Notes that runs stand otherwise as their experiment does, though their folders have not changed.
pub(crate) fn touch_waiting(tx: &Tx<'_>, experiment: ExperimentId) -> Result<(), Error> {
    let sql =
        "UPDATE runs SET change = ?2 WHERE experiment = ?1 AND state = 'interrupted' RETURNING id";
    let mut query = tx.prepare_cached(sql)?;
    for run in query.query_map(params![experiment.0, tx.change], |row| row.get(0))? {
        tx.touch(Touched::Run(run?));
    }
    Ok(())
}

/// Keeps how far a run has come.
pub(crate) fn set_progress(
    tx: &Tx<'_>,
    id: RunId,
    progress: &MetricsProgress,
) -> Result<(), Error> {
    let sql = "UPDATE runs SET steps = ?2, epoch = ?3, change = ?4 WHERE id = ?1";
    let values = params![id.number(), progress.steps, progress.epoch, tx.change];
    tx.prepare_cached(sql)?.execute(values)?;
    tx.touch(Touched::Run(id.number()));
    Ok(())
}

/// Keeps how far a run has come whose metrics may be behind each other: none of them takes it back.
pub(crate) fn advance(tx: &Tx<'_>, id: RunId, steps: i64) -> Result<(), Error> {
    let sql = "UPDATE runs SET steps = CASE WHEN steps > ?2 THEN steps ELSE ?2 END, change = ?3 WHERE id = ?1";
    tx.prepare_cached(sql)?.execute(params![id.number(), steps, tx.change])?;
    tx.touch(Touched::Run(id.number()));
    Ok(())
}

/// Adds a validation; the best one is also the run's.
pub(crate) fn add_validation(
    tx: &Tx<'_>,
    id: RunId,
    number: i64,
    validation: &Validation,
) -> Result<(), Error> {
    let sql = "INSERT INTO validations (run, number, steps, epoch, complete, best, seconds, training, validation) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (run, number) DO UPDATE SET steps = ?3, \
               epoch = ?4, complete = ?5, best = ?6, seconds = ?7, training = ?8, validation = ?9";
    let values = validation.validation.as_ref();
    tx.prepare_cached(sql)?.execute(params![
        id.number(),
        number,
        validation.steps,
        validation.epoch,
        validation.complete,
        validation.best,
        validation.seconds,
        validation.training.to_string(),
        values.map(Json::to_string),
    ])?;
    if validation.best {
        let sql = "SELECT metric FROM runs WHERE id = ?1";
        let metric =
            tx.prepare_cached(sql)?.query_row([id.number()], |row| row.get(0)).optional()?;
        let metric: Option<String> = metric.flatten();
        let best = metric.and_then(|metric| values?.get(&metric)?.as_f64());
        let sql = "UPDATE runs SET best = ?2, best_steps = ?3 WHERE id = ?1";
        tx.prepare_cached(sql)?.execute(params![id.number(), best, validation.steps])?;
    }
    Ok(())
}
