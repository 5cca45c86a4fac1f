//! Calls to the API server that the operator, the platform and commands share.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use serde_json::json;

use crate::{Error, names};

/// The API server takes no longer notes.
const LONGEST_NOTE: usize = 1_000;

/// All pods with the job's label.
pub(crate) async fn list(pods: &Api<Pod>, job: &str) -> Result<Vec<Pod>, Error> {
    let params = ListParams::default().labels(&names::job_query(job));
    let listed = pods.list(&params).await;
    Ok(listed.map_err(Error::doing("listing the job's pods"))?.items)
}

/// Sets an annotation of a pod.
pub(crate) async fn annotate(
    pods: &Api<Pod>,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    pods.patch_metadata(name, &PatchParams::default(), &patch).await.map(drop)
}

/// How to delete a pod; by force without waiting for its node.
pub(crate) fn delete_params(force: bool) -> DeleteParams {
    match force {
        true => DeleteParams::default().grace_period(0),
        false => DeleteParams::default(),
    }
}

/// An event for `kubectl describe`.
pub(crate) fn event(type_: EventType, action: &str, reason: &str, note: &str) -> Event {
    let note = Some(note.chars().take(LONGEST_NOTE).collect());
    Event { type_, reason: reason.to_string(), note, action: action.to_string(), secondary: None }
}
