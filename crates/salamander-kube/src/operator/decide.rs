//! What a job needs now: a pure function of the job, its pods and the time. Everything else in the operator
//! fetches its input and does what it says.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use salamander_core::elastic::Ending;
use salamander_core::status::State;

use super::plan::{Action, JobEvent, ObservedJob, ReconcilePlan};
use crate::contract;
use crate::crd::{Phase, TrainingJob, TrainingJobStatus};
use crate::error::Error;
use crate::names::{self, EXIT_MISTAKE, EXIT_RUN_FAILED, EXIT_RUN_STOPPED, PodRole};
use crate::platform::log_words::last_words;
use crate::platform::pod_state::{self, PodEnd, PodState};
use crate::progress::JobProgress;

/// How soon to look again while something is under way that brings no event.
const SOON: Duration = Duration::from_secs(5);
/// How soon to look again in any case.
const LATER: Duration = Duration::from_secs(300);
/// The wait after a master's first crash, doubled with each.
const BACKOFF: i64 = 1;
const LONGEST_BACKOFF: i64 = 60;
/// A master that ran for so many seconds has put earlier crashes behind it.
const CALM: i64 = 600;
/// A master whose pod was refused by its node is replaced no sooner than so many seconds after it was made.
const REFUSED: i64 = 10;
/// Pods of a job that is over are deleted, with their logs, when another container has held them for so many seconds.
const HELD: i64 = 60;

/// Decides what a job needs.
pub fn decide(job: &TrainingJob, observed: &ObservedJob, now: Timestamp) -> ReconcilePlan {
    let before = job.status.clone().unwrap_or_default();
    let mut planner = Planner::new(job, now);
    planner.count_pods(observed);
    let (phase, message) = planner.phase(observed);
    planner.finish(&before, phase, message)
}

/// What a job shows when the cluster refuses what it needs; nothing if that was told before, or if the job is over.
pub fn refused(job: &TrainingJob, error: &Error, now: Timestamp) -> Option<ReconcilePlan> {
    let before = job.status.clone().unwrap_or_default();
    let phase = match before.phase {
        Some(phase) if phase.is_final() => return None,
        _ if matches!(error, Error::Invalid(_)) => Phase::Invalid,
        // It goes on with what it has.
        Some(phase @ (Phase::Gathering | Phase::Running | Phase::Suspending)) => phase,
        _ => Phase::Blocked,
    };
    let message = error.to_string();
    let told = before.phase == Some(phase) && before.message.as_deref() == Some(&*message);
    let mut planner = Planner::new(job, now);
    if !told && before.phase == Some(phase) {
        planner.event(true, "Refused", message.clone());
    }
    Some(planner.finish(&before, phase, message))
}

pub(super) struct Planner<'a> {
    pub(super) job: &'a TrainingJob,
    pub(super) now: Timestamp,
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<JobEvent>,
    pub(super) requeue_after: Duration,
    pub(super) status: TrainingJobStatus,
}

/// A phase, and the message that explains it.
type PhaseMessage = (Phase, String);

impl<'a> Planner<'a> {
    fn new(job: &'a TrainingJob, now: Timestamp) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let (actions, events) = (Vec::new(), Vec::new());
        Self { job, now, actions, events, requeue_after: LATER, status }
    }
}

