//! The volumes of pods, and where they are mounted.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};

use super::storage::runs_volume;
use crate::job::{CONFIG, Job, RUNS, TOKEN};
use crate::names::{self, PodRole};

/// The volumes of each pod.
pub(super) fn own_volumes(job: &Job, role: PodRole) -> Vec<Volume> {
    let config = ConfigMapVolumeSource {
        name: names::config_map(&job.name),
        ..ConfigMapVolumeSource::default()
    };
    let token = SecretVolumeSource {
        secret_name: Some(names::secret(&job.name)),
        default_mode: Some(0o440),
        ..SecretVolumeSource::default()
    };
    vec![
        Volume { name: "config".to_string(), config_map: Some(config), ..Volume::default() },
        Volume { name: "token".to_string(), secret: Some(token), ..Volume::default() },
        Volume {
            name: "tmp".to_string(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        runs_volume(job, role),
    ]
}

/// Where they are seen.
pub(super) fn own_mounts() -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str, read_only: bool| VolumeMount {
        name: name.to_string(),
        mount_path: path.to_string(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    vec![
        mount("config", CONFIG, true),
        mount("token", TOKEN, true),
        mount("tmp", "/tmp", false),
        mount("runs", RUNS, false),
    ]
}
