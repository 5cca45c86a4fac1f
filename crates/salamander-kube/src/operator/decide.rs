//! What a job needs now: a pure function of the job, its pods and the time. Everything else in the operator
//! fetches its input and does what it says.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::conditions;
use crate::crd::{Phase, Restarts, ServerCount, TrainingJob, TrainingJobStatus, WorkerCount};
use crate::names::{self, CONTAINER, EXIT_RUN_FAILED, EXIT_RUN_STOPPED, Role};
use crate::platform::reasons::{self, End as PodEnd, Seen};
use crate::progress::{End, Progress};

/// How soon to look again while something is under way that brings no event.
const SOON: Duration = Duration::from_secs(5);
/// How soon to look again in any case.
const LATER: Duration = Duration::from_secs(300);
/// The wait after a master's first crash, doubled with each.
const BACKOFF: i64 = 1;
const LONGEST_BACKOFF: i64 = 60;

/// What there is of a job.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// All pods with the job's label.
    pub pods: Vec<Pod>,
    /// What is wrong with the job, if it cannot be run.
    pub invalid: Option<String>,
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
    /// Tell the master what is wanted.
    Annotate {
        /// Its pod.
        name: String,
        /// What.
        key: &'static str,
        /// How.
        value: String,
    },
}

/// Something that people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Something is wrong.
    pub warning: bool,
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub note: String,
}

/// What a job needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// To be done, in this order.
    pub actions: Vec<Action>,
    /// How the job stands.
    pub status: TrainingJobStatus,
    /// What is new.
    pub news: Vec<News>,
    /// When to look again if nothing happens.
    pub again: Duration,
}

/// Decides what a job needs.
pub fn decide(job: &TrainingJob, observed: &Observed, now: Timestamp) -> Plan {
    let before = job.status.clone().unwrap_or_default();
    let mut case = Case {
        job,
        now,
        actions: Vec::new(),
        news: Vec::new(),
        again: LATER,
        status: before.clone(),
    };
    case.count(observed);
    let (phase, message) = case.judge(observed);
    case.finish(&before, phase, message)
}

struct Case<'a> {
    job: &'a TrainingJob,
    now: Timestamp,
    actions: Vec<Action>,
    news: Vec<News>,
    again: Duration,
    status: TrainingJobStatus,
}

type Verdict = (Phase, String);

