//! Everything that is looked at.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::look::NoParams;
use crate::Error;
use crate::hub::Hub;
use crate::ids::{ExperimentId, RunId};
use crate::store::Store;
use crate::store::checkpoints::Checkpoint;
use crate::store::experiments::Experiment;
use crate::store::logs::{LogLine, LogPage, LogQuery};
use crate::store::models::ModelRow;
use crate::store::page::{ListQuery, Page};
use crate::store::points::{Curve, MetricSummary, Window};
use crate::store::runs::{Run, Validation};

/// Curves of one request, and stretches of one curve.
const CURVES: usize = 500;
const STRETCHES: usize = 1000;
const MOST_STRETCHES: usize = 20_000;

/// Which curves, and which part of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CurveQuery {
    /// Runs, with commas between.
    runs: Option<String>,
    /// Metrics, with commas between.
    metrics: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
    /// Stretches of which both extremes are given.
    points: Option<usize>,
}

/// Curves of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCurves {
    /// The run.
    pub run: RunId,
    /// Those of the metrics that it has.
    pub curves: Vec<Curve>,
}

impl CurveQuery {
    fn window(&self) -> Window {
        Window {
            from: self.from.unwrap_or(i64::MIN),
            to: self.to.unwrap_or(i64::MAX),
            stretches: self.points.unwrap_or(STRETCHES).clamp(1, MOST_STRETCHES),
        }
    }

    fn metrics(&self) -> Result<Vec<String>, Error> {
        let names = self.metrics.as_deref().unwrap_or("loss").split(',');
        let names: Vec<String> = names.filter(|name| !name.is_empty()).map(String::from).collect();
        if names.is_empty() || names.len() > CURVES {
            return Err(Error::Invalid(format!("metrics: name 1 to {CURVES} of them")));
        }
        Ok(names)
    }
}

pub(super) fn experiments(hub: &Hub, (): (), query: ListQuery) -> Result<Page<Experiment>, Error> {
    hub.store().experiments(&query)
}

pub(super) fn experiment(hub: &Hub, id: ExperimentId, _: NoParams) -> Result<Experiment, Error> {
    hub.store().experiment(id)
}

pub(super) fn config(hub: &Hub, id: ExperimentId, _: NoParams) -> Result<Value, Error> {
    let config = match hub.store().experiment_config(id)? {
        Some(config) => Some(config),
        None => match hub.config_in_force(&hub.store().experiment(id)?.folder) {
            // Experiments of MLflow's clients have none.
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => None,
            config => Some(config?),
        },
    };
    Ok(json!({"experiment": id, "config": config}))
}

pub(super) fn experiment_checkpoints(
    hub: &Hub,
    id: ExperimentId,
    _: NoParams,
) -> Result<Vec<Checkpoint>, Error> {
    hub.store().experiment(id)?;
    hub.store().experiment_checkpoints(id)
}

pub(super) fn experiment_logs(
    hub: &Hub,
    id: ExperimentId,
    query: LogQuery,
) -> Result<LogPage, Error> {
    hub.store().experiment(id)?;
    hub.store().run_logs(RunId::whole(id), &query)
}

pub(super) fn runs(hub: &Hub, (): (), query: ListQuery) -> Result<Page<Run>, Error> {
    hub.store().runs(&query)
}

pub(super) fn run(hub: &Hub, id: RunId, _: NoParams) -> Result<Run, Error> {
    hub.store().run(id)
}

pub(super) fn summary(hub: &Hub, id: RunId, _: NoParams) -> Result<Value, Error> {
    hub.store().run_summary(id)
}

pub(super) fn metrics(hub: &Hub, id: RunId, _: NoParams) -> Result<Vec<MetricSummary>, Error> {
    there(hub, id)?.metrics(id)
}

pub(super) fn metric_names(hub: &Hub, (): (), _: NoParams) -> Result<Vec<String>, Error> {
    hub.store().metric_names()
}

pub(super) fn validations(hub: &Hub, id: RunId, _: NoParams) -> Result<Vec<Validation>, Error> {
    there(hub, id)?.validations(id)
}

pub(super) fn checkpoints(hub: &Hub, id: RunId, _: NoParams) -> Result<Vec<Checkpoint>, Error> {
    there(hub, id)?.checkpoints(id)
}

pub(super) fn run_logs(hub: &Hub, id: RunId, query: LogQuery) -> Result<LogPage, Error> {
    there(hub, id)?.run_logs(id, &query)
}

pub(super) fn run_curves(hub: &Hub, id: RunId, query: CurveQuery) -> Result<RunCurves, Error> {
    curves_of(there(hub, id)?, id, &query.metrics()?, &query.window())
}

pub(super) fn curves(hub: &Hub, (): (), query: CurveQuery) -> Result<Vec<RunCurves>, Error> {
    let (window, metrics) = (query.window(), query.metrics()?);
    let runs = query.runs.as_deref().unwrap_or_default();
    let runs: Vec<&str> = runs.split(',').filter(|run| !run.is_empty()).collect();
    if runs.is_empty() || runs.len() * metrics.len() > CURVES {
        let reason = format!("runs: name some, with at most {CURVES} curves in all");
        return Err(Error::Invalid(reason));
    }
    runs.into_iter().map(|run| curves_of(hub.store(), run.parse()?, &metrics, &window)).collect()
}

pub(super) fn checkpoint(
    hub: &Hub,
    (id, name): (RunId, String),
    _: NoParams,
) -> Result<Checkpoint, Error> {
    hub.store().checkpoint(id, &name)
}

pub(super) fn search_logs(hub: &Hub, (): (), query: LogQuery) -> Result<Vec<LogLine>, Error> {
    hub.store().search_logs(&query)
}

pub(super) fn models(hub: &Hub, (): (), _: NoParams) -> Result<Vec<ModelRow>, Error> {
    hub.store().models()
}

pub(super) fn model(hub: &Hub, name: String, _: NoParams) -> Result<ModelRow, Error> {
    hub.store().model(&name)
}

/// The store, if it knows a run.
fn there(hub: &Hub, run: RunId) -> Result<&Store, Error> {
    hub.store().run_folder(run)?;
    Ok(hub.store())
}

fn curves_of(
    store: &Store,
    run: RunId,
    metrics: &[String],
    window: &Window,
) -> Result<RunCurves, Error> {
    let mut curves = Vec::new();
    for metric in metrics {
        curves.extend(store.curve(run, metric, window)?);
    }
    Ok(RunCurves { run, curves })
}
