//! What a run logs: metrics, parameters, tags; and the history of a metric.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::measured;
use super::super::refusal::MlflowRefusal;
use super::super::tracked::{MetricValue, MlflowRun, Pairs};
use super::super::{Mlflow, ours};
use super::{cut, named, search};

/// What one call may bring, in all and of parameters and tags each.
const BATCH: usize = 1000;
const PAIRS: usize = 100;
/// The longest key, parameter and tag.
const KEY: usize = 250;
const PARAM: usize = 6000;
const TAG: usize = 8000;

fn measurement(asked: &Asked) -> Result<(String, MetricValue), MlflowRefusal> {
    let key = asked.required("key")?;
    named("Metric name", key, KEY)?;
    let measured = MetricValue {
        value: asked.decimal("value")?,
        timestamp: asked.number("timestamp")?.unwrap_or_else(crate::now),
        step: asked.number("step")?.unwrap_or(0),
    };
    if measured.timestamp < 0 {
        let reason = format!(
            "Invalid value {} for parameter 'timestamp' supplied: metric '{key}' (value={}). Timestamp must be a \
             nonnegative long (64-bit integer)",
            measured.timestamp, measured.value
        );
        return Err(MlflowRefusal::invalid(reason));
    }
    Ok((key.to_string(), measured))
}

/// Parameters never change: a run was made with what it was made with.
fn new_params(run: &MlflowRun, params: Pairs) -> Result<Pairs, MlflowRefusal> {
    let params: Pairs = params.into_iter().map(|(key, value)| (key, cut(value, PARAM))).collect();
    for (key, value) in &params {
        named("Param key", key, KEY)?;
        if let Some(before) = run.params.get(key).filter(|before| *before != value) {
            return Err(MlflowRefusal::invalid(format!(
                "Changing param values is not allowed. Param with key='{key}' was already logged with \
                 value='{before}' for run ID='{}'. Attempted logging new value '{value}'.",
                run.id
            )));
        }
    }
    Ok(params.into_iter().filter(|(key, _)| !run.params.contains_key(key)).collect())
}

fn new_tags(tags: Pairs) -> Result<BTreeMap<String, Option<String>>, MlflowRefusal> {
    tags.keys().try_for_each(|key| named("Tag key", key, KEY))?;
    Ok(tags.into_iter().map(|(key, value)| (key, Some(cut(value, TAG)))).collect())
}

/// Values that are of a logged model as well.
fn of_models(mlflow: &Mlflow, run: &str, metrics: &[Asked]) -> Result<(), MlflowRefusal> {
    for metric in metrics {
        let Some(model) = metric.text("model_id") else { continue };
        let (key, measured) = measurement(metric)?;
        let mut said = mlflow.said();
        let Some(mut model) = said.tracked.logged.get(model).cloned() else { continue };
        let mut value = measured.to_json(&key, run);
        value["model_id"] = model.id.clone().into();
        for field in ["dataset_name", "dataset_digest"] {
            if let Some(text) = metric.text(field) {
                value[field] = text.into();
            }
        }
        if !model.metrics.contains(&value) {
            model.metrics.push(value);
            said.say(vec![TrackingEvent::LoggedModel(model)])?;
        }
    }
    Ok(())
}

pub(super) fn log_metric(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let id = mlflow.said().open_run(asked.run()?)?.id.clone();
    mlflow.measure(&id, vec![measurement(asked)?])?;
    of_models(mlflow, &id, std::slice::from_ref(asked))?;
    Ok(json!({}))
}

