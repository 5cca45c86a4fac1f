//! From a job to Kubernetes' objects: pure functions, so that a manifest and the operator make the same.

mod access;
mod batch;
mod config;
mod env;
mod network;
mod pod;
mod roles;
mod security;
mod storage;
mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::job::Job;
use crate::names;

pub use access::{master_account, pod_account, role, role_binding};
pub use batch::master_job;
pub use config::{config_map, secret};
pub use network::{master_service, network_policy};
pub use pod::{Error, container_memory};
pub use roles::{MasterPod, MemberPod};
pub use storage::claim;

pub(crate) use pod::amount;

/// The metadata of an object of a job.
fn metadata(job: &Job, name: String, owner: Option<&OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.clone()),
        labels: Some(names::job_labels(&job.name)),
        owner_references: owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
