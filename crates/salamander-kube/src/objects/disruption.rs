//! How many parameter servers may be evicted at once. One that is evicted stays until a checkpoint has its rows;
//! several at once would leave more to do within the time that their pods are given, and what is not done by then
//! is done again from the checkpoint before.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::metadata;
use crate::job::Job;
use crate::names::{self, PodRole};

/// One server at a time may be evicted by whoever asks politely, as `kubectl drain` does. A job without the operator
/// has none: nobody would change it with the number of servers.
pub(super) fn budget(job: &Job, owner: Option<&OwnerReference>) -> Option<Value> {
    let servers = job.spec.servers().filter(|_| job.operated)?;
    Some(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(job, &names::disruption_budget(&job.name), owner),
        "spec": {
            // Not `maxUnavailable`: for that the cluster would ask the job's scale, which counts workers.
            "minAvailable": servers - 1,
            "selector": {"matchLabels": names::role_selector(&job.name, PodRole::Ps)},
            // A server that does not serve yet, or no more, keeps no node from being emptied.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }))
}
