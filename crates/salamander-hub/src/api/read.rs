//! Everything that is looked at.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Api;
use super::reply::{Params, answer};
use crate::Error;
use crate::ids::{ExperimentId, RunId};
use crate::store::logs::LogQuery;
use crate::store::page::ListQuery;
use crate::store::points::{Curve, Window};

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

/// Parses an id of a path.
macro_rules! parsed {
    ($id:expr, $kind:ty) => {
        match $id.parse::<$kind>() {
            Ok(id) => id,
            Err(error) => return error.into_response(),
        }
    };
}

pub(super) async fn experiments(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<ListQuery>,
) -> Response {
    answer(&api, &headers, move |store| store.experiments(&query)).await
}

pub(super) async fn experiment(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, ExperimentId);
    answer(&api, &headers, move |store| store.experiment(id)).await
}

pub(super) async fn config(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, ExperimentId);
    let hub = api.hub.clone();
    answer(&api, &headers, move |store| {
        let config = match store.experiment_config(id)? {
            Some(config) => config,
            None => hub.config_in_force(&store.experiment(id)?.folder)?,
        };
        Ok(serde_json::json!({"experiment": id, "config": config}))
    })
    .await
}

pub(super) async fn experiment_checkpoints(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, ExperimentId);
    answer(&api, &headers, move |store| {
        store.experiment(id)?;
        store.experiment_checkpoints(id)
    })
    .await
}

pub(super) async fn experiment_logs(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Params(query): Params<LogQuery>,
) -> Response {
    let id = parsed!(id, ExperimentId);
    answer(&api, &headers, move |store| {
        store.experiment(id)?;
        store.run_logs(RunId::whole(id), &query)
    })
    .await
}

pub(super) async fn runs(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<ListQuery>,
) -> Response {
    answer(&api, &headers, move |store| store.runs(&query)).await
}

pub(super) async fn run(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| store.run(id)).await
}

pub(super) async fn summary(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| store.run_summary(id)).await
}

pub(super) async fn metrics(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| {
        store.run_folder(id)?;
        store.metrics(id)
    })
    .await
}

pub(super) async fn run_curves(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Params(query): Params<CurveQuery>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| {
        store.run_folder(id)?;
        let window = query.window();
        let mut curves = Vec::new();
        for metric in query.metrics()? {
            curves.extend(store.curve(id, &metric, &window)?);
        }
        Ok(RunCurves { run: id, curves })
    })
    .await
}

pub(super) async fn curves(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<CurveQuery>,
) -> Response {
    answer(&api, &headers, move |store| {
        let (window, metrics) = (query.window(), query.metrics()?);
        let runs = query.runs.as_deref().unwrap_or_default();
        let runs: Vec<&str> = runs.split(',').filter(|run| !run.is_empty()).collect();
        if runs.is_empty() || runs.len() * metrics.len() > CURVES {
            let reason = format!("runs: name some, with at most {CURVES} curves in all");
            return Err(Error::Invalid(reason));
        }
        let mut all = Vec::new();
        for run in runs {
            let run: RunId = run.parse()?;
            let mut curves = Vec::new();
            for metric in &metrics {
                curves.extend(store.curve(run, metric, &window)?);
            }
            all.push(RunCurves { run, curves });
        }
        Ok(all)
    })
    .await
}

pub(super) async fn validations(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| {
        store.run_folder(id)?;
        store.validations(id)
    })
    .await
}

pub(super) async fn checkpoints(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| {
        store.run_folder(id)?;
        store.checkpoints(id)
    })
    .await
}

pub(super) async fn checkpoint(
    State(api): State<Api>,
    headers: HeaderMap,
    Path((id, name)): Path<(String, String)>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| store.checkpoint(id, &name)).await
}

pub(super) async fn run_logs(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Params(query): Params<LogQuery>,
) -> Response {
    let id = parsed!(id, RunId);
    answer(&api, &headers, move |store| {
        store.run_folder(id)?;
        store.run_logs(id, &query)
    })
    .await
}

pub(super) async fn search_logs(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<LogQuery>,
) -> Response {
    answer(&api, &headers, move |store| store.search_logs(&query)).await
}

pub(super) async fn models(State(api): State<Api>, headers: HeaderMap) -> Response {
    answer(&api, &headers, move |store| store.models()).await
}

pub(super) async fn model(
    State(api): State<Api>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Response {
    answer(&api, &headers, move |store| store.model(&name)).await
}
