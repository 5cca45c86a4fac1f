//! The names that pods, people and other programs know a job's objects by.

use std::collections::BTreeMap;
use std::fmt;

use salamander_core::elastic::{SERVER_SLOTS, Seat};

use crate::Error;

/// The job that an object belongs to.
pub const JOB: &str = "salamander.dev/job";
/// What a pod does: `master`, `worker` or `ps`.
pub const ROLE: &str = "salamander.dev/role";
/// A pod's place among those of its role.
pub const INDEX: &str = "salamander.dev/index";
/// The number that tells a pod from others that had its place before.
pub const PROCESS: &str = "salamander.dev/process";
/// The condition of a pod that says whether it takes part in training; without it the pod is not ready.
pub const MEMBER: &str = "salamander.dev/member";
/// On the master's pod: how far the run is, as JSON.
pub const PROGRESS: &str = "salamander.dev/progress";
/// On the master's pod: how far the run was with the master before it, if that one's pod was still there.
pub const BEFORE: &str = "salamander.dev/progress-before";
/// On the master's pod: how many workers are wanted.
pub const WANTED: &str = "salamander.dev/wanted";
/// On the master's pod: how many parameter servers are wanted.
pub const WANTED_SERVERS: &str = "salamander.dev/wanted-ps";
/// On the master's pod: the run is to end early, at a step that all workers agree on.
pub const STOP: &str = "salamander.dev/stop";

/// Labels of a job by which queues know it; its pods have them too.
pub const QUEUE_LABELS: [&str; 2] = ["kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"];

/// The port that the master listens on.
pub const MASTER_PORT: u16 = 4455;
/// The port with `/healthz`, `/readyz` and `/metrics`.
pub const HEALTH_PORT: u16 = 8081;
/// The container of a pod that belongs to us.
pub const CONTAINER: &str = "salamander";

/// A worker or master that left because it was asked to (`EX_TEMPFAIL`): not finished, not broken.
pub const EXIT_LEFT: i32 = 75;
/// A master whose run has failed for good: another one would say the same.
pub const EXIT_RUN_FAILED: i32 = 70;
/// A process that was given something wrong (`EX_CONFIG`): another one would find the same.
pub const EXIT_MISTAKE: i32 = 78;
/// A master whose journal another one still holds, as on a node that does not answer (`EX_NOPERM`).
pub const EXIT_LOCKED: i32 = 77;
/// A master whose run was stopped; it can be resumed.
pub const EXIT_RUN_STOPPED: i32 = 76;

/// Longest name of a job: names of its pods and services add to it, and must stay below 63.
pub const LONGEST_JOB_NAME: usize = 40;

/// What a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodRole {
    /// Leads the run.
    Master,
    /// Trains.
    Worker,
    /// Holds parameters.
    Ps,
}

impl PodRole {
    /// As in labels and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            PodRole::Master => "master",
            PodRole::Worker => "worker",
            PodRole::Ps => "ps",
        }
    }

    /// Reads a label.
    pub fn parse(text: &str) -> Option<Self> {
        [PodRole::Master, PodRole::Worker, PodRole::Ps]
            .into_iter()
            .find(|role| role.as_str() == text)
    }

    /// The role and index of the pod that takes a slot of the master.
    pub fn of_slot(slot: u32) -> (Self, u32) {
        match Seat::of(slot) {
            Seat::Worker(index) => (PodRole::Worker, index),
            Seat::Server(index) => (PodRole::Ps, index),
        }
    }

    /// The master's slot for a pod; the master itself has none.
    pub fn slot(self, index: u32) -> Option<u32> {
        match self {
            PodRole::Master => None,
            PodRole::Worker => Some(index).filter(|index| *index < SERVER_SLOTS),
            PodRole::Ps => SERVER_SLOTS.checked_add(index),
        }
    }
}

impl fmt::Display for PodRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Labels of everything that belongs to a job.
pub fn job_labels(job: &str) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "salamander"),
        ("app.kubernetes.io/instance", job),
        ("app.kubernetes.io/part-of", "salamander"),
        ("app.kubernetes.io/managed-by", "salamander"),
        (JOB, job),
    ];
    labels.map(|(key, value)| (key.to_string(), value.to_string())).into()
}

