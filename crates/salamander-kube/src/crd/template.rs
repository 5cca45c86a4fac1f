//! What people may add to the pods of a role. Parts that belong to Kubernetes are kept as they were written and
//! read when a pod is built: a mistake in one job must not keep the operator from reading all others.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a container asks for and may use, as in a pod: `{requests: {cpu: 1}, limits: {memory: 4Gi}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What is kept free for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What it may use; GPUs stand here, as in `nvidia.com/gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// What the pods of a role have besides what they must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// More labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// More annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of nodes that it may run on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub tolerations: Vec<Value>,
    /// Where it likes to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "object")]
    pub affinity: Option<Value>,
    /// How it is spread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub topology_spread_constraints: Vec<Value>,
    /// Environment variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub env: Vec<Value>,
    /// Environment variables from config maps and secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub env_from: Vec<Value>,
    /// Volumes, for example with the data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub volumes: Vec<Value>,
    /// Where volumes are seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub volume_mounts: Vec<Value>,
    /// The class of its runtime, as GPUs may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub runtime_class_name: Option<String>,
    /// Who places it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub scheduler_name: Option<String>,
    /// How long it has to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub termination_grace_period_seconds: Option<i64>,
    /// The user that it runs as, never 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The group that its volumes belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
}

fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "As in a pod.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "As in a pod.",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

fn named_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "As in a pod.",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1}},
            "required": ["name"],
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}