impl Case<'_> {
    fn judge(&mut self, observed: &Observed) -> Verdict {
        let phase = self.status.phase;
        if let (Some(phase), message) =
            (phase.filter(|phase| phase.is_final()), &self.status.message)
        {
            let message = message.clone().unwrap_or_default();
            self.clear(&observed.pods);
            return (phase, message);
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
            Some((number, pod)) => self.with_master(number, pod, &observed.pods),
            None => self.without_master(&observed.pods),
        }
    }

    fn without_master(&mut self, pods: &[Pod]) -> Verdict {
        let stopped = matches!(self.status.phase, Some(Phase::Suspended | Phase::Suspending));
        if self.job.spec.suspend {
            self.clear(pods);
            return (Phase::Suspended, "stopped; set spec.suspend to false to go on".into());
        }
        match self.status.master {
            None => self.launch(0, false, pods),
            Some(number) if stopped => self.launch(number as u32 + 1, true, pods),
            // Its pod was deleted before its end was seen.
            Some(number) => self.relaunch(number as u32, "its pod was deleted", pods),
        }
    }

    fn with_master(&mut self, number: u32, pod: &Pod, pods: &[Pod]) -> Verdict {
        self.status.master = Some(number as i32);
        let progress = pod.annotations().get(names::PROGRESS);
        let progress =
            progress.and_then(|text| Progress::from_annotation(text)).unwrap_or_default();
        self.read(&progress);
        let seen = reasons::read(pod, self.now);
        match progress.ended().or_else(|| told_by_exit(pod)) {
            Some(End::Completed) => return (Phase::Complete, "the run is complete".into()),
            Some(End::Failed(reason)) => {
                self.clear(pods);
                return (Phase::Failed, reason);
            }
            Some(End::Interrupted) if matches!(seen, Seen::Ended(_) | Seen::Lost(_)) => {
                self.delete(pod, matches!(seen, Seen::Lost(_)));
                if self.job.spec.suspend {
                    self.clear(pods);
                    return (
                        Phase::Suspended,
                        "stopped; set spec.suspend to false to go on".into(),
                    );
                }
                return self.launch(number + 1, true, pods);
            }
            Some(End::Interrupted) => {
                self.again = SOON;
                return (Phase::Suspending, "stopped; waiting for its pods to end".into());
            }
            None => {}
        }
        match seen {
            Seen::Ended(end) => self.ended(number, pod, end, pods),
            Seen::Lost(reason) => {
                self.delete(pod, true);
                self.relaunch(number, &reason, pods)
            }
            Seen::Leaving => {
                self.again = SOON;
                (Phase::Recovering, "the master's pod is being deleted".into())
            }
            Seen::Waiting(reason) => {
                self.wish(pod);
                (Phase::Pending, reason.unwrap_or("the master's pod starts".into()))
            }
            Seen::Running => {
                self.wish(pod);
                self.running(&progress)
            }
        }
    }

    fn running(&self, progress: &Progress) -> Verdict {
        if self.job.spec.suspend {
            return (Phase::Suspending, "stopping at a step that all workers agree on".into());
        }
        let missing = match (&progress.waiting, progress.pending) {
            (Some(reason), pending) => format!("{pending} pods wait: {reason}"),
            (None, 0) => String::new(),
            (None, pending) => format!("{pending} pods start"),
        };
        match progress.state.as_str() {
            "running" | "regrouping" | "stopping" => (Phase::Running, missing),
            "" => (Phase::Pending, "the master starts".into()),
            _ => (Phase::Gathering, missing),
        }
    }

    /// Tells the master what is wanted.
    fn wish(&mut self, pod: &Pod) {
        let wanted = self.job.spec.workers.wanted().to_string();
        let mut tell = |key: &'static str, value: String| {
            if pod.annotations().get(key) != Some(&value) {
                self.actions.push(Action::Annotate { name: pod.name_any(), key, value });
            }
        };
        tell(names::WANTED, wanted);
        if let Some(servers) = self.job.spec.servers() {
            tell(names::WANTED_SERVERS, servers.to_string());
        }
        if self.job.spec.suspend {
            tell(names::STOP, "true".to_string());
        }
    }

    fn ended(&mut self, number: u32, pod: &Pod, end: PodEnd, pods: &[Pod]) -> Verdict {
        let reason = match end {
            PodEnd::Finished => return (Phase::Complete, "the run is complete".into()),
            PodEnd::Killed(reason) => {
                self.delete(pod, false);
                return self.relaunch(number, &reason, pods);
            }
            PodEnd::OutOfMemory => {
                "out of memory: raise master.resources.limits.memory".to_string()
            }
            PodEnd::Crashed(reason) => reason,
        };
        self.status.last_crash = Some(format!("master: {reason}"));
        let crashes = self.status.restarts.unwrap_or_default().master_crashes + 1;
        if crashes > self.job.spec.master.max_crashes {
            self.clear(pods);
            return (Phase::Failed, format!("the master crashed {crashes} times, last: {reason}"));
        }
        let wait = (BACKOFF << (crashes - 1).min(6)).min(LONGEST_BACKOFF);
        let left = finished_at(pod).map_or(0, |at| at.as_second() + wait - self.now.as_second());
        if left > 0 {
            self.again = Duration::from_secs(left as u64);
            return (Phase::Recovering, format!("the master crashed: {reason}"));
        }
        self.status.restarts.get_or_insert_default().master_crashes = crashes;
        self.delete(pod, false);
        self.relaunch(number, &reason, pods)
    }

    fn relaunch(&mut self, number: u32, reason: &str, pods: &[Pod]) -> Verdict {
        if self.job.spec.suspend {
            // It did not come to say goodbye; its last checkpoint is as far as it came.
            self.clear(pods);
            return (Phase::Suspended, format!("stopped: {reason}"));
        }
        self.status.restarts.get_or_insert_default().master += 1;
        self.tell(true, "MasterRelaunched", format!("master {number}: {reason}"));
        self.launch(number + 1, false, pods);
        (Phase::Recovering, format!("the master is started again: {reason}"))
    }

    fn launch(&mut self, number: u32, resume: bool, pods: &[Pod]) -> Verdict {
        let kept = self.job.spec.is_kept();
        if number > 0 && !kept {
            // Without the journal another master knows nothing, and workers would refuse it.
            self.clear(pods);
            let note = "without spec.storage or spec.checkpoints the run begins anew".to_string();
            self.tell(true, "BeginsAnew", note);
        }
        self.actions.push(Action::CreateMaster { number, resume: resume && kept });
        self.status.master = Some(number as i32);
        self.status.start_time.get_or_insert(Time(self.now));
        self.again = SOON;
        (Phase::Pending, "the master's pod is created".into())
    }

    /// Ends the workers and parameter servers that are left.
    fn clear(&mut self, pods: &[Pod]) {
        for pod in pods.iter().filter(|pod| matches!(role(pod), Some(Role::Worker | Role::Ps))) {
            let ended = matches!(reasons::read(pod, self.now), Seen::Ended(_));
            if !ended {
                self.delete(pod, false);
            }
        }
    }

    fn delete(&mut self, pod: &Pod, force: bool) {
        if force || pod.metadata.deletion_timestamp.is_none() {
            let action = Action::Delete { name: pod.name_any(), force };
            if !self.actions.contains(&action) {
                self.actions.push(action);
            }
        }
    }

    fn tell(&mut self, warning: bool, reason: &str, note: String) {
        self.news.push(News { warning, reason: reason.to_string(), note });
    }

    fn count(&mut self, observed: &Observed) {
        let workers = observed.pods.iter().filter(|pod| role(pod) == Some(Role::Worker));
        let there = workers.filter(|pod| !matches!(reasons::read(pod, self.now), Seen::Ended(_)));
        self.status.replicas = Some(there.count() as i32);
        let name = self.job.name_any();
        self.status.selector = Some(format!("{}={name},{}=worker", names::JOB, names::ROLE));
        let wanted = self.job.spec.workers.wanted();
        self.status.workers = Some(WorkerCount { wanted, ready: 0, pending: 0 });
        let servers = self.job.spec.servers();
        self.status.ps = servers.map(|wanted| ServerCount { wanted, ready: 0 });
    }

    /// Copies what the master says.
    fn read(&mut self, progress: &Progress) {
        let status = &mut self.status;
        let count = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        if let Some(workers) = &mut status.workers {
            (workers.ready, workers.pending) = (count(progress.workers), count(progress.pending));
        }
        if let Some(servers) = &mut status.ps {
            servers.ready = count(progress.servers);
        }
        let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        status.step = number(progress.step).or(status.step);
        status.epoch = number(progress.epoch).or(status.epoch);
        status.loss = progress.loss.map(|loss| format!("{loss:.6}")).or(status.loss.take());
        status.goodput =
            progress.goodput.map(|part| format!("{part:.3}")).or(status.goodput.take());
        status.generation = progress.generation.clone().or(status.generation.take());
        status.checkpoint = progress.checkpoint.clone().or(status.checkpoint.take());
        status.last_crash = progress.last_crash.clone().or(status.last_crash.take());
        let restarts = status.restarts.unwrap_or_default();
        let worker = restarts.worker.max(progress.restarts as i64);
        let ps = restarts.ps.max(progress.server_restarts as i64);
        status.restarts = Some(Restarts { worker, ps, ..restarts });
    }

    fn finish(mut self, before: &TrainingJobStatus, phase: Phase, message: String) -> Plan {
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
            let warning = matches!(phase, Phase::Invalid | Phase::Failed);
            self.tell(
                warning,
                phase.as_str(),
                if message.is_empty() { phase.as_str().into() } else { message },
            );
        }
        if self.status.phase == Some(Phase::Invalid) {
            self.again = self.again.min(Duration::from_secs(30));
        }
        Plan { actions: self.actions, status: self.status, news: self.news, again: self.again }
    }
}