/// Labels of a pod.
pub fn pod_labels(job: &str, role: PodRole, index: u32, process: u32) -> BTreeMap<String, String> {
    let mut labels = job_labels(job);
    labels.insert("app.kubernetes.io/component".to_string(), role.to_string());
    labels.insert(ROLE.to_string(), role.to_string());
    labels.insert(INDEX.to_string(), index.to_string());
    labels.insert(PROCESS.to_string(), process.to_string());
    labels
}

/// What selects the pods of a role.
pub fn role_selector(job: &str, role: PodRole) -> BTreeMap<String, String> {
    [(JOB, job), (ROLE, role.as_str())].map(|(k, v)| (k.to_string(), v.to_string())).into()
}

/// The label selector of all pods of a job, as a query has it.
pub fn job_query(job: &str) -> String {
    format!("{JOB}={job}")
}

/// The name of a pod; the number keeps it apart from one that still ends.
pub fn pod_name(job: &str, role: PodRole, index: u32, process: u32) -> String {
    match role {
        // There is one at a time, and its number counts masters.
        PodRole::Master => format!("{job}-master-{process}"),
        _ => format!("{job}-{role}-{index}-{}", base36(process)),
    }
}

/// The service that workers find the master by.
pub fn master_service(job: &str) -> String {
    format!("{job}-master")
}

/// Where workers reach the master.
pub fn master_address(job: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc:{MASTER_PORT}", master_service(job))
}

/// The service account, role and role binding of the master.
pub fn master_account(job: &str) -> String {
    format!("{job}-master")
}

/// The service account of pods that never ask the API server.
pub fn pod_account(job: &str) -> String {
    format!("{job}-pods")
}

/// The secret with the token and certificates of a job without the operator.
pub fn secret(job: &str) -> String {
    format!("{job}-token")
}

/// The secret of a job of the operator. The operator may not read secrets, so that it could not tell one of another
/// owner from its own: nobody can have made one with this name before the job was there.
pub fn own_secret(job: &str, uid: &str) -> String {
    format!("{}-{}", secret(job), base36(crate::experiment::seed_of(uid)))
}

/// The budget that keeps parameter servers from being evicted all at once.
pub fn disruption_budget(job: &str) -> String {
    format!("{job}-ps")
}

/// The config map with the experiment and the job.
pub fn config_map(job: &str) -> String {
    format!("{job}-config")
}

/// The claim for the run's folder, if the job has one of its own.
pub fn claim(job: &str) -> String {
    format!("{job}-runs")
}

/// Checks a job's name.
pub fn check_job_name(name: &str) -> Result<(), Error> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if name.len() > LONGEST_JOB_NAME || !begins || !name.chars().all(fine) || name.ends_with('-') {
        return Err(Error::Invalid(format!(
            "job name {name:?}: write at most {LONGEST_JOB_NAME} lower-case letters, digits and dashes, with a \
             letter first and no dash last"
        )));
    }
    Ok(())
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_fit_into_a_label() {
        let job = "j".repeat(LONGEST_JOB_NAME);
        assert!(check_job_name(&job).is_ok());
        for role in [PodRole::Master, PodRole::Worker, PodRole::Ps] {
            let name = pod_name(&job, role, 4_095, u32::MAX);
            assert!(name.len() <= 63, "{name}");
            assert_eq!(PodRole::parse(role.as_str()), Some(role));
            let slot = role.slot(7);
            assert_eq!(slot.map(PodRole::of_slot), (role != PodRole::Master).then_some((role, 7)));
        }
        assert_eq!(pod_name("mnist", PodRole::Worker, 3, 36 * 36 + 35), "mnist-worker-3-10z");
        assert_eq!(pod_name("mnist", PodRole::Master, 0, 2), "mnist-master-2");
    }

    #[test]
    fn names_that_a_service_cannot_have_are_refused() {
        for wrong in ["", "Mnist", "1st", "a_b", "a-", "a.b"] {
            let error = check_job_name(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with(&format!("job name {wrong:?}: write")), "{error}");
        }
        assert!(check_job_name(&"j".repeat(LONGEST_JOB_NAME + 1)).is_err());
        assert!(check_job_name("mnist-2").is_ok());
    }
}
