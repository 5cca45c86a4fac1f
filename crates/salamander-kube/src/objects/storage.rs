//! Where the run's folder is.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::metadata;
use super::pod::amount;
use crate::crd::{Scope, Storage};
use crate::job::Job;
use crate::names::{self, PodRole};

/// The claim that is made for a job, if it wants one of its own.
pub fn claim(job: &Job, owner: Option<&OwnerReference>) -> Option<Value> {
    let storage = job.spec.storage.as_ref()?;
    let size = amount(storage.size.as_ref()?);
    let mut spec = json!({
        "accessModes": [storage.access_mode],
        "resources": {"requests": {"storage": size}},
    });
    if let Some(class) = &storage.storage_class_name {
        spec["storageClassName"] = json!(class);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(job, &names::claim(&job.name), owner),
        "spec": spec,
    }))
}

/// The volume of the run's folder, as the pods of a job mount it.
pub(super) fn runs_volume(job: &Job, role: PodRole) -> Volume {
    let volume = Volume { name: "runs".to_string(), ..Volume::default() };
    let claimed = |name: String| {
        let source = PersistentVolumeClaimVolumeSource { claim_name: name, ..Default::default() };
        Volume { persistent_volume_claim: Some(source), ..volume.clone() }
    };
    let shared = |storage: &&Storage| role == PodRole::Master || storage.scope == Scope::Job;
    match job.spec.storage.as_ref().filter(shared) {
        Some(Storage { claim_name: Some(name), .. }) => claimed(name.clone()),
        Some(Storage { size: Some(_), .. }) => claimed(names::claim(&job.name)),
        Some(Storage { host_path: Some(path), .. }) => {
            let type_ = Some("DirectoryOrCreate".to_string());
            let source = HostPathVolumeSource { path: path.clone(), type_ };
            Volume { host_path: Some(source), ..volume }
        }
        _ => Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume },
    }
}
