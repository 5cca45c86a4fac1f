//! From a job to Kubernetes' objects: pure functions, so that a manifest and the operator make the same.

mod access;
mod batch;
mod config;
mod disruption;
mod env;
mod gang;
mod network;
mod pod;
mod roles;
mod security;
mod storage;
mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::job::Job;
use crate::names;

pub use access::role;
pub use batch::{belongings, master_job};
pub use config::{config_map, secret};
pub use pod::container_memory;
pub use roles::{MasterPod, MemberPod};
pub use storage::claim;

pub(crate) use pod::amount;

/// What every job needs beside its secrets and its files, and what may be brought back to this at any time: accounts
/// and rights, the network, the master's address.
pub fn surroundings(job: &Job, owner: Option<&OwnerReference>) -> Vec<Value> {
    let always = [
        access::account(job, &names::master_account(&job.name), owner),
        access::account(job, &names::pod_account(&job.name), owner),
        access::role(job, owner),
        access::role_binding(job, owner),
        network::network_policy(job, owner),
        network::master_service(job, owner),
    ];
    let more = [disruption::budget(job, owner), gang::pod_group(job, owner)];
    always.into_iter().chain(more.into_iter().flatten()).collect()
}

/// The metadata of an object of a job.
fn metadata(job: &Job, name: &str, owner: Option<&OwnerReference>) -> Value {
    let (namespace, labels) = (&job.namespace, names::job_labels(&job.name));
    let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([owner]);
    }
    metadata
}

#[cfg(test)]
mod tests;
