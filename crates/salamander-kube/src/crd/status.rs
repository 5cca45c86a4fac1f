//! What people see of a job.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a job stands. Written by the operator alone.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobStatus {
    /// The generation of the spec that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How the job stands, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why it stands so, or what it waits for, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Valid`, `Blocked`, `Running`, `Suspended`, `Complete`, `Failed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// Pods of workers, for `kubectl scale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What selects the pods of workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Workers that are wanted and that train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCount>,
    /// Parameter servers that are wanted and that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ps: Option<ServerCount>,
    /// Steps done in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// The epoch that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The last step's loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// The last validation's metrics, as in `accuracy 0.9815`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The part of the time since the first step in which training went on, without steps that were done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<String>,
    /// The group of workers that train together now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The last checkpoint that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Pods that were started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// How the last pod that broke did so, with the last lines of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<String>,
    /// The number of the newest master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<i32>,
    /// When the first master was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// A job in one word. `Invalid`, `Blocked` and `Failed` have their reason in `message`; `Blocked` goes on by itself
/// when the cluster lets it, `Recovering` means that the master is started again.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// Something in the job's spec is wrong.
    Invalid,
    /// The cluster refuses what it needs: a quota, a policy, a name that is taken.
    Blocked,
    /// Its master does not run yet.
    Pending,
    /// Too few workers are there.
    Gathering,
    /// It trains.
    Running,
    /// It is about to stop, so that it can go on later.
    Suspending,
    /// It is stopped and can go on.
    Suspended,
    /// Its master is started again.
    Recovering,
    /// It is done.
    Complete,
    /// It cannot be done.
    Failed,
}

/// As people see it: the name of the variant.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Phase {
    /// Whether nothing comes after it.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Complete | Phase::Failed)
    }
}

/// Workers that are wanted and that train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerCount {
    /// Workers that are wanted now.
    pub wanted: i32,
    /// Workers that train together.
    pub ready: i32,
    /// Pods of the job that wait for a place, an image or a volume.
    pub pending: i32,
}

/// Parameter servers that are wanted and that serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerCount {
    /// Parameter servers that are wanted now.
    pub wanted: i32,
    /// Parameter servers that serve.
    pub ready: i32,
}

/// Pods that were started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// Workers that were started again, whatever they ended of.
    pub worker: i64,
    /// Parameter servers that were started again, whatever they ended of.
    #[serde(default)]
    pub ps: i64,
    /// Masters that were started again, whatever they ended of.
    pub master: i32,
    /// Masters in a row that broke by themselves; ten quiet minutes set it back to 0.
    pub master_crashes: i32,
}
