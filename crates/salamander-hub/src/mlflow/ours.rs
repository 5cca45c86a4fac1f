//! Runs of our own as MLflow's clients see them: read from the store, changed by nobody.

use std::collections::BTreeMap;

use salamander_core::layout::CHECKPOINTS;
use serde_json::Value;

use super::refusal::MlflowRefusal;
use super::registry::{MlflowVersion, RegisteredModel, STAGES};
use super::tracked::{Latest, LifecycleStage, MetricValue, MlflowExperiment, MlflowRun};
use super::{Mlflow, mirror};
use crate::store::models::{ModelRow, ModelVersion};
use crate::store::page::ListQuery;
use crate::store::points::{Curve, Window};
use crate::store::{experiments, runs};
use crate::{Error, RunId};

/// What the ids of our runs begin with: no client draws it by chance more often than once in 65,536, and then it is no
/// run of ours.
const MARK: &str = "5a1a";
/// Our experiments are numbered from here on, beyond those that clients make.
const FIRST: i64 = 1_000_000_000_000;
/// Rows asked for at a time.
const PAGE: usize = 1000;
/// The curve that tells when each step of a run of ours was, in seconds since 1970.
const TIMES: &str = "time";

/// Our run of an id, if it can be one.
pub(super) fn run_id(id: &str) -> Option<RunId> {
    let digits = id.strip_prefix(MARK).filter(|digits| digits.len() == 28 && digits.is_ascii())?;
    let number = |text: &str| i64::from_str_radix(text, 16).ok();
    RunId::new(number(&digits[..14])?, number(&digits[14..])?)
}

fn id_of(run: RunId) -> String {
    format!("{MARK}{:014x}{:014x}", run.experiment().0, run.trial())
}

/// Where the files of our runs are for clients.
pub(super) const PLACE: &str = "salamander";

impl Mlflow {
    /// Our experiments: those of one name are one.
    pub(super) fn our_experiments(&self) -> Result<Vec<MlflowExperiment>, Error> {
        let mut by_name: BTreeMap<String, MlflowExperiment> = BTreeMap::new();
        for found in self.all_our_experiments()? {
            let (id, changed) = (FIRST + found.id.0, found.ended.unwrap_or(found.created));
            let stage =
                if found.archived { LifecycleStage::Deleted } else { LifecycleStage::Active };
            let new = MlflowExperiment {
                id: id.to_string(),
                name: found.name.clone(),
                artifacts: format!("mlflow-artifacts:/{PLACE}"),
                stage,
                created: found.created,
                updated: changed,
                tags: Default::default(),
            };
            let one = by_name.entry(found.name).or_insert_with(|| new.clone());
            // The first of a name stands for all.
            if new.created < one.created {
                (one.id, one.created) = (new.id, new.created);
            }
            one.updated = one.updated.max(new.updated);
            if stage == LifecycleStage::Active {
                one.stage = stage;
            }
        }
        Ok(by_name.into_values().collect())
    }