pub(super) fn log_batch(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let metrics = asked.objects("metrics");
    let given = asked.pairs("params")?;
    let (params, tags) = (asked.objects("params").len(), asked.objects("tags").len());
    if params > PAIRS || tags > PAIRS || metrics.len() + params + tags > BATCH {
        let reason = format!(
            "A batch logging request can contain at most {BATCH} metrics, params and tags, and {PAIRS} params and \
             {PAIRS} tags: this one has {}, {params} and {tags}.",
            metrics.len()
        );
        return Err(MlflowRefusal::invalid(reason));
    }
    if given.len() < params {
        return Err(MlflowRefusal::invalid(
            "Duplicate parameter keys have been submitted. Please ensure the request contains only one param \
             value per param key.",
        ));
    }
    let values = metrics.iter().map(measurement).collect::<Result<Vec<_>, _>>()?;
    let tags = new_tags(asked.pairs("tags")?)?;
    let id = {
        let mut said = mlflow.said();
        let run = said.open_run(asked.run()?)?;
        let (id, params) = (run.id.clone(), new_params(run, given)?);
        if !params.is_empty() || !tags.is_empty() {
            said.say(vec![TrackingEvent::RunNoted { id: id.clone(), params, tags }])?;
        }
        id
    };
    mlflow.measure(&id, values)?;
    of_models(mlflow, &id, &metrics)?;
    Ok(json!({}))
}

pub(super) fn log_parameter(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let mut said = mlflow.said();
    let run = said.open_run(asked.run()?)?;
    let pair = (asked.required("key")?.to_string(), asked.value("value")?.to_string());
    let (id, params) = (run.id.clone(), new_params(run, [pair].into())?);
    if !params.is_empty() {
        said.say(vec![TrackingEvent::RunNoted { id, params, tags: BTreeMap::new() }])?;
    }
    Ok(json!({}))
}

pub(super) fn set_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let pair = (asked.required("key")?.to_string(), asked.value("value")?.to_string());
    let tags = new_tags([pair].into())?;
    let mut said = mlflow.said();
    let id = said.open_run(asked.run()?)?.id.clone();
    said.say(vec![TrackingEvent::RunNoted { id, params: Pairs::new(), tags }])?;
    Ok(json!({}))
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("key")?;
    let mut said = mlflow.said();
    let run = said.open_run(asked.run()?)?;
    if !run.tags.contains_key(key) {
        let reason = format!("No tag with name: {key} in run with id {}", run.id);
        return Err(MlflowRefusal::missing(reason));
    }
    let (id, tags) = (run.id.clone(), [(key.to_string(), None)].into());
    said.say(vec![TrackingEvent::RunNoted { id, params: Pairs::new(), tags }])?;
    Ok(json!({}))
}

impl Mlflow {
    fn history(&self, run: &str, metric: &str) -> Result<Vec<MetricValue>, MlflowRefusal> {
        if let Some(ours) = ours::run_id(run) {
            return Ok(self.our_history(ours, metric)?);
        }
        self.said().run(run)?;
        Ok(measured::history(&self.metrics_file(run), metric)?)
    }
}

pub(super) fn history(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (run, metric) = (asked.run()?, asked.required("metric_key")?);
    let all = mlflow.history(run, metric)?;
    search::metrics(all.iter().map(|one| one.to_json(metric, run)).collect(), asked)
}

/// The history of several runs, so many values of it.
pub(super) fn history_in_bulk(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let metric = asked.required("metric_key")?;
    let most = asked.number("max_results")?.unwrap_or(25_000).clamp(1, 25_000) as usize;
    let mut found = Vec::new();
    for run in asked.list("run_id") {
        let left = most - found.len();
        let all = mlflow.history(&run, metric)?;
        found.extend(all.iter().take(left).map(|one| one.to_json(metric, &run)));
    }
    Ok(json!({"metrics": found}))
}

/// The history of several runs, thinned to so many steps of each.
pub(super) fn history_of_several(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let metric = asked.required("metric_key")?;
    let most = asked.number("max_results")?.unwrap_or(2500).clamp(1, 2500) as usize;
    let first = asked.number("start_step")?.unwrap_or(i64::MIN);
    let last = asked.number("end_step")?.unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for run in asked.list("run_ids") {
        let mut all = mlflow.history(&run, metric)?;
        all.retain(|one| (first..=last).contains(&one.step));
        let every = all.len().div_ceil(most).max(1);
        let end = all.len().saturating_sub(1);
        let kept = all.iter().enumerate().filter(|(place, _)| place % every == 0 || *place == end);
        found.extend(kept.map(|(_, one)| one.to_json(metric, &run)));
    }
    Ok(json!({"metrics": found}))
}
