//! The master of a job without the operator: a Kubernetes job of one pod, so that a lost master comes back.

use serde_json::{Value, json};

use super::{MasterPod, metadata};
use crate::Error;
use crate::job::Job;
use crate::names::{CONTAINER, EXIT_RUN_FAILED, EXIT_RUN_STOPPED};

/// The master as a Kubernetes job. A run that has ended is not tried again; a master that was disrupted is,
/// without being counted.
pub fn master_job(job: &Job) -> Result<Value, Error> {
    let pod = MasterPod { job, number: 0, owner: None, resume: false }.build()?;
    let ended = json!({
        "containerName": CONTAINER,
        "operator": "In",
        "values": [EXIT_RUN_FAILED, EXIT_RUN_STOPPED],
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
