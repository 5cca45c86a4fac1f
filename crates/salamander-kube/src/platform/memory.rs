//! How much memory the pods of a role get: what the job says, and more for those that ran out of it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use salamander_core::elastic::Ended;

use crate::crd::Resources;
use crate::job::Job;
use crate::names::PodRole;
use crate::objects::{amount, container_memory};
use crate::quantity::{self, mebibytes, more};

/// How much memory a pod of a role gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// At first.
    pub first: Option<u64>,
    /// At most.
    pub most: Option<u64>,
}

impl MemoryLimits {
    /// What a job says about a role.
    pub fn of(job: &Job, role: PodRole) -> Self {
        let read = |resources: &Resources, most: Option<&IntOrString>| {
            let bytes = |value: &IntOrString| quantity::bytes(&amount(value));
            let first = resources.limits.get("memory").or_else(|| resources.requests.get("memory"));
            Self { first: first.and_then(bytes), most: most.and_then(bytes) }
        };
        let (workers, servers) = (&job.spec.workers, &job.spec.ps);
        match (role, servers) {
            (PodRole::Worker, _) => read(&workers.resources, workers.max_memory.as_ref()),
            (PodRole::Ps, Some(ps)) => read(&ps.resources, ps.max_memory.as_ref()),
            _ => Self::default(),
        }
    }
}

/// The memory of a role, which grows when its pods run out of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryGrowth {
    memory: MemoryLimits,
    /// What its pods get now, if it is more than at first.
    grown: Option<u64>,
}

impl MemoryGrowth {
    pub(super) fn new(memory: MemoryLimits) -> Self {
        Self { memory, grown: None }
    }

    /// What the next pod gets, if it is more than the job says.
    pub(super) fn grown(&self) -> Option<u64> {
        self.grown
    }

    /// A pod has so much; others of its role get no less.
    pub(super) fn grow_to(&mut self, memory: Option<u64>) {
        let (Some(memory), Some(first)) = (memory, self.memory.first) else { return };
        if memory > self.grown.unwrap_or(first) {
            self.grown = Some(memory);
        }
    }

    /// A pod ran out of it: more memory for the next one, or a crash where it may not grow.
    pub(super) fn ran_out(&mut self, role: PodRole, pod: Option<&Pod>) -> Ended {
        let field = if role == PodRole::Ps { "ps" } else { "workers" };
        let had = pod.and_then(container_memory).or(self.grown).or(self.memory.first);
        let (Some(had), Some(most)) = (had, self.memory.most) else {
            return Ended::Crashed(format!(
                "out of memory: set {field}.resources.limits.memory, and {field}.maxMemory to let it grow"
            ));
        };
        // Another one may have run out of less, and the next has more already.
        match more(had, most).max(self.grown.filter(|grown| *grown > had)) {
            Some(next) => {
                self.grow_to(Some(next));
                Ended::Killed(format!("out of memory with {}", mebibytes(had)))
            }
            None => Ended::Crashed(format!(
                "out of memory with {}, which is the most it may have: raise {field}.maxMemory",
                mebibytes(had)
            )),
        }
    }
}
