//! What pods read: the experiment and the job in a config map, token and certificates in a secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use salamander_core::layout::EXPERIMENT;
use serde_json::{Value, json};

use super::metadata;
use crate::job::{JOB_FILE, Job};
use crate::names;
use crate::secrets::Secrets;

/// The experiment in force, the files that it comes with, and the job that the master makes pods of.
pub fn config_map(job: &Job, experiment: &str, owner: Option<&OwnerReference>) -> Value {
    let mut described = job.clone();
    // It is in its own file, and may be long.
    described.spec.experiment = Default::default();
    // These are told on the master's pod, and must not make the file look changed.
    described.spec.workers.replicas = None;
    if let Some(ps) = &mut described.spec.ps {
        ps.replicas = 1;
    }
    described.spec.suspend = false;
    let mut data = job.spec.experiment.files.clone();
    data.insert(EXPERIMENT.to_string(), experiment.to_string());
    data.insert(JOB_FILE.to_string(), json!(described).to_string());
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, &names::config_map(&job.name), owner),
        "data": data,
        // Pods that read different experiments cannot train together.
        "immutable": true,
    })
}

/// The secrets that all connections between the pods of a job prove to have.
pub fn secret(job: &Job, secrets: &Secrets, owner: Option<&OwnerReference>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job, &job.secret_name(), owner),
        "stringData": secrets.files(),
        "type": "Opaque",
        // A job whose pods have different secrets cannot work.
        "immutable": true,
    })
}
