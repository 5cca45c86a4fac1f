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
    /// What the scheduler keeps free for it, as in `cpu: 500m`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What it may use; GPUs stand here, as in `nvidia.com/gpu: 1`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrString>,
    /// Claims of devices (dynamic resource allocation) by their names in `template.resourceClaims`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub claims: Vec<Value>,
}

/// What the pods of a role have besides what they must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// Labels of its pods beside those that Salamander sets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of its pods beside those that Salamander sets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels that a node must have to run its pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that it tolerates, as in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub tolerations: Vec<Value>,
    /// Which nodes and which neighbours it prefers or needs, as in a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "object")]
    pub affinity: Option<Value>,
    /// How its pods are spread over nodes and zones, as in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub topology_spread_constraints: Vec<Value>,
    /// Environment variables, as in a container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub env: Vec<Value>,
    /// Environment variables from config maps and secrets of the namespace, as in a container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "objects")]
    pub env_from: Vec<Value>,
    /// Volumes, for example with the data, as in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub volumes: Vec<Value>,
    /// Where the program sees those volumes, as in a container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub volume_mounts: Vec<Value>,
    /// Containers that run before it, one after the other; with `restartPolicy: Always` one runs beside it as a
    /// sidecar. Those that say nothing of security get what the pod's own container has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub init_containers: Vec<Value>,
    /// Claims of devices (dynamic resource allocation), which `resources.claims` names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    pub resource_claims: Vec<Value>,
    /// The account that its pods run as, for the identity that a cloud gives to it; it must be there. Workers and
    /// parameter servers get no token of it for the cluster; that of the master gets the master's rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The class of its runtime, as GPUs may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub runtime_class_name: Option<String>,
    /// The scheduler that places its pods; the cluster's own if none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub scheduler_name: Option<String>,
    /// Seconds that a pod has to leave before it is killed; 30 if none are given, and 60 for a parameter server, which
    /// waits for a checkpoint that has its rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub termination_grace_period_seconds: Option<i64>,
    /// The user that it runs as, never 0; 65532 if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The group that its volumes belong to, and that its process is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
}

fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

fn named_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {
                "type": "string",
                "minLength": 1,
                "description": "Its name; all other fields are those of Kubernetes.",
            }},
            "required": ["name"],
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}
