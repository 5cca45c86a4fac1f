//! The thin side to the API server: each call is a task with a deadline, whose outcome comes back as a message.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::{Client, ResourceExt};
use salamander_core::elastic::Ended;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::pod_set::{CreateError, PodKey};
use crate::Error;
use crate::error::{code, retry, root};
use crate::job::{Job, is_owned};
use crate::names::{self, PodRole};
use crate::object_api::ObjectApi;
use crate::objects::{MemberPod, belongings};
use crate::pod_calls;
use crate::progress::JobProgress;

/// How long a call may take.
const CALL: Duration = Duration::from_secs(15);
/// The kind of the owner of a master that no operator looks after.
const BATCH_JOB: &str = "Job";
/// Outcomes that may wait.
const WAITING: usize = 1_024;

/// The outcome of a call.
pub(super) enum CallOutcome {
    Created(PodKey, Result<(), CreateError>),
    /// Whether the progress was written.
    ProgressWritten(bool),
}

/// The API for the pods of a job.
pub(super) struct PodApi {
    pods: Api<Pod>,
    owner: OwnerReference,
    job: String,
    /// How far the run was with the master before this one.
    pub(super) before: Option<JobProgress>,
    recorder: Recorder,
    regarding: ObjectReference,
    sender: mpsc::Sender<CallOutcome>,
    outcomes: mpsc::Receiver<CallOutcome>,
}

impl PodApi {
    /// Looks at the master's own pod, whose owner also owns the others: deleting it removes everything, and
    /// the death of one master removes nothing.
    pub(super) async fn open(client: Client, job: &Job, pod: &str) -> Result<Self, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &job.namespace);
        let own = pods.get(pod).await;
        let own = own.map_err(Error::doing(format!("looking at the master's pod {pod}")))?;
        let owner = owner_of(&own)?;
        let before = own.annotations().get(names::BEFORE);
        let before = before.and_then(|text| JobProgress::from_annotation(text));
        let (sender, outcomes) = mpsc::channel(WAITING);
        let instance = Some(pod.to_string());
        let reporter = Reporter { controller: "salamander.dev/master".into(), instance };
        let regarding = ObjectReference {
            api_version: Some(owner.api_version.clone()),
            kind: Some(owner.kind.clone()),
            name: Some(owner.name.clone()),
            namespace: Some(job.namespace.clone()),
            uid: Some(owner.uid.clone()),
            ..ObjectReference::default()
        };
        Ok(Self {
            pods,
            owner,
            job: job.name.clone(),
            before,
            recorder: Recorder::new(client, reporter),
            regarding,
            sender,
            outcomes,
        })
    }

    /// Without an operator: gives what the manifest made to the master's Kubernetes job, so that it goes with it.
    pub(super) fn take_belongings(&self, client: Client, job: &Job) {
        if self.owner.kind != BATCH_JOB {
            return;
        }
        let api = ObjectApi::new(client, &job.namespace, "salamander-master");
        let (belongings, owner) = (belongings(job), self.owner.clone());
        // Its owner is the deadline of `retry`.
        tokio::spawn(async move {
            for (group, kind, name) in belongings {
                if let Err(error) = retry(|| api.add_owner(group, kind, &name, &owner)).await {
                    warn!(%error, "it stays when the job is deleted");
                }
            }
        });
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        self.pods.clone()
    }

    pub(super) async fn list(&self) -> Result<Vec<Pod>, Error> {
        let listed = pod_calls::list(&self.pods, &self.job).await?;
        Ok(listed.into_iter().filter(|pod| self.owns(pod)).collect())
    }

    /// Whether a pod is of this job, and not of an earlier one of the same name.
    pub(super) fn owns(&self, pod: &Pod) -> bool {
        is_owned(pod, &self.owner.uid)
    }

    /// The next outcome.
    pub(super) async fn outcome(&mut self) -> Option<CallOutcome> {
        self.outcomes.recv().await
    }

    pub(super) fn create(&self, job: &Job, key: PodKey, memory: Option<u64>) {
        let ((role, index), process) = (PodRole::of_slot(key.slot), key.process);
        let owner = Some(&self.owner);
        let pod = match (MemberPod { job, role, index, process, memory, owner }).build() {
            Ok(pod) => pod,
            Err(error) => {
                let error = CreateError::Permanent(error.to_string());
                return self.spawn(async move { CallOutcome::Created(key, Err(error)) });
            }
        };
        let pods = self.pods.clone();
        self.spawn(async move {
            let params = PostParams::default();
            let answer = match timeout(CALL, pods.create(&params, &pod)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => creation_error(&error),
                Err(_) => Err(CreateError::Transient(format!("no answer within {CALL:?}"))),
            };
            CallOutcome::Created(key, answer)
        });
    }

    pub(super) fn delete(&self, name: String, force: bool) {
        let pods = self.pods.clone();
        // Its owner is the call's own deadline; pods that stay are deleted again when they are seen.
        tokio::spawn(async move {
            match timeout(CALL, pods.delete(&name, &pod_calls::delete_params(force))).await {
                Ok(Err(error)) if code(&error) != Some(404) => {
                    warn!(name, error = root(&error), "a pod cannot be deleted");
                }
                Err(_) => warn!(name, "the API server did not answer a deletion"),
                _ => {}
            }
        });
    }

    /// Sets the condition that says whether a pod is a member. What cannot be written is written again with the
    /// next status.
    pub(super) fn set_member(&self, name: String, member: bool) {
        let pods = self.pods.clone();
        tokio::spawn(async move {
            let now = Timestamp::now().to_string();
            let (status, reason) = if member { ("True", "Member") } else { ("False", "Waiting") };
            // Strategic: a plain merge would replace the conditions of the kubelet.
            let condition = json!({
                "type": names::MEMBER, "status": status, "reason": reason, "lastTransitionTime": now,
            });
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let params = PatchParams::default();
            if let Ok(Err(error)) = timeout(CALL, pods.patch_status(&name, &params, &patch)).await {
                debug!(name, error = root(&error), "the condition of a pod cannot be set");
            }
        });
    }

    /// Writes the progress on the master's pod.
    pub(super) fn write_progress(&self, pod: String, progress: JobProgress) {
        let pods = self.pods.clone();
        self.spawn(async move {
            let text = serde_json::to_string(&progress).unwrap_or_default();
            let call = pod_calls::annotate(&pods, &pod, names::PROGRESS, &text);
            let written = timeout(CALL, call).await;
            if let Ok(Err(error)) = &written {
                warn!(error = root(error), "the progress cannot be written");
            }
            CallOutcome::ProgressWritten(matches!(written, Ok(Ok(_))))
        });
    }

    /// For `kubectl describe`: how a pod ended.
    pub(super) fn tell_end(&self, slot: u32, how: &Ended) {
        let (type_, reason, note) = match how {
            Ended::Finished => return,
            Ended::Killed(why) => (EventType::Normal, "Killed", why),
            Ended::Crashed(why) | Ended::Mistaken(why) => (EventType::Warning, "Crashed", why),
        };
        self.tell_of(slot, type_, reason, note);
    }

    /// For `kubectl describe`: what was decided about the pod of a place.
    pub(super) fn tell_decision(&self, slot: u32, reason: &str, note: &str) {
        self.tell_of(slot, EventType::Normal, reason, note);
    }

    fn tell_of(&self, slot: u32, type_: EventType, reason: &str, note: &str) {
        let (role, index) = PodRole::of_slot(slot);
        let who = if role == PodRole::Ps { "Server" } else { "Worker" };
        let (reason, note) = (format!("{who}{reason}"), format!("{role} {index}: {note}"));
        self.tell(type_, &format!("{who}{index}"), &reason, &note);
    }

    /// For `kubectl describe`. Events of one action and reason are one, with the first one's note.
    pub(super) fn tell(&self, type_: EventType, action: &str, reason: &str, note: &str) {
        let event = pod_calls::event(type_, action, reason, note);
        let (recorder, regarding) = (self.recorder.clone(), self.regarding.clone());
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(CALL, recorder.publish(&event, &regarding)).await {
                debug!(error = root(&error), "an event cannot be written");
            }
        });
    }

    /// Outcomes are few and the channel is wide: one that finds no room waits.
    fn spawn(&self, call: impl Future<Output = CallOutcome> + Send + 'static) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            // Nobody waits any more when the platform has ended.
            let _ = sender.send(call.await).await;
        });
    }
}

