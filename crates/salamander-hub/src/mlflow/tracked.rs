//! Experiments, runs and logged models that clients have made, as they are kept and as clients see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Field, FieldValue};

/// Whether something is there for searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LifecycleStage {
    #[default]
    Active,
    Deleted,
}

impl LifecycleStage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deleted => "deleted",
        }
    }
}

/// Keys and values.
pub(super) type Pairs = BTreeMap<String, String>;

/// Pairs as clients read them.
pub(super) fn pairs(pairs: &Pairs) -> Vec<Value> {
    pairs.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MlflowExperiment {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) artifacts: String,
    pub(super) stage: LifecycleStage,
    pub(super) created: i64,
    pub(super) updated: i64,
    #[serde(default)]
    pub(super) tags: Pairs,
}

impl MlflowExperiment {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "experiment_id": self.id,
            "name": self.name,
            "artifact_location": self.artifacts,
            "lifecycle_stage": self.stage.as_str(),
            "creation_time": self.created,
            "last_update_time": self.updated,
            "tags": pairs(&self.tags),
        })
    }

    pub(super) fn found(&self, field: Field, key: &str) -> Option<FieldValue> {
        match (field, key) {
            (Field::Tag, key) => self.tags.get(key).cloned().map(FieldValue::Text),
            (Field::Attribute, "name") => Some(FieldValue::Text(self.name.clone())),
            (Field::Attribute, "experiment_id") => Some(FieldValue::Text(self.id.clone())),
            (Field::Attribute, "creation_time") => Some(FieldValue::Number(self.created as f64)),
            (Field::Attribute, "last_update_time") => Some(FieldValue::Number(self.updated as f64)),
            _ => None,
        }
    }
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricValue {
    pub(super) value: f64,
    pub(super) timestamp: i64,
    pub(super) step: i64,
}

impl MetricValue {
    /// Whether it takes the place of another as the last one.
    pub(super) fn follows(&self, other: &Self) -> bool {
        (self.step, self.timestamp) >= (other.step, other.timestamp)
    }

    pub(super) fn to_json(&self, key: &str, run: &str) -> Value {
        json!({
            "key": key,
            "value": number(self.value),
            "timestamp": self.timestamp,
            "step": self.step,
            "run_id": run,
        })
    }
}

/// A number as clients read it.
pub(super) fn number(value: f64) -> Value {
    if value.is_nan() { "NaN".into() } else { json!(value.clamp(f64::MIN, f64::MAX)) }
}

/// What is said of a run apart from what it has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MlflowRun {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) experiment: String,
    pub(super) user: String,
    pub(super) status: String,
    pub(super) started: Option<i64>,
    pub(super) ended: Option<i64>,
    pub(super) artifacts: String,
    #[serde(default)]
    pub(super) stage: LifecycleStage,
    #[serde(default)]
    pub(super) params: Pairs,
    #[serde(default)]
    pub(super) tags: Pairs,
    #[serde(default)]
    pub(super) datasets: Vec<Value>,
    #[serde(default)]
    pub(super) model_inputs: Vec<Value>,
    #[serde(default)]
    pub(super) model_outputs: Vec<Value>,
}

/// What a run has used a data set for, which clients say in a tag.
pub(super) fn context_of(input: &Value) -> Option<&str> {
    let tags = input["tags"].as_array()?;
    tags.iter().find(|tag| tag["key"] == "mlflow.data.context")?["value"].as_str()
}

/// The last value of each metric.
pub(super) type Latest = BTreeMap<String, MetricValue>;

impl MlflowRun {
    pub(super) fn info(&self) -> Value {
        let mut info = json!({
            "run_id": self.id,
            "run_uuid": self.id,
            "run_name": self.name,
            "experiment_id": self.experiment,
            "user_id": self.user,
            "status": self.status,
            "artifact_uri": self.artifacts,
            "lifecycle_stage": self.stage.as_str(),
        });
        for (name, time) in [("start_time", self.started), ("end_time", self.ended)] {
            if let Some(time) = time {
                info[name] = time.into();
            }
        }
        info
    }

