//! The status of a job: its pods counted, its master's progress copied, its phase with conditions.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::conditions;
use super::decide::{Planner, role};
use super::plan::{ObservedJob, ReconcilePlan};
use crate::crd::{Phase, Restarts, ServerCount, TrainingJobStatus, WorkerCount};
use crate::names::{self, PodRole};
use crate::platform::pod_state::{self, PodState};
use crate::progress::JobProgress;

impl Planner<'_> {
    /// Counts the pods that there are.
    pub(super) fn count_pods(&mut self, observed: &ObservedJob) {
        let workers = observed.pods.iter().filter(|pod| role(pod) == Some(PodRole::Worker));
        let there =
            workers.filter(|pod| !matches!(pod_state::read(pod, self.now), PodState::Ended(_)));
        self.status.replicas = Some(there.count() as i32);
        let name = self.job.name_any();
        self.status.selector = Some(format!("{}={name},{}=worker", names::JOB, names::ROLE));
        let wanted = self.job.spec.wanted_workers();
        self.status.workers = Some(WorkerCount { wanted, ready: 0, pending: 0 });
        let servers = self.job.spec.servers();
        self.status.ps = servers.map(|wanted| ServerCount { wanted, ready: 0 });
    }

    /// Copies what the master says.
    pub(super) fn copy_progress(&mut self, progress: &JobProgress) {
        let status = &mut self.status;
        let count = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        if let Some(workers) = &mut status.workers {
            (workers.ready, workers.pending) = (count(progress.workers), count(progress.pending));
        }
        if let Some(servers) = &mut status.ps {
            servers.ready = count(progress.servers);
        }
        let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        status.step = number(progress.step.map(|step| step.0)).or(status.step);
        status.epoch = number(progress.epoch).or(status.epoch);
        status.loss = progress.loss.map(|loss| format!("{loss:.6}")).or(status.loss.take());
        status.goodput =
            progress.goodput.map(|part| format!("{part:.3}")).or(status.goodput.take());
        status.generation = progress.generation.clone().or(status.generation.take());
        status.checkpoint = progress.checkpoint.clone().or(status.checkpoint.take());
        status.metric = progress.milestones.validation().or(status.metric.take());
        status.last_crash = progress.last_crash.clone().or(status.last_crash.take());
        let restarts = status.restarts.unwrap_or_default();
        let worker = restarts.worker.max(progress.restarts as i64);
        let ps = restarts.ps.max(progress.server_restarts as i64);
        status.restarts = Some(Restarts { worker, ps, ..restarts });
    }

    /// Writes the phase into the status.
    pub(super) fn finish(
        mut self,
        before: &TrainingJobStatus,
        phase: Phase,
        message: String,
    ) -> ReconcilePlan {
        self.status.observed_generation = self.job.metadata.generation;
        conditions::follow(&mut self.status, self.now, phase, &message);
        if phase.is_final() {
            self.status.completion_time.get_or_insert(Time(self.now));
            if let Some(workers) = &mut self.status.workers {
                workers.ready = 0;
            }
            if let Some(servers) = &mut self.status.ps {
                servers.ready = 0;
            }
        }
        if before.phase != Some(phase) {
            let warning = matches!(phase, Phase::Invalid | Phase::Blocked | Phase::Failed);
            let note = if message.is_empty() { phase.to_string() } else { message };
            self.event(warning, &phase.to_string(), note);
        }
        if self.status.phase == Some(Phase::Invalid) {
            self.requeue_after = self.requeue_after.min(Duration::from_secs(30));
        }
        let Self { actions, status, events, requeue_after, .. } = self;
        ReconcilePlan { actions, status, events, requeue_after }
    }
}
