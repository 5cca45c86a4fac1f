//! The environment variables of pods.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
    SecretEnvSource,
};
use salamander_core::environment;

use super::pod::PodParts;
use super::volumes::scratch;
use crate::job::{CONFIG, Job};
use crate::names::PodRole;

/// Of the time that a server has to leave, so much is not spent on waiting for a checkpoint.
const LAST_SECONDS: i64 = 5;

/// The environment of each pod.
pub(super) fn own_env(job: &Job, parts: &PodParts<'_>) -> Vec<EnvVar> {
    let value = |name: &str, value: &str| EnvVar {
        name: name.to_string(),
        value: Some(value.to_string()),
        ..EnvVar::default()
    };
    let from = |name: &str, source: EnvVarSource| EnvVar {
        name: name.to_string(),
        value_from: Some(source),
        ..EnvVar::default()
    };
    let field = |name: &str, path: &str| {
        let (api_version, field_path) = (Some("v1".to_string()), path.to_string());
        let field_ref = Some(ObjectFieldSelector { api_version, field_path });
        from(name, EnvVarSource { field_ref, ..EnvVarSource::default() })
    };
    let scratch = scratch(job, parts.role);
    let mut env = vec![
        field(environment::POD_NAME.name, "metadata.name"),
        field(environment::POD_NAMESPACE.name, "metadata.namespace"),
        field(environment::POD_IP.name, "status.podIP"),
        value("HOME", &scratch),
        value("TMPDIR", &scratch),
        value(environment::LOG_FORMAT.name, "json"),
        value(environment::JOB.name, &job.name),
        value(environment::ASSETS.name, CONFIG),
        // In a pod every process is number 1, which tells nobody apart.
        value(environment::PROCESS.name, &parts.process.to_string()),
    ];
    if parts.role == PodRole::Ps {
        // The rest is for its end.
        let seconds = (parts.grace_seconds() - LAST_SECONDS).max(1);
        env.push(value(environment::GRACE.name, &seconds.to_string()));
    }
    if parts.resources.limits.as_ref().is_some_and(|limits| limits.contains_key("cpu")) {
        // As many threads as the container may use, not as the node has.
        let resource = "limits.cpu".to_string();
        let limit = ResourceFieldSelector { resource, ..ResourceFieldSelector::default() };
        let source = EnvVarSource { resource_field_ref: Some(limit), ..EnvVarSource::default() };
        env.push(from(environment::THREADS.name, source));
    }
    env
}

/// The credentials of the job's object store, for those that use it.
pub(super) fn store_env(job: &Job, role: PodRole) -> Vec<EnvFromSource> {
    let secret = job.spec.object_store().and_then(|store| store.secret_name.clone());
    let source = |name| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name, optional: None }),
        ..EnvFromSource::default()
    };
    secret.filter(|_| role != PodRole::Ps).map(source).into_iter().collect()
}
