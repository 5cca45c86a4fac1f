//! The thin side to the API server: each call is a task with a deadline, whose outcome comes back as a message.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, ResourceExt};
use salamander_core::elastic::Ended;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::fleet::Refusal;
use crate::Error;
use crate::error::{code, root};
use crate::job::{Job, is_owned};
use crate::names::{self, Role};
use crate::objects::MemberPod;
use crate::progress::Progress;

/// How long a call may take.
const CALL: Duration = Duration::from_secs(15);
/// Outcomes that may wait.
const WAITING: usize = 1_024;

/// The outcome of a call.
pub(super) enum Done {
    Created((u32, u32), Result<(), Refusal>),
    /// Whether the progress was written.
    Told(bool),
}

/// The namespace of a job.
pub(super) struct Cluster {
    pods: Api<Pod>,
    owner: OwnerReference,
    query: String,
    recorder: Recorder,
    regarding: ObjectReference,
    sender: mpsc::Sender<Done>,
    outcomes: mpsc::Receiver<Done>,
}

impl Cluster {
    /// Looks at the master's own pod, whose owner also owns the others: deleting it removes everything, and
    /// the death of one master removes nothing.
    pub(super) async fn open(client: Client, job: &Job, pod: &str) -> Result<Self, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &job.namespace);
        let what = format!("looking at the master's pod {pod}");
        let own = pods.get(pod).await.map_err(|error| Error::from_client(what, error))?;
        let owner = owner_of(&own)?;
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
            query: names::job_query(&job.name),
            recorder: Recorder::new(client, reporter),
            regarding,
            sender,
            outcomes,
        })
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        self.pods.clone()
    }

    pub(super) async fn list(&self) -> Result<Vec<Pod>, Error> {
        let params = ListParams::default().labels(&self.query);
        let listed = self.pods.list(&params).await;
        let listed = listed.map_err(|error| Error::from_client("listing the job's pods", error))?;
        Ok(listed.items.into_iter().filter(|pod| self.owns(pod)).collect())
    }

    /// Whether a pod is of this job, and not of an earlier one of the same name.
    pub(super) fn owns(&self, pod: &Pod) -> bool {
        is_owned(pod, &self.owner.uid)
    }

    /// The next outcome.
    pub(super) async fn done(&mut self) -> Option<Done> {
        self.outcomes.recv().await
    }

    pub(super) fn create(&self, job: &Job, place: (u32, u32), memory: Option<u64>) {
        let ((role, index), process) = (Role::of_slot(place.0), place.1);
        let owner = Some(&self.owner);
        let pod = match (MemberPod { job, role, index, process, memory, owner }).build() {
            Ok(pod) => pod,
            Err(error) => {
                let refusal = Refusal::Final(error.to_string());
                return self.spawn(async move { Done::Created(place, Err(refusal)) });
            }
        };
        let pods = self.pods.clone();
        self.spawn(async move {
            let params = PostParams::default();
            let answer = match timeout(CALL, pods.create(&params, &pod)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => judge(&error),
                Err(_) => Err(Refusal::Passing(format!("no answer within {CALL:?}"))),
            };
            Done::Created(place, answer)
        });
    }

    pub(super) fn delete(&self, name: String, force: bool) {
        let pods = self.pods.clone();
        // Its owner is the call's own deadline; pods that stay are deleted again when they are seen.
        tokio::spawn(async move {
            let params = match force {
                true => DeleteParams::default().grace_period(0),
                false => DeleteParams::default(),
            };
            match timeout(CALL, pods.delete(&name, &params)).await {
                Ok(Err(error)) if code(&error) != Some(404) => {
                    warn!(name, error = root(&error), "a pod cannot be deleted");
                }
                Err(_) => warn!(name, "the API server did not answer a deletion"),
                _ => {}
            }
        });
    }

    /// Says on a pod whether it trains. What cannot be written is written again with the next look.
    pub(super) fn mark(&self, name: String, member: bool) {
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
                debug!(name, error = root(&error), "a pod cannot be marked");
            }
        });
    }

    /// Writes the progress on the master's pod.
    pub(super) fn tell(&self, pod: String, progress: Progress) {
        let pods = self.pods.clone();
        self.spawn(async move {
            let text = serde_json::to_string(&progress).unwrap_or_default();
            let patch = json!({"metadata": {"annotations": {names::PROGRESS: text}}});
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let told = timeout(CALL, pods.patch_metadata(&pod, &params, &patch)).await;
            if let Ok(Err(error)) = &told {
                warn!(error = root(error), "the progress cannot be told");
            }
            Done::Told(matches!(told, Ok(Ok(_))))
        });
    }

    /// For `kubectl describe`.
    pub(super) fn event(&self, slot: u32, how: &Ended) {
        let (type_, reason, note) = match how {
            Ended::Finished => return,
            Ended::Killed(why) => (EventType::Normal, "Killed", why),
            Ended::Crashed(why) => (EventType::Warning, "Crashed", why),
        };
        let (role, index) = Role::of_slot(slot);
        let who = if role == Role::Ps { "Server" } else { "Worker" };
        // The API server takes no longer notes.
        let note: String = format!("{role} {index}: {note}").chars().take(1_000).collect();
        let (action, reason) = ("Relaunch".to_string(), format!("{who}{reason}"));
        let event = Event { type_, reason, note: Some(note), action, secondary: None };
        let (recorder, regarding) = (self.recorder.clone(), self.regarding.clone());
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(CALL, recorder.publish(&event, &regarding)).await {
                debug!(error = root(&error), "an event cannot be written");
            }
        });
    }

    /// Outcomes are few and the channel is wide: one that finds no room waits.
    fn spawn(&self, call: impl Future<Output = Done> + Send + 'static) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            // Nobody waits any more when the platform has ended.
            let _ = sender.send(call.await).await;
        });
    }
}

/// What an answer to a creation means.
fn judge(error: &kube::Error) -> Result<(), Refusal> {
    let kube::Error::Api(status) = error else { return Err(Refusal::Passing(root(error))) };
    let message = status.message.clone();
    match status.code {
        // Asked again after an answer that did not arrive. A quota that others change at the same time is a 409, too.
        409 if status.reason == "AlreadyExists" => Ok(()),
        409 => Err(Refusal::Passing(message)),
        403 if message.contains("exceeded quota") => Err(Refusal::Passing(message)),
        401 | 408 | 429 | 500.. => Err(Refusal::Passing(message)),
        _ => Err(Refusal::Final(message)),
    }
}

/// Who owns the master's pod; the pod itself, if nobody does.
fn owner_of(pod: &Pod) -> Result<OwnerReference, Error> {
    let owners = pod.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if let Some(owner) = controller.or(owners.first()) {
        let owner = OwnerReference { block_owner_deletion: None, ..owner.clone() };
        return Ok(OwnerReference { controller: Some(true), ..owner });
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
            let passing = match judge(&kube::Error::Api(status)) {
                Ok(()) => None,
                Err(Refusal::Passing(_)) => Some(true),
                Err(Refusal::Final(_)) => Some(false),
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
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), None));
        assert_eq!(owner_of(&pod(json!([]))).expect("itself").uid, "u");
    }
}