impl Planner<'_> {
    fn phase(&mut self, observed: &ObservedJob) -> PhaseMessage {
        let phase = self.status.phase;
        if let (Some(phase), message) =
            (phase.filter(|phase| phase.is_final()), &self.status.message)
        {
            let message = message.clone().unwrap_or_default();
            // A master says its last words after it said that the run is over.
            if let Some((_, pod)) = masters(&observed.pods).pop() {
                self.copy_progress(&progress_of(pod));
                if self.is_held(pod) {
                    self.delete(pod, false);
                }
            }
            self.delete_members(&observed.pods);
            self.expire();
            return (phase, message);
        }
        if self.is_overdue() {
            return self.give_up(&observed.pods);
        }
        if let Some(reason) = &observed.invalid {
            return (Phase::Invalid, reason.clone());
        }
        let mut masters = masters(&observed.pods);
        let newest = masters.pop();
        for (_, older) in masters {
            self.delete(older, false);
        }
        match newest {
            Some((number, pod)) => {
                let refused = self.refused_image(pod, observed.contract);
                match refused {
                    Some(reason) => {
                        self.delete(pod, false);
                        self.delete_members(&observed.pods);
                        (Phase::Failed, reason)
                    }
                    None => self.with_master(number, pod, &observed.pods),
                }
            }
            None => self.without_master(observed),
        }
    }

    fn without_master(&mut self, observed: &ObservedJob) -> PhaseMessage {
        let pods = &observed.pods;
        let stopped = match self.status.phase {
            Some(Phase::Suspended | Phase::Suspending) => true,
            // It was to go on, and something was in its way.
            Some(Phase::Blocked | Phase::Invalid) => self.status.start_time.is_none(),
            _ => false,
        };
        if self.job.spec.suspend {
            return self.suspended(pods);
        }
        match self.status.master {
            None => self.launch(observed.first_master, false, pods),
            Some(number) if stopped => self.launch(number as u32 + 1, true, pods),
            // Its pod was deleted before its end was seen.
            Some(number) => self.relaunch(number as u32, "its pod was deleted", pods),
        }
    }

    /// A job that is over is deleted when its time has come.
    fn expire(&mut self) {
        let ttl = self.job.spec.ttl_seconds_after_finished;
        let (Some(ttl), Some(ended)) = (ttl, &self.status.completion_time) else { return };
        match ended.0.as_second() + ttl - self.now.as_second() {
            left @ 1.. => self.look_again_in(left),
            _ => self.actions.push(Action::DeleteJob),
        }
    }

    /// Whether the job has been active for too long.
    fn is_overdue(&mut self) -> bool {
        let deadline = self.job.spec.active_deadline_seconds;
        let (Some(deadline), Some(began)) = (deadline, &self.status.start_time) else {
            return false;
        };
        let left = began.0.as_second() + deadline - self.now.as_second();
        if left > 0 {
            self.look_again_in(left);
        }
        left <= 0
    }

    fn give_up(&mut self, pods: &[Pod]) -> PhaseMessage {
        for (_, master) in masters(pods) {
            self.delete(master, false);
        }
        self.delete_members(pods);
        let deadline = self.job.spec.active_deadline_seconds.unwrap_or_default();
        (
            Phase::Failed,
            format!("it was active for longer than activeDeadlineSeconds, {deadline} s"),
        )
    }

    fn look_again_in(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.requeue_after = self.requeue_after.min(wait);
    }

    /// Why the program of a master that speaks is too old for what the job needs.
    fn refused_image(&self, master: &Pod, needed: u32) -> Option<String> {
        let said = JobProgress::from_annotation(master.annotations().get(names::PROGRESS)?)?;
        contract::refusal(needed, said.contract.unwrap_or_else(contract::first))
    }

    fn suspended(&mut self, pods: &[Pod]) -> PhaseMessage {
        // Its deadline begins again when it goes on.
        self.status.start_time = None;
        self.delete_members(pods);
        (Phase::Suspended, "stopped; set spec.suspend to false to go on".into())
    }

    fn with_master(&mut self, number: u32, pod: &Pod, pods: &[Pod]) -> PhaseMessage {
        self.status.master = Some(number as i32);
        let progress = progress_of(pod);
        self.copy_progress(&progress);
        let state = pod_state::read(pod, self.now);
        match progress.ended().or_else(|| ending_of_exit(pod)) {
            Some(Ending::Completed) => return (Phase::Complete, "the run is complete".into()),
            Some(Ending::Failed(reason)) => {
                self.delete_members(pods);
                return (Phase::Failed, reason);
            }
            Some(Ending::Interrupted)
                if matches!(state, PodState::Ended(_) | PodState::Lost(_)) =>
            {
                self.delete(pod, matches!(state, PodState::Lost(_)));
                if self.job.spec.suspend {
                    return self.suspended(pods);
                }
                return self.launch(number + 1, true, pods);
            }
            Some(Ending::Interrupted) => {
                self.requeue_after = SOON;
                return (Phase::Suspending, "stopped; waiting for its pods to end".into());
            }
            None => {}
        }
        match state {
            PodState::Ended(end) => self.ended(number, pod, end, pods),
            PodState::Lost(reason) => {
                self.delete(pod, true);
                self.relaunch(number, &reason, pods)
            }
            PodState::Leaving => {
                self.requeue_after = SOON;
                (Phase::Recovering, "the master's pod is being deleted".into())
            }
            PodState::Waiting(reason) => {
                self.annotate_wanted(pod);
                (Phase::Pending, reason.unwrap_or("the master's pod starts".into()))
            }
            PodState::Running => {
                self.forget_crashes(pod);
                self.annotate_wanted(pod);
                self.running(&progress)
            }
        }
    }

    fn running(&self, progress: &JobProgress) -> PhaseMessage {
        if self.job.spec.suspend {
            return (Phase::Suspending, "stopping at a step that all workers agree on".into());
        }
        let missing = match (&progress.waiting, progress.pending) {
            (Some(reason), pending) => format!("{pending} pods wait: {reason}"),
            (None, 0) => self.capped().unwrap_or_default(),
            (None, pending) => format!("{pending} pods start"),
        };
        match progress.state {
            Some(State::Running | State::Regrouping | State::Stopping) => (Phase::Running, missing),
            // Nothing was told yet; a master that tells anything tells its contract.
            None if progress.contract.is_none() => (Phase::Pending, "the master starts".into()),
            _ => (Phase::Gathering, missing),
        }
    }

    /// Why fewer workers are wanted than the job says.
    fn capped(&self) -> Option<String> {
        let spec = &self.job.spec;
        let (said, wanted) = (spec.workers.wanted(), spec.wanted_workers());
        (wanted < said).then(|| format!("spec.resourceCap lets {wanted} of {said} workers run"))
    }

    /// A master that has worked for a while did not crash in a row with those before it.
    fn forget_crashes(&mut self, pod: &Pod) {
        let since = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let calm = since.is_some_and(|since| self.now.as_second() - since.0.as_second() > CALM);
        if let Some(restarts) = self.status.restarts.as_mut().filter(|_| calm) {
            restarts.master_crashes = 0;
        }
    }

    /// Tells the master what is wanted.
    fn annotate_wanted(&mut self, pod: &Pod) {
        let wanted = self.job.spec.wanted_workers().to_string();
        let mut annotate = |key: &'static str, value: String| {
            if pod.annotations().get(key) != Some(&value) {
                self.actions.push(Action::Annotate { name: pod.name_any(), key, value });
            }
        };
        annotate(names::WANTED, wanted);
        if let Some(servers) = self.job.spec.servers() {
            annotate(names::WANTED_SERVERS, servers.to_string());
        }
        if self.job.spec.suspend {
            annotate(names::STOP, "true".to_string());
        }
    }

    fn ended(&mut self, number: u32, pod: &Pod, end: PodEnd, pods: &[Pod]) -> PhaseMessage {
        let reason = match end {
            PodEnd::Finished => return (Phase::Complete, "the run is complete".into()),
            PodEnd::Killed(reason) => {
                if let Some(left) = self.refused_for(pod) {
                    self.look_again_in(left);
                    return (
                        Phase::Recovering,
                        format!("a node refused the master's pod: {reason}"),
                    );
                }
                self.delete(pod, false);
                return self.relaunch(number, &reason, pods);
            }
            PodEnd::OutOfMemory => {
                "out of memory: raise master.resources.limits.memory".to_string()
            }
            PodEnd::Crashed(reason) | PodEnd::Mistaken(reason) => reason,
        };
        self.status.last_crash = Some(format!("master: {reason}"));
        let crashes = self.status.restarts.unwrap_or_default().master_crashes + 1;
        if crashes > self.job.spec.master.max_crashes {
            self.delete_members(pods);
            return (Phase::Failed, format!("the master crashed {crashes} times, last: {reason}"));
        }
        let wait = (BACKOFF << (crashes - 1).min(6)).min(LONGEST_BACKOFF);
        let left = finished_at(pod).map_or(0, |at| at.as_second() + wait - self.now.as_second());
        if left > 0 {
            self.look_again_in(left);
            return (Phase::Recovering, format!("the master crashed: {reason}"));
        }
        self.status.restarts.get_or_insert_default().master_crashes = crashes;
        self.delete(pod, false);
        self.relaunch(number, &reason, pods)
    }

    /// For how many seconds more a pod that its node has refused is not replaced: another one at once may be placed
    /// there again, and be refused as soon.
    fn refused_for(&self, pod: &Pod) -> Option<i64> {
        let made = pod.metadata.creation_timestamp.as_ref()?.0;
        let left = made.as_second() + REFUSED - self.now.as_second();
        (left > 0 && pod_state::was_refused(pod)).then_some(left)
    }

    fn relaunch(&mut self, number: u32, reason: &str, pods: &[Pod]) -> PhaseMessage {
        if self.job.spec.suspend {
            // It ended before it could stop in order; its last checkpoint is as far as it came.
            let (phase, _) = self.suspended(pods);
            return (phase, format!("stopped: {reason}"));
        }
        self.status.restarts.get_or_insert_default().master += 1;
        self.event(true, "MasterRelaunched", format!("master {number}: {reason}"));
        self.launch(number + 1, false, pods);
        (Phase::Recovering, format!("the master is started again: {reason}"))
    }

    fn launch(&mut self, number: u32, resume: bool, pods: &[Pod]) -> PhaseMessage {
        let kept = self.job.spec.is_kept();
        if self.status.master.is_some() && !kept {
            // Without the journal another master knows nothing, and workers would refuse it.
            self.delete_members(pods);
            let note = "without spec.storage or spec.checkpoints the run begins anew".to_string();
            self.event(true, "BeginsAnew", note);
        }
        self.actions.push(Action::CreateMaster { number, resume: resume && kept });
        self.status.master = Some(number as i32);
        self.status.start_time.get_or_insert(Time(self.now));
        self.requeue_after = SOON;
        (Phase::Pending, "the master's pod is created".into())
    }

    /// Ends the workers and parameter servers that are left.
    fn delete_members(&mut self, pods: &[Pod]) {
        for pod in
            pods.iter().filter(|pod| matches!(role(pod), Some(PodRole::Worker | PodRole::Ps)))
        {
            let ended = matches!(pod_state::read(pod, self.now), PodState::Ended(_));
            if !ended || self.is_held(pod) {
                self.delete(pod, false);
            }
        }
    }

    /// Whether another container has held a pod for too long after ours has ended.
    fn is_held(&mut self, pod: &Pod) -> bool {
        let held = pod_state::held_for(pod, self.now);
        if let Some(left) = held.map(|seconds| HELD - seconds).filter(|left| *left > 0) {
            self.look_again_in(left);
        }
        held.is_some_and(|seconds| seconds >= HELD)
    }

    fn delete(&mut self, pod: &Pod, force: bool) {
        if force || pod.metadata.deletion_timestamp.is_none() {
            let action = Action::Delete { name: pod.name_any(), force };
            if !self.actions.contains(&action) {
                self.actions.push(action);
            }
        }
    }

    pub(super) fn event(&mut self, warning: bool, reason: &str, note: String) {
        self.events.push(JobEvent { warning, reason: reason.to_string(), note });
    }
}

