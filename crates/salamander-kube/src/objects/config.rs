//! What pods read: the experiment and the job in a config map, token and certificates in a secret.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::metadata;
use crate::job::{EXPERIMENT_FILE, JOB_FILE, Job};
use crate::names;
use crate::secrets::Secrets;

/// The experiment in force, and the job that the master makes pods of.
pub fn config_map(
    job: &Job,
    experiment: &str,
    owner: Option<&OwnerReference>,
) -> Result<ConfigMap, serde_json::Error> {
    let mut described = job.clone();
    // It is in its own file, and may be long.
    described.spec.experiment = Default::default();
    // These are told on the master's pod, and must not make the file look changed.
    described.spec.workers.replicas = None;
    if let Some(ps) = &mut described.spec.ps {
        ps.replicas = 1;
    }
    described.spec.suspend = false;
    let files = [
        (EXPERIMENT_FILE.to_string(), experiment.to_string()),
        (JOB_FILE.to_string(), serde_json::to_string(&described)?),
    ];
    Ok(ConfigMap {
        metadata: metadata(job, names::config_map(&job.name), owner),
        data: Some(files.into()),
        // Pods that read different experiments cannot train together.
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

/// The secrets that all connections between the pods of a job prove to have.
pub fn secret(job: &Job, secrets: &Secrets, owner: Option<&OwnerReference>) -> Secret {
    Secret {
        metadata: metadata(job, names::secret(&job.name), owner),
        string_data: Some(secrets.files()),
        type_: Some("Opaque".to_string()),
        // A job whose pods have different secrets cannot work.
        immutable: Some(true),
        ..Secret::default()
    }
}
