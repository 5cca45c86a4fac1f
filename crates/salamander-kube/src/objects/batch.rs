//! The master of a job without the operator: a Kubernetes job of one pod, so that a lost master comes back.

use k8s_openapi::api::batch::v1::{
    Job as BatchJob, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{Error, MasterPod, metadata};
use crate::job::Job;
use crate::names::{CONTAINER, EXIT_RUN_FAILED, EXIT_RUN_STOPPED};

/// The master as a Kubernetes job. A run that has ended is not tried again; a master that was disrupted is,
/// without being counted.
pub fn master_job(job: &Job) -> Result<BatchJob, Error> {
    let pod = MasterPod { job, number: 0, owner: None, resume: false }.build()?;
    let mut template = PodTemplateSpec { metadata: Some(pod.metadata), spec: pod.spec };
    if let Some(metadata) = &mut template.metadata {
        // The job gives its pods names.
        (metadata.name, metadata.namespace, metadata.owner_references) = (None, None, None);
    }
    let ended = PodFailurePolicyRule {
        action: "FailJob".to_string(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(CONTAINER.to_string()),
            operator: "In".to_string(),
            values: vec![EXIT_RUN_FAILED, EXIT_RUN_STOPPED],
        }),
        ..PodFailurePolicyRule::default()
    };
    let disrupted = PodFailurePolicyRule {
        action: "Ignore".to_string(),
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_string(),
            status: "True".to_string(),
        }]),
        ..PodFailurePolicyRule::default()
    };
    Ok(BatchJob {
        metadata: metadata(job, job.name.clone(), None),
        spec: Some(JobSpec {
            backoff_limit: Some(job.spec.master.max_crashes),
            completions: Some(1),
            parallelism: Some(1),
            pod_failure_policy: Some(PodFailurePolicy { rules: vec![ended, disrupted] }),
            // Two masters at once would fight for the journal.
            pod_replacement_policy: Some("Failed".to_string()),
            template,
            ..JobSpec::default()
        }),
        ..BatchJob::default()
    })
}
