//! The master of a job without the operator: a Kubernetes job of one pod, so that a lost master comes back.

use serde_json::{Value, json};

use super::{MasterPod, metadata};
use crate::Error;
use crate::job::Job;
use crate::names::{self, CONTAINER, EXIT_MISTAKE, EXIT_RUN_FAILED, EXIT_RUN_STOPPED};

/// What a manifest makes beside the master, by group, kind and name: the master gives all of it to its Kubernetes job,
/// whose uid no manifest can know, so that it goes with it.
pub fn belongings(job: &Job) -> Vec<(&'static str, &'static str, String)> {
    let (name, rbac) = (&job.name, "rbac.authorization.k8s.io");
    let claim = job.spec.storage.as_ref().is_some_and(|storage| storage.size.is_some());
    let claim = claim.then(|| ("", "PersistentVolumeClaim", names::claim(name)));
    let all = [
        ("", "Service", names::master_service(name)),
        ("networking.k8s.io", "NetworkPolicy", name.clone()),
        ("", "ConfigMap", names::config_map(name)),
        ("", "Secret", job.secret_name()),
        (rbac, "RoleBinding", names::master_account(name)),
        (rbac, "Role", names::master_account(name)),
        ("", "ServiceAccount", names::master_account(name)),
        ("", "ServiceAccount", names::pod_account(name)),
    ];
    all.into_iter().chain(claim).collect()
}

/// The master as a Kubernetes job. A run that has ended is not tried again; a master that was disrupted is,
/// without being counted.
pub fn master_job(job: &Job) -> Result<Value, Error> {
    let pod = MasterPod { job, number: 0, owner: None, resume: false }.build()?;
    let ended = json!({
        "containerName": CONTAINER,
        "operator": "In",
        "values": [EXIT_RUN_FAILED, EXIT_RUN_STOPPED, EXIT_MISTAKE],
    });
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job, &job.name, None),
        "spec": {
            "backoffLimit": job.spec.master.max_crashes,
            "completions": 1,
            "parallelism": 1,
            "podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": ended},
                {"action": "Ignore", "onPodConditions": disrupted},
            ]},
            // Two masters at once would fight for the journal.
            "podReplacementPolicy": "Failed",
            "template": {
                // The job gives its pods names.
                "metadata": {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations},
                "spec": pod.spec,
            },
        },
    }))
}
