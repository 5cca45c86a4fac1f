//! Where a run is kept: its folder, and an object store for checkpoints.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Where checkpoints are kept beside the run's folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoints {
    /// An object store. A checkpoint counts when it is there; with it a ring of workers needs no volume.
    pub object_store: ObjectStore,
}

/// A place in an object store.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("self.url.matches('^(s3|gs|az)://[^/@?#]+(/[^@?#]*)?$')")
        .message("checkpoints.objectStore.url is s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, \
                 without credentials: those are in the secret that secretName names")
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStore {
    /// `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. The run is below it, under the job's name; a
    /// job of the same name goes on with it.
    #[schemars(length(min = 6, max = 1024))]
    pub url: String,
    /// A secret of the job's namespace, whose entries (`AWS_ACCESS_KEY_ID`, ...) become environment variables of master
    /// and workers. Without it the pods' own identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
}

impl ObjectStore {
    /// What is wrong with it, for manifests, which no API server checks.
    pub fn check(&self) -> Result<(), Error> {
        let rest =
            ["s3://", "gs://", "az://"].iter().find_map(|scheme| self.url.strip_prefix(scheme));
        let fine = rest.is_some_and(|rest| !rest.starts_with('/') && !rest.is_empty());
        if fine && !self.url.contains(['@', '?', '#']) {
            return Ok(());
        }
        // It may have credentials, which are not repeated.
        let text =
            "spec: checkpoints.objectStore.url is like s3://bucket/prefix, without credentials";
        Err(Error::Invalid(text.to_string()))
    }
}

/// Where the run's folder is, which the pods of a job share.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("[has(self.claimName), has(self.size), has(self.hostPath)].exists_one(given, given)")
        .message("write one of storage.claimName, storage.size and storage.hostPath")
)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// A claim that is there, and stays when the job is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: Option<String>,
    /// A claim of this size is made for the job, and deleted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<IntOrString>,
    /// The class of that claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// How that claim can be used; pods on several nodes need ReadWriteMany.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// `Job`: all pods share the run's folder. `Master`: only the master has it, and workers keep checkpoints for
    /// themselves, so that one of them must survive.
    #[serde(default)]
    pub scope: Scope,
    /// A folder of the node, for clusters of one node; user 65532 must be able to write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub host_path: Option<String>,
}

/// Who shares the run's folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// All pods: the run goes on from its last checkpoint when all workers are lost at once.
    #[default]
    Job,
    /// The master keeps its journal there; workers on other nodes keep checkpoints for themselves, which are
    /// lost with them. For clusters that have no volumes for several nodes.
    Master,
}

/// How a claim can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By pods on all nodes.
    #[default]
    ReadWriteMany,
    /// By pods of one node.
    ReadWriteOnce,
}
