//! What a set of pods asks to be done, and what may come back.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use salamander_core::elastic::Ended;

use crate::names::{self, PodRole};

/// A pod of a job: its slot, and the number that tells it from others that had the slot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// The master's slot.
    pub slot: u32,
    /// The number of the pod.
    pub process: u32,
}

impl PodKey {
    /// Reads the labels of a pod that the master ordered; others have no key.
    pub fn of(pod: &Pod) -> Option<Self> {
        let labels = pod.labels();
        let role = PodRole::parse(labels.get(names::ROLE)?)?;
        let slot = role.slot(labels.get(names::INDEX)?.parse().ok()?)?;
        Some(Self { slot, process: labels.get(names::PROCESS)?.parse().ok()? })
    }

    /// The name of its pod.
    pub(super) fn name(self, job: &str) -> String {
        let (role, index) = PodRole::of_slot(self.slot);
        names::pod_name(job, role, index, self.process)
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// Create the pod of a slot.
    Create {
        /// The pod.
        key: PodKey,
        /// Its memory in bytes, if it needs another than the job says.
        memory: Option<u64>,
    },
    /// Delete a pod; by force if nobody is there to confirm it.
    Delete {
        /// The pod.
        name: String,
        /// Do not wait for its node.
        force: bool,
    },
    /// Set the condition of a pod that says whether it is a member.
    SetMember {
        /// The pod.
        name: String,
        /// It is one of those that train together.
        member: bool,
    },
    /// Report an end to the master.
    Report {
        /// The pod.
        key: PodKey,
        /// How it ended.
        how: Ended,
    },
}

/// Why a pod could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// It may work later: a quota, a server under load, a broken connection.
    Transient(String),
    /// It will not.
    Permanent(String),
}
