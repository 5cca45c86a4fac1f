//! Workers that are placed together or not at all. Master and servers are not among them: workers are only made when
//! the master runs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::metadata;
use crate::crd::Gang;
use crate::job::Job;
use crate::names::PodRole;

/// How long the coscheduling plugin holds places for a gang that does not fit.
const PATIENCE: i64 = 60;

/// The group that the scheduler places as one, if the job wants that.
pub(super) fn pod_group(job: &Job, owner: Option<&OwnerReference>) -> Option<Value> {
    let (version, mut spec) = match job.spec.workers.gang? {
        Gang::Coscheduling => {
            ("scheduling.x-k8s.io/v1alpha1", json!({"scheduleTimeoutSeconds": PATIENCE}))
        }
        Gang::Volcano => ("scheduling.volcano.sh/v1beta1", json!({})),
    };
    spec["minMember"] = job.spec.workers.min.into();
    Some(json!({
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": metadata(job, &job.name, owner),
        "spec": spec,
    }))
}

/// The label by which the coscheduling plugin knows a worker's group.
pub(super) fn labels(job: &Job, role: PodRole) -> BTreeMap<String, String> {
    of_worker(job, role, Gang::Coscheduling, "scheduling.x-k8s.io/pod-group")
}

/// The annotation by which Volcano knows a worker's group.
pub(super) fn annotations(job: &Job, role: PodRole) -> BTreeMap<String, String> {
    of_worker(job, role, Gang::Volcano, "scheduling.k8s.io/group-name")
}

fn of_worker(job: &Job, role: PodRole, gang: Gang, key: &str) -> BTreeMap<String, String> {
    let belongs = role == PodRole::Worker && job.spec.workers.gang == Some(gang);
    belongs.then(|| (key.to_string(), job.name.clone())).into_iter().collect()
}
