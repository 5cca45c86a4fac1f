//! How pods find the master, and who may reach a job's pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::metadata;
use crate::job::Job;
use crate::names::{self, HEALTH_PORT, MASTER_PORT, PodRole};

/// The master's address, which stays when another pod becomes the master. It is no headless service: names of pods are
/// remembered by resolvers for longer than a relaunch takes.
pub(super) fn master_service(job: &Job, owner: Option<&OwnerReference>) -> Value {
    let (port, target) = (MASTER_PORT, "control");
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, &names::master_service(&job.name), owner),
        "spec": {
            "type": "ClusterIP",
            "selector": names::role_selector(&job.name, PodRole::Master),
            "ports": [{"name": "control", "port": port, "targetPort": target, "protocol": "TCP"}],
        },
    })
}

/// Only pods of a job reach each other; everybody may ask whether it is well.
pub(super) fn network_policy(job: &Job, owner: Option<&OwnerReference>) -> Value {
    let own = json!({"matchLabels": {names::JOB: job.name}});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job, &job.name, owner),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": own}]},
                {"ports": [{"port": HEALTH_PORT, "protocol": "TCP"}]},
            ],
        },
    })
}
