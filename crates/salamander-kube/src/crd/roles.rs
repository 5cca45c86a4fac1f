//! The pods of each role as a job describes them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PodTemplate, Resources};

/// The pods that train.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("self.min <= self.max")
        .message("workers.min must not be above workers.max"),
    validation = Rule::new("!has(self.replicas) || (self.replicas >= self.min && self.replicas <= self.max)")
        .message("workers.replicas must lie between workers.min and workers.max"),
    validation = Rule::new("!has(self.maxMemory) || (has(self.resources.limits) && 'memory' in self.resources.limits)")
        .message("workers.maxMemory needs workers.resources.limits.memory to grow from")
)]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// Fewer than this do not train.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4096))]
    pub min: i32,
    /// More than this are never used. It fixes how batches are cut, so that every number of workers trains alike.
    #[schemars(range(min = 1, max = 4096))]
    pub max: i32,
    /// How many are wanted now; the most, if it is not said. `kubectl scale` changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub replicas: Option<i32>,
    /// `high`, `low`, or the part of the workers with high priority, as in "0.5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(high|low|0(\.[0-9]{1,4})?|1(\.0{1,4})?)$"), length(max = 6))]
    pub priority: Option<String>,
    /// The first `workers.min` pods are placed all together or not at all, by a scheduler that can do so
    /// (`template.schedulerName`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// What a worker asks for and may use.
    #[serde(default)]
    pub resources: Resources,
    /// A worker that runs out of memory is started again with more, up to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<IntOrString>,
    /// What else its pods have.
    #[serde(default)]
    pub template: PodTemplate,
}

/// The first `min` workers are placed together or not at all, by the scheduler that `template.schedulerName` names:
/// `Coscheduling`, the plugin of the Kubernetes scheduler, or `Volcano`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gang {
    /// The coscheduling plugin of the Kubernetes scheduler (`scheduling.x-k8s.io`).
    Coscheduling,
    /// Volcano (`scheduling.volcano.sh`).
    Volcano,
}

impl Workers {
    /// How many are wanted now.
    pub fn wanted(&self) -> i32 {
        self.replicas.unwrap_or(self.max).clamp(self.min, self.max)
    }
}

fn one() -> i32 {
    1
}

/// The pod that leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Master {
    /// What it asks for and may use.
    pub resources: Resources,
    /// How often it may crash before the job fails; being killed is no crash.
    #[schemars(range(min = 0, max = 1000))]
    pub max_crashes: i32,
    /// What else its pod has.
    pub template: PodTemplate,
}

impl Default for Master {
    fn default() -> Self {
        Self { resources: Resources::default(), max_crashes: 5, template: PodTemplate::default() }
    }
}

/// The pods that hold parameters.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("!has(self.maxMemory) || (has(self.resources.limits) && 'memory' in self.resources.limits)")
        .message("ps.maxMemory needs ps.resources.limits.memory to grow from")
)]
#[serde(rename_all = "camelCase")]
pub struct ParameterServers {
    /// How many hold the model's tables. Another number moves partitions between servers while the job trains.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: i32,
    /// What one asks for and may use.
    #[serde(default)]
    pub resources: Resources,
    /// A server that runs out of memory is started again with more, up to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<IntOrString>,
    /// What else its pods have.
    #[serde(default)]
    pub template: PodTemplate,
}

impl ParameterServers {
    /// One, of which nothing is said.
    pub fn one() -> Self {
        let (resources, template) = (Resources::default(), PodTemplate::default());
        Self { replicas: 1, resources, max_memory: None, template }
    }
}
