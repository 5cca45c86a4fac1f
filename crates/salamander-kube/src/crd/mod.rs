//! The custom resource `TrainingJob`: what people write, what they are told about mistakes, what they see.

pub mod cap;
mod roles;
mod status;
mod storage;
mod template;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use salamander_core::layout::EXPERIMENT;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use roles::{Gang, Master, ParameterServers, Workers};
pub use status::{Phase, Restarts, ServerCount, TrainingJobStatus, WorkerCount};
pub use storage::{AccessMode, Checkpoints, ObjectStore, Scope, Storage};
pub use template::{PodTemplate, Resources};

/// What `spec.managedBy` says of jobs that this operator looks after.
pub const MANAGER: &str = "salamander.dev/operator";

/// A training that uses what is free on the cluster, between the fewest and the most workers.
///
/// ```
/// use salamander_kube::crd::{TrainingJob, TrainingJobSpec};
/// let spec: TrainingJobSpec = serde_json::from_value(serde_json::json!({
///     "image": "registry.example/mnist:1",
///     "experiment": {"inline": {"entrypoint": "mnist_conv16"}},
///     "workers": {"max": 4},
/// }))?;
/// assert_eq!((spec.workers.min, spec.workers.wanted()), (1, 4));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "salamander.dev",
    version = "v1alpha1",
    kind = "TrainingJob",
    namespaced,
    status = "TrainingJobStatus",
    derive = "PartialEq",
    shortname = "tj",
    category = "all",
    doc = "A training that uses what is free on the cluster, between the fewest and the most workers.",
    scale(
        spec_replicas_path = ".spec.workers.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Workers", type_ = "integer", json_path = ".status.workers.ready"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.workers.wanted"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch"),
    printcolumn(name = "Step", type_ = "integer", json_path = ".status.step"),
    printcolumn(name = "Loss", type_ = "string", json_path = ".status.loss"),
    printcolumn(name = "Metric", type_ = "string", json_path = ".status.metric"),
    printcolumn(name = "Goodput", type_ = "string", json_path = ".status.goodput"),
    printcolumn(name = "PS", type_ = "integer", json_path = ".status.ps.ready", priority = 1),
    printcolumn(name = "Restarts", type_ = "integer", json_path = ".status.restarts.worker", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')").message(
        "a job's name has at most 40 lower-case letters, digits and dashes, begins with a letter and \
         does not end with a dash"
    )
)]
#[x_kube(
    validation = Rule::new("self.strategy == 'allreduce' || has(self.ps)")
        .message("strategies ps and hybrid need spec.ps with at least one replica"),
    validation = Rule::new("self.strategy == 'allreduce' || (has(self.storage) && \
        (!has(self.storage.scope) || self.storage.scope == 'Job'))")
        .message("parameter servers keep their rows in the run's folder: strategies ps and hybrid need \
                 spec.storage that all pods share"),
    validation = Rule::new("self.image == oldSelf.image")
        .message("image cannot be changed; delete the job and create another"),
    validation = Rule::new("has(self.managedBy) == has(oldSelf.managedBy) && \
        (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)")
        .message("managedBy cannot be changed; delete the job and create another"),
    validation = Rule::new("self.strategy == oldSelf.strategy")
        .message("strategy cannot be changed; delete the job and create another"),
    validation = Rule::new("self.workers.max == oldSelf.workers.max")
        .message("workers.max fixes how batches are cut and cannot be changed; use workers.replicas, \
                 or create another job")
)]
// Without this `kubectl explain` would show the example above.
#[schemars(
    description = "What to train, with what, and on how many pods. Everything but image, experiment and workers.max \
                   has a default."
)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobSpec {
    /// The image with the program that has the model; its entrypoint is that program.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// When nodes fetch the image, as in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Names of secrets of the namespace that the image is fetched with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<String>,
    /// The program in the image, if it is not its entrypoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command: Vec<String>,
    /// What to train: an experiment file, and the files that its model reads records with.
    pub experiment: ExperimentSource,
    /// Where gradients meet. `allreduce`: workers add them up among themselves. `hybrid`: the same, and the model's
    /// tables are on parameter servers. `ps`: all parameters are there, and workers do not wait for each other. The
    /// last two need `ps`, and a `storage` that all pods share.
    #[serde(default)]
    pub strategy: Strategy,
    /// The pods that train: how many, with which priority and resources.
    pub workers: Workers,
    /// The pod that leads: it decides who takes part, and trains nothing itself.
    #[serde(default)]
    pub master: Master,
    /// Parameter servers, the pods that hold the model's tables (`hybrid`) or all of its parameters (`ps`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ps: Option<ParameterServers>,
    /// Where the run's folder is. Without it, and without an object store, a lost master, or the loss of all workers at
    /// once, begins the run anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Where checkpoints are kept beside the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// Stops the run at a step that all workers agree on and gives its pods back; false goes on with it.
    #[serde(default)]
    pub suspend: bool,
    /// Who looks after the job: this operator, if it is not said or says `salamander.dev/operator`. A job of another
    /// manager, such as a queue that sends it to another cluster, is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
    /// Seconds after its end when the job is deleted with everything that was made for it; never if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl_seconds_after_finished: Option<i64>,
    /// Seconds that the job may be active; it fails when they are over. A suspended job is not active, and has all of
    /// them again when it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub active_deadline_seconds: Option<i64>,
    /// The most that all pods of the job together may request, as in `{cpu: 16, nvidia.com/gpu: 4}`: no more workers
    /// are wanted than fit into it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_cap: BTreeMap<String, IntOrString>,
    /// The priority classes that `workers.priority` speaks of.
    #[serde(default)]
    pub priority_classes: PriorityClasses,
}

