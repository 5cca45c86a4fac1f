//! What a decision of the operator is made from, and what comes out of it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::crd::TrainingJobStatus;

/// What there is of a job.
#[derive(Clone, Debug, Default)]
pub struct ObservedJob {
    /// All pods with the job's label.
    pub pods: Vec<Pod>,
    /// What is wrong with the job, if it cannot be run.
    pub invalid: Option<String>,
    /// The version of the contract that the files of its pods are written for.
    pub contract: u32,
    /// The first number that no master of an earlier job of this name has, whose pod may still be there.
    pub first_master: u32,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a master.
    CreateMaster {
        /// Counts the masters of a job.
        number: u32,
        /// Goes on with a run that was stopped.
        resume: bool,
    },
    /// Delete a pod; by force if nobody is there to confirm it.
    Delete {
        /// The pod.
        name: String,
        /// Do not wait for its node.
        force: bool,
    },
    /// Delete the job itself, with everything that was made for it.
    DeleteJob,
    /// Set an annotation of the master's pod, which says what is wanted.
    Annotate {
        /// Its pod.
        name: String,
        /// What.
        key: &'static str,
        /// How.
        value: String,
    },
}

/// An event of a job, as `kubectl describe` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Something is wrong.
    pub warning: bool,
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub note: String,
}

/// What a job needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconcilePlan {
    /// To be done, in this order.
    pub actions: Vec<Action>,
    /// How the job stands.
    pub status: TrainingJobStatus,
    /// What is new.
    pub events: Vec<JobEvent>,
    /// When to reconcile again if nothing happens.
    pub requeue_after: Duration,
}
