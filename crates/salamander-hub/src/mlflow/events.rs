//! What clients have said, one line each, in the order in which it was said: everything but values of metrics.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::registry::RegisteredModel;
use super::tracked::{LifecycleStage, LoggedModel, MlflowExperiment, MlflowRun, Pairs};

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TrackingEvent {
    /// An experiment is new, or other than before.
    Experiment(MlflowExperiment),
    /// A run is new.
    Run(MlflowRun),
    /// A run is other than before.
    RunChanged {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<LifecycleStage>,
    },
    /// A run has parameters and tags; a tag without a value is gone.
    RunNoted {
        id: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        params: Pairs,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        tags: BTreeMap<String, Option<String>>,
    },
    /// What went into a run and came out.
    RunUsed {
        id: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        datasets: Vec<Value>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        model_inputs: Vec<Value>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        model_outputs: Vec<Value>,
    },
    /// A logged model is new, or other than before.
    LoggedModel(LoggedModel),
    /// A registered model is new, or other than before.
    RegisteredModel(Box<RegisteredModel>),
    /// A registered model is gone.
    Unregistered(String),
}

/// Everything that was said, as it stands now.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// By their numbers.
    pub(super) experiments: BTreeMap<u64, MlflowExperiment>,
    pub(super) runs: HashMap<String, MlflowRun>,
    /// The runs of each experiment, in the order in which they were made.
    pub(super) of_experiment: HashMap<String, Vec<String>>,
    pub(super) logged: BTreeMap<String, LoggedModel>,
    pub(super) registered: BTreeMap<String, RegisteredModel>,
}

impl Tracked {
    /// Takes in what was said.
    pub(super) fn apply(&mut self, event: TrackingEvent) {
        match event {
            TrackingEvent::Experiment(experiment) => {
                if let Ok(number) = experiment.id.parse() {
                    self.experiments.insert(number, experiment);
                }
            }
            TrackingEvent::Run(run) => {
                self.of_experiment.entry(run.experiment.clone()).or_default().push(run.id.clone());
                self.runs.insert(run.id.clone(), run);
            }
            TrackingEvent::RunChanged { id, name, status, ended, stage } => {
                let Some(run) = self.runs.get_mut(&id) else { return };
                if let Some(name) = name {
                    run.tags.insert("mlflow.runName".to_string(), name.clone());
                    run.name = name;
                }
                run.status = status.unwrap_or_else(|| std::mem::take(&mut run.status));
                run.ended = ended.or(run.ended);
                run.stage = stage.unwrap_or(run.stage);
            }
            TrackingEvent::RunNoted { id, params, tags } => {
                let Some(run) = self.runs.get_mut(&id) else { return };
                run.params.extend(params);
                for (key, value) in tags {
                    match value {
                        Some(value) => {
                            if key == "mlflow.runName" {
                                run.name.clone_from(&value);
                            }
                            run.tags.insert(key, value);
                        }
                        None => drop(run.tags.remove(&key)),
                    }
                }
            }
            TrackingEvent::RunUsed { id, datasets, model_inputs, model_outputs } => {
                let Some(run) = self.runs.get_mut(&id) else { return };
                for (all, new) in [
                    (&mut run.datasets, datasets),
                    (&mut run.model_inputs, model_inputs),
                    (&mut run.model_outputs, model_outputs),
                ] {
                    for one in new {
                        // Said again, it is still one.
                        if !all.contains(&one) {
                            all.push(one);
                        }
                    }
                }
            }
            TrackingEvent::LoggedModel(model) => drop(self.logged.insert(model.id.clone(), model)),
            TrackingEvent::RegisteredModel(model) => {
                self.registered.insert(model.name.clone(), *model);
            }
            TrackingEvent::Unregistered(name) => drop(self.registered.remove(&name)),
        }
    }
}