impl TrainingJobSpec {
    /// How many parameter servers are wanted, if the strategy has any.
    pub fn servers(&self) -> Option<i32> {
        let has = self.strategy != Strategy::Allreduce;
        has.then(|| self.ps.as_ref().map_or(1, |ps| ps.replicas))
    }

    /// The object store that checkpoints are put into.
    pub fn object_store(&self) -> Option<&ObjectStore> {
        self.checkpoints.as_ref().map(|checkpoints| &checkpoints.object_store)
    }

    /// How many workers are wanted now: no more than the resource cap lets run.
    pub fn wanted_workers(&self) -> i32 {
        cap::most_workers(self)
            .map_or(self.workers.wanted(), |most| self.workers.wanted().min(most))
    }

    /// Whether another manager than this operator looks after the job.
    pub fn is_managed_elsewhere(&self) -> bool {
        self.managed_by.as_deref().is_some_and(|manager| manager != MANAGER)
    }

    /// Whether another master can go on with the run.
    pub fn is_kept(&self) -> bool {
        self.storage.is_some() || self.object_store().is_some()
    }
}

/// When nodes fetch the image, as in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// The node must have it.
    Never,
}

/// An experiment file: here, or in a config map.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.inline) != has(self.configMap)")
        .message("write either experiment.inline or experiment.configMap")
)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentSource {
    /// The fields of an experiment file. Paths in it are those that the pods see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub inline: Option<serde_json::Value>,
    /// A config map of the job's namespace that has the experiment file. Its other entries are taken for `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKey>,
    /// Texts that the model reads its records with (statistics, vocabularies, tokenizers), by their names in a run,
    /// which have `_` for `/`. `train --platform kube` and `manifest` fill this in. What is not here is looked for in
    /// the folder that the model names and in the image's working folder, or made from the data with `data.fit`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// A file in a config map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// The config map's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The entry that is the experiment file.
    #[serde(default = "experiment_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn experiment_key() -> String {
    EXPERIMENT.to_string()
}

/// Where gradients meet. `allreduce`: workers add them up among themselves. `hybrid`: the same, and the model's
/// tables are on parameter servers. `ps`: all parameters are there, and workers do not wait for each other. The last
/// two need `ps`, and a `storage` that all pods share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// In a ring of workers.
    #[default]
    Allreduce,
    /// On parameter servers.
    Ps,
    /// Dense parameters in a ring, tables on parameter servers.
    Hybrid,
}

/// The priority classes of workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PriorityClasses {
    /// Of workers with high priority.
    #[schemars(length(min = 1, max = 253))]
    pub high: String,
    /// Of those that give way.
    #[schemars(length(min = 1, max = 253))]
    pub low: String,
}

impl Default for PriorityClasses {
    fn default() -> Self {
        Self { high: "salamander-high".to_string(), low: "salamander-low".to_string() }
    }
}

/// The definition to install. Reading one's own schema cannot fail.
pub fn definition() -> CustomResourceDefinition {
    TrainingJob::crd()
}

/// The version that comes after this one.
pub const NEXT: &str = "v1beta1";

/// The definition on the way to the next version: both are served, with the same schema and no conversion, and the
/// next one is stored.
pub fn next_definition() -> CustomResourceDefinition {
    let mut definition = definition();
    let next = definition.spec.versions.first().cloned();
    definition.spec.versions.iter_mut().for_each(|version| version.storage = false);
    let next = next.map(|next| CustomResourceDefinitionVersion { name: NEXT.to_string(), ..next });
    definition.spec.versions.splice(0..0, next);
    definition
}

/// A definition as YAML, for `kubectl apply`.
pub fn definition_yaml(definition: &CustomResourceDefinition) -> Result<String, serde_json::Error> {
    let head =
        "# The custom resource of Salamander's jobs. Made by `salamander crd`; do not edit.\n";
    let value = serde_json::to_value(definition)?;
    Ok(format!("{head}{}", salamander_core::yaml::to_yaml(&value)))
}

/// An object whose fields belong to somebody else, who checks them.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The fields of an experiment file. Paths in it are those that the pods see.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