    fn all_our_experiments(&self) -> Result<Vec<experiments::Experiment>, Error> {
        let mut query = ListQuery {
            limit: Some(PAGE),
            archived: Some(true),
            sort: Some("id".to_string()),
            ..ListQuery::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.hub().store().experiments(&query)?;
            all.extend(page.items.into_iter().filter(|one| one.kind != mirror::KIND));
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Our runs of the experiments with these ids.
    pub(super) fn our_runs(&self, wanted: &[String]) -> Result<Vec<(MlflowRun, Latest)>, Error> {
        let names: BTreeMap<String, String> = self
            .our_experiments()?
            .into_iter()
            .filter(|experiment| wanted.contains(&experiment.id))
            .map(|experiment| (experiment.name, experiment.id))
            .collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for experiment in self.all_our_experiments()? {
            let Some(id) = names.get(&experiment.name) else { continue };
            let mut query = ListQuery {
                limit: Some(PAGE),
                archived: Some(true),
                experiment: Some(experiment.id.0),
                ..ListQuery::default()
            };
            loop {
                let page = self.hub().store().runs(&query)?;
                for run in page.items {
                    let latest = self.our_latest(&run)?;
                    found.push((shown(&run, id), latest));
                }
                match page.next {
                    Some(next) => query.cursor = Some(next),
                    None => break,
                }
            }
        }
        Ok(found)
    }

    /// Our run of an id.
    pub(super) fn our_run(
        &self,
        id: &str,
        run: RunId,
    ) -> Result<(MlflowRun, Latest), MlflowRefusal> {
        let missing = |_| MlflowRefusal::missing(format!("Run with id={id} not found"));
        let run = self.hub().store().run(run).map_err(missing)?;
        let name = self.hub().store().experiment(run.experiment)?.name;
        let experiments = self.our_experiments()?;
        let experiment = experiments.into_iter().find(|experiment| experiment.name == name);
        let latest = self.our_latest(&run)?;
        Ok((shown(&run, &experiment.map_or(String::new(), |one| one.id)), latest))
    }

    /// All values of one of our metrics.
    pub(super) fn our_history(&self, run: RunId, metric: &str) -> Result<Vec<MetricValue>, Error> {
        let window = Window { from: i64::MIN, to: i64::MAX, stretches: usize::MAX / 4 };
        let started = self.hub().store().run(run)?.started.unwrap_or(0);
        let Some(curve) = self.hub().store().curve(run, metric, &window)? else {
            return Ok(Vec::new());
        };
        let times = self.hub().store().curve(run, TIMES, &window)?;
        let points = curve.steps.into_iter().zip(curve.values);
        let point = |(step, value): (i64, Option<f64>)| MetricValue {
            value: value.unwrap_or(f64::NAN),
            timestamp: times.as_ref().and_then(|times| time_at(times, step)).unwrap_or(started),
            step,
        };
        Ok(points.map(point).collect())
    }

    /// Our registry in those words.
    pub(super) fn our_models(&self) -> Result<Vec<RegisteredModel>, Error> {
        Ok(self.hub().store().models()?.into_iter().map(registered).collect())
    }

    /// One of our models, if there is one of this name.
    pub(super) fn our_model(&self, name: &str) -> Result<Option<RegisteredModel>, Error> {
        match self.hub().store().model(name) {
            Ok(model) => Ok(Some(registered(model))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn our_latest(&self, run: &runs::Run) -> Result<Latest, Error> {
        let time = run.ended.or(run.started).unwrap_or(0);
        let metrics = self.hub().store().metrics(run.id)?;
        let last = |metric: crate::store::points::MetricSummary| {
            let value = metric.last.unwrap_or(f64::NAN);
            (metric.name, MetricValue { value, timestamp: time, step: metric.last_step })
        };
        Ok(metrics.into_iter().map(last).collect())
    }
}

/// When a step was, in milliseconds since 1970: where it tells none itself, when the last one before it was.
fn time_at(times: &Curve, step: i64) -> Option<i64> {
    let until = times.steps.partition_point(|other| *other <= step);
    let seconds = times.values.get(..until)?.iter().rev().find_map(|time| *time)?;
    Some((seconds * 1000.0).round() as i64)
}

fn shown(run: &runs::Run, experiment: &str) -> MlflowRun {
    let mut params = BTreeMap::new();
    flatten("", &run.hparams, &mut params);
    let mut tags: BTreeMap<String, String> = [
        ("mlflow.runName", run.name.clone()),
        ("mlflow.source.name", "salamander".to_string()),
        ("mlflow.user", run.owner.clone()),
        ("salamander.folder", run.folder.clone()),
        ("salamander.run", run.id.to_string()),
        ("salamander.state", run.state.clone()),
    ]
    .map(|(key, value)| (key.to_string(), value))
    .into();
    tags.extend(run.model.iter().map(|model| ("salamander.model".to_string(), model.clone())));
    tags.extend(run.labels.iter().map(|label| (format!("label.{label}"), "true".to_string())));
    MlflowRun {
        id: id_of(run.id),
        name: run.name.clone(),
        experiment: experiment.to_string(),
        user: run.owner.clone(),
        status: status(&run.state).to_string(),
        started: run.started,
        ended: run.ended,
        artifacts: format!("mlflow-artifacts:/{PLACE}/{}", run.id),
        stage: if run.archived { LifecycleStage::Deleted } else { LifecycleStage::Active },
        params,
        tags,
        datasets: Vec::new(),
        model_inputs: Vec::new(),
        model_outputs: Vec::new(),
    }
}

/// A model of ours: its versions are checkpoints, whose files clients may fetch.
fn registered(model: ModelRow) -> RegisteredModel {
    let version = |version: &ModelVersion| MlflowVersion {
        description: version.notes.clone(),
        source: format!(
            "mlflow-artifacts:/{PLACE}/{}/{CHECKPOINTS}/{}",
            version.run, version.checkpoint
        ),
        storage: None,
        run: id_of(version.run),
        run_link: String::new(),
        model: String::new(),
        stage: STAGES[0].to_string(),
        created: version.created,
        updated: version.created,
        tags: [("salamander.checkpoint".to_string(), version.checkpoint.clone())].into(),
    };
    let numbered =
        model.versions.iter().filter_map(|one| Some((u64::try_from(one.version).ok()?, one)));
    let alias = |(number, one): (u64, &ModelVersion)| {
        one.aliases.iter().map(|alias| (alias.clone(), number)).collect::<Vec<_>>()
    };
    RegisteredModel {
        aliases: numbered.clone().flat_map(alias).collect(),
        updated: model.versions.iter().map(|one| one.created).max().unwrap_or(model.created),
        last: numbered.clone().map(|(number, _)| number).max().unwrap_or(0),
        versions: numbered.map(|(number, one)| (number, version(one))).collect(),
        name: model.name,
        description: model.description,
        created: model.created,
        tags: [("salamander.owner".to_string(), model.owner)].into(),
    }
}

/// Our states in MLflow's words.
fn status(state: &str) -> &'static str {
    match state {
        "completed" => "FINISHED",
        "failed" => "FAILED",
        "queued" | "paused" => "SCHEDULED",
        "canceled" | "killed" | "interrupted" | "stopped" => "KILLED",
        _ => "RUNNING",
    }
}

/// Hyperparameters by their paths.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, into);
            }
        }
        Value::String(text) => drop(into.insert(path.to_string(), text.clone())),
        other => drop(into.insert(path.to_string(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_ours_comes_back_and_others_are_none() {
        let run = RunId::new(12, 3).expect("small");
        let id = id_of(run);
        assert_eq!(id.len(), 32);
        assert_eq!(run_id(&id), Some(run));
        assert_eq!(run_id("00112233445566778899aabbccddeeff"), None);
        assert_eq!(run_id("5a1a"), None);
        assert_eq!(run_id(&format!("5a1a{}", "g".repeat(28))), None);
    }

    #[test]
    fn a_step_has_its_own_time_or_that_of_the_one_before() {
        let times = Curve {
            metric: TIMES.to_string(),
            points: 3,
            reduced: false,
            steps: vec![1, 2, 5],
            values: vec![Some(1.5), Some(2.25), None],
        };
        let found = [0, 1, 2, 4, 5, 9].map(|step| time_at(&times, step));
        assert_eq!(found, [None, Some(1500), Some(2250), Some(2250), Some(2250), Some(2250)]);
    }

    #[test]
    fn hyperparameters_are_flat_for_clients() {
        let mut flat = BTreeMap::new();
        flatten("", &serde_json::json!({"a": {"b": 1}, "c": "x", "d": [1, 2]}), &mut flat);
        let flat: Vec<(&str, &str)> =
            flat.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(flat, [("a.b", "1"), ("c", "x"), ("d", "[1,2]")]);
    }
}