/// The masters of a job, the newest last.
fn masters(pods: &[Pod]) -> Vec<(u32, &Pod)> {
    let mut masters: Vec<(u32, &Pod)> = pods
        .iter()
        .filter(|pod| role(pod) == Some(Role::Master))
        .filter_map(|pod| Some((pod.labels().get(names::PROCESS)?.parse().ok()?, pod)))
        .collect();
    masters.sort_by_key(|(number, _)| *number);
    masters
}

fn role(pod: &Pod) -> Option<Role> {
    pod.labels().get(names::ROLE).and_then(|text| Role::parse(text))
}

/// A master that could not write its last words still has an exit code.
fn told_by_exit(pod: &Pod) -> Option<End> {
    let terminated = terminated(pod)?;
    match terminated.exit_code {
        EXIT_RUN_FAILED => {
            let message = terminated.message.clone().unwrap_or_default();
            Some(End::Failed(message.lines().last().unwrap_or("see the master's log").to_string()))
        }
        EXIT_RUN_STOPPED => Some(End::Interrupted),
        _ => None,
    }
}

fn terminated(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::ContainerStateTerminated> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let container = statuses.iter().find(|container| container.name == CONTAINER)?;
    container.state.as_ref()?.terminated.as_ref()
}

fn finished_at(pod: &Pod) -> Option<Timestamp> {
    terminated(pod)?.finished_at.as_ref().map(|time| time.0)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