/// What an error of a creation means; one that says that the pod is there is none.
fn creation_error(error: &kube::Error) -> Result<(), CreateError> {
    let kube::Error::Api(status) = error else { return Err(CreateError::Transient(root(error))) };
    let message = status.message.clone();
    match status.code {
        // Asked again after an answer that did not arrive. A quota that others change at the same time is a 409, too.
        409 if status.reason == "AlreadyExists" => Ok(()),
        409 => Err(CreateError::Transient(message)),
        403 if message.contains("exceeded quota") => Err(CreateError::Transient(message)),
        401 | 408 | 429 | 500.. => Err(CreateError::Transient(message)),
        _ => Err(CreateError::Permanent(message)),
    }
}

/// Who owns the master's pod; the pod itself, if nobody does. A Kubernetes job controls pods that its selector matches,
/// and takes its reference away from others that say so: those of members only go with it.
fn owner_of(pod: &Pod) -> Result<OwnerReference, Error> {
    let owners = pod.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if let Some(owner) = controller.or(owners.first()) {
        let controller = (owner.kind != BATCH_JOB).then_some(true);
        let owner = owner.clone();
        return Ok(OwnerReference { controller, block_owner_deletion: None, ..owner });
    }
    let uid = pod.uid().ok_or_else(|| Error::Invalid("the master's pod has no uid".into()))?;
    Ok(OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name_any(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_quota_passes_and_missing_rights_do_not() {
        let check = |code: u16, message: &str, expected: Option<bool>| {
            let reason = if message == "exists" { "AlreadyExists" } else { "Conflict" };
            let status = Status::failure(message, reason).with_code(code).boxed();
            let passing = match creation_error(&kube::Error::Api(status)) {
                Ok(()) => None,
                Err(CreateError::Transient(_)) => Some(true),
                Err(CreateError::Permanent(_)) => Some(false),
            };
            assert_eq!(passing, expected, "{code} {message}");
        };
        check(409, "exists", None);
        check(409, "Operation cannot be fulfilled on resourcequotas", Some(true));
        check(403, "pods \"x\" is forbidden: exceeded quota: compute", Some(true));
        check(403, "pods is forbidden: User cannot create", Some(false));
        check(422, "invalid", Some(false));
        check(429, "slow down", Some(true));
        check(503, "later", Some(true));
    }

    #[test]
    fn workers_belong_to_the_owner_of_the_master() {
        let pod = |owners: serde_json::Value| -> Pod {
            let metadata = json!({"name": "m", "uid": "u", "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
        };
        let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v",
            "controller": true, "blockOwnerDeletion": true}]);
        let owner = owner_of(&pod(job)).expect("an owner");
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Job", "v"));
        assert_eq!((owner.controller, owner.block_owner_deletion), (None, None), "no child");
        let job = json!([{"apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob", "name": "j",
            "uid": "v", "controller": true}]);
        assert_eq!(owner_of(&pod(job)).expect("an owner").controller, Some(true));
        assert_eq!(owner_of(&pod(json!([]))).expect("itself").uid, "u");
    }
}
