//! The volumes of pods, and where they are mounted.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};

use super::storage::runs_volume;
use crate::job::{CONFIG, Job, RUNS, TOKEN, folder};
use crate::names::{self, PodRole};

/// The only folder that a pod without a lasting one may write to.
const TMP: &str = "/tmp";

/// The volumes of each pod.
pub(super) fn own_volumes(job: &Job, role: PodRole) -> Vec<Volume> {
    let config = ConfigMapVolumeSource {
        name: names::config_map(&job.name),
        ..ConfigMapVolumeSource::default()
    };
    let token = SecretVolumeSource {
        secret_name: Some(job.secret_name()),
        default_mode: Some(0o440),
        ..SecretVolumeSource::default()
    };
    let mut volumes = vec![
        Volume { name: "config".to_string(), config_map: Some(config), ..Volume::default() },
        Volume { name: "token".to_string(), secret: Some(token), ..Volume::default() },
        runs_volume(job, role),
    ];
    if !has_lasting_folder(job, role) {
        volumes.push(Volume {
            name: "tmp".to_string(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
    }
    volumes
}

/// Whether the run's folder outlives the pod: then temporary files are in it, and the pod has no data of its own that
/// `kubectl drain` would refuse to delete.
fn has_lasting_folder(job: &Job, role: PodRole) -> bool {
    runs_volume(job, role).empty_dir.is_none()
}

/// Where a pod may write what nobody needs later.
pub(super) fn scratch(job: &Job, role: PodRole) -> String {
    if has_lasting_folder(job, role) { folder(&job.name) } else { TMP.to_string() }
}

/// Where they are seen.
pub(super) fn own_mounts(job: &Job, role: PodRole) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_string(),
        mount_path: path.to_string(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let mut mounts = vec![
        mount("config", CONFIG, true),
        mount("token", TOKEN, true),
        mount("runs", RUNS, false),
    ];
    if !has_lasting_folder(job, role) {
        mounts.push(mount("tmp", TMP, false));
    }
    mounts
}