/// The masters of a job, the newest last.
pub(super) fn masters(pods: &[Pod]) -> Vec<(u32, &Pod)> {
    let mut masters: Vec<(u32, &Pod)> = pods
        .iter()
        .filter(|pod| role(pod) == Some(PodRole::Master))
        .filter_map(|pod| Some((pod.labels().get(names::PROCESS)?.parse().ok()?, pod)))
        .collect();
    masters.sort_by_key(|(number, _)| *number);
    masters
}

/// What a master says.
fn progress_of(pod: &Pod) -> JobProgress {
    let progress = pod.annotations().get(names::PROGRESS);
    progress.and_then(|text| JobProgress::from_annotation(text)).unwrap_or_default()
}

pub(super) fn role(pod: &Pod) -> Option<PodRole> {
    pod.labels().get(names::ROLE).and_then(|text| PodRole::parse(text))
}

/// A master that could not write its last progress still has an exit code.
fn ending_of_exit(pod: &Pod) -> Option<Ending> {
    let terminated = pod_state::terminated(pod)?;
    match terminated.exit_code {
        EXIT_RUN_FAILED | EXIT_MISTAKE => {
            let message = terminated.message.as_deref().unwrap_or_default();
            Some(Ending::Failed(last_words(message).unwrap_or("see the master's log".into())))
        }
        EXIT_RUN_STOPPED => Some(Ending::Interrupted),
        _ => None,
    }
}

fn finished_at(pod: &Pod) -> Option<Timestamp> {
    pod_state::terminated(pod)?.finished_at.as_ref().map(|time| time.0)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