    pub(super) fn to_json(&self, latest: &Latest) -> Value {
        let metric = |(key, last): (&String, &MetricValue)| last.to_json(key, &self.id);
        json!({
            "info": self.info(),
            "data": {
                "metrics": latest.iter().map(metric).collect::<Vec<_>>(),
                "params": pairs(&self.params),
                "tags": pairs(&self.tags),
            },
            "inputs": {"dataset_inputs": self.datasets, "model_inputs": self.model_inputs},
            "outputs": {"model_outputs": self.model_outputs},
        })
    }

    pub(super) fn found(&self, latest: &Latest, field: Field, key: &str) -> Option<FieldValue> {
        let text = |text: &String| Some(FieldValue::Text(text.clone()));
        let time = |time: Option<i64>| time.map(|time| FieldValue::Number(time as f64));
        match field {
            Field::Metric => latest.get(key).map(|last| FieldValue::Number(last.value)),
            Field::Param => self.params.get(key).cloned().map(FieldValue::Text),
            Field::Tag => self.tags.get(key).cloned().map(FieldValue::Text),
            Field::Dataset => {
                let of = |input: &Value| match key {
                    "context" => context_of(input).map(String::from),
                    key => input["dataset"][key].as_str().map(String::from),
                };
                Some(FieldValue::Several(self.datasets.iter().filter_map(of).collect()))
            }
            Field::Attribute => match key {
                "run_id" => text(&self.id),
                "run_name" | "run name" | "Run name" | "Run Name" => text(&self.name),
                "status" => text(&self.status),
                "user_id" => text(&self.user),
                "artifact_uri" => text(&self.artifacts),
                "experiment_id" => text(&self.experiment),
                "lifecycle_stage" => Some(FieldValue::Text(self.stage.as_str().to_string())),
                "start_time" | "created" | "Created" => time(self.started),
                "end_time" => time(self.ended),
                _ => None,
            },
        }
    }
}

/// A model that a run has logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoggedModel {
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) name: String,
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) artifacts: String,
    pub(super) status: String,
    pub(super) kind: String,
    pub(super) run: String,
    #[serde(default)]
    pub(super) tags: Pairs,
    #[serde(default)]
    pub(super) params: Pairs,
    #[serde(default)]
    pub(super) metrics: Vec<Value>,
    #[serde(default)]
    pub(super) registrations: Vec<Value>,
    #[serde(default)]
    pub(super) stage: LifecycleStage,
}

impl LoggedModel {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "info": {
                "model_id": self.id,
                "experiment_id": self.experiment,
                "name": self.name,
                "creation_timestamp_ms": self.created,
                "last_updated_timestamp_ms": self.updated,
                "artifact_uri": self.artifacts,
                "status": self.status,
                "model_type": self.kind,
                "source_run_id": self.run,
                "tags": pairs(&self.tags),
                "registrations": self.registrations,
            },
            "data": {"params": pairs(&self.params), "metrics": self.metrics},
        })
    }

    pub(super) fn found(&self, field: Field, key: &str) -> Option<FieldValue> {
        let text = |text: &String| Some(FieldValue::Text(text.clone()));
        match field {
            Field::Tag => self.tags.get(key).cloned().map(FieldValue::Text),
            Field::Param => self.params.get(key).cloned().map(FieldValue::Text),
            Field::Metric => {
                let last = self.metrics.iter().rev().find(|metric| metric["key"] == key)?;
                Some(FieldValue::Number(last["value"].as_f64().unwrap_or(f64::NAN)))
            }
            Field::Dataset => None,
            Field::Attribute => match key {
                "name" | "model_name" => text(&self.name),
                "model_id" => text(&self.id),
                "model_type" => text(&self.kind),
                "source_run_id" => text(&self.run),
                "experiment_id" => text(&self.experiment),
                "status" => {
                    let status = self.status.strip_prefix("LOGGED_MODEL_").unwrap_or(&self.status);
                    Some(FieldValue::Text(status.to_string()))
                }
                "creation_timestamp" | "creation_time" | "creation_timestamp_ms" => {
                    Some(FieldValue::Number(self.created as f64))
                }
                "last_updated_timestamp" | "last_updated_time" | "last_updated_timestamp_ms" => {
                    Some(FieldValue::Number(self.updated as f64))
                }
                _ => None,
            },
        }
    }
}
