//! What is known of a job from outside, for people and for programs.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use salamander_core::elastic::Ending;
use serde::Serialize;
use serde_json::{Value, json};

use crate::crd::{Phase, TrainingJob, TrainingJobStatus};
use crate::names;
use crate::progress::JobProgress;

/// What is known of a job from outside.
#[derive(Clone, Debug)]
pub struct View {
    /// The custom resource, if the operator looks after it.
    pub resource: Option<Box<TrainingJob>>,
    /// What its master tells.
    pub progress: Option<JobProgress>,
    /// Its pods.
    pub pods: Vec<PodView>,
}

/// A pod of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its role: `master`, `worker` or `ps`.
    pub role: String,
    /// Its phase, as Kubernetes calls it.
    pub phase: String,
}

impl PodView {
    pub(super) fn of(pod: &Pod) -> Self {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let role = pod.labels().get(names::ROLE).cloned();
        Self {
            name: pod.name_any(),
            role: role.unwrap_or_default(),
            phase: phase.unwrap_or_default(),
        }
    }
}

impl View {
    /// How the job ended, if it did.
    pub fn ended(&self) -> Option<Ending> {
        let status = self.status();
        let message = || status.and_then(|status| status.message.clone()).unwrap_or_default();
        match status.and_then(|status| status.phase) {
            Some(Phase::Complete) => Some(Ending::Completed),
            Some(Phase::Failed | Phase::Invalid) => Some(Ending::Failed(message())),
            // One that is to go on has not been looked at yet.
            Some(Phase::Suspended) if self.is_resumed() => None,
            Some(Phase::Suspended) => Some(Ending::Interrupted),
            Some(_) => None,
            None if self.resource.is_some() => None,
            None => self.progress.as_ref()?.ended(),
        }
    }

    fn status(&self) -> Option<&TrainingJobStatus> {
        self.resource.as_ref()?.status.as_ref()
    }

    fn is_resumed(&self) -> bool {
        self.resource.as_ref().is_some_and(|resource| !resource.spec.suspend)
    }

    /// In one word.
    pub fn phase(&self) -> String {
        let phase = self.status().and_then(|status| status.phase).map(|phase| phase.to_string());
        let state = self.progress.as_ref().and_then(|progress| progress.state);
        let state = state.map(|state| state.as_str().to_string());
        phase.or(state).unwrap_or_else(|| "Pending".to_string())
    }

    /// For people, in one line.
    pub fn line(&self) -> String {
        let mut line = self.head();
        if let Some(progress) = &self.progress {
            if let (Some(step), Some(epoch)) = (progress.step, progress.epoch) {
                line += &format!(", epoch {epoch}, step {step}");
            }
            if let Some(loss) = progress.loss {
                line += &format!(", loss {loss:.4}");
            }
        }
        if let Some(message) = self.status().and_then(|status| status.message.as_deref()) {
            line += &format!(" ({message})");
        }
        line
    }

    /// The phase, and who takes part.
    pub fn head(&self) -> String {
        let mut line = self.phase();
        if let Some(progress) = &self.progress {
            line += &format!(", {} of {} workers", progress.workers, progress.wanted);
            if progress.wanted_servers > 0 {
                let (servers, wanted) = (progress.servers, progress.wanted_servers);
                line += &format!(", {servers} of {wanted} parameter servers");
            }
        }
        line
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let (status, progress, pods) = (self.status(), &self.progress, &self.pods);
        json!({"state": self.phase(), "status": status, "progress": progress, "pods": pods})
    }
}
