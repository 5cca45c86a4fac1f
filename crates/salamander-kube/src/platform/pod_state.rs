//! What can be seen of a pod, and what its end means: whether it counts as a crash. A pure function of what
//! Kubernetes says.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};

use super::log_words::last_lines;
use crate::names::{CONTAINER, EXIT_LEFT, EXIT_LOCKED, EXIT_MISTAKE, MEMBER};

/// How long a pod may be overdue before its node counts as lost, in seconds.
const OVERDUE: i64 = 5;

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodEnd {
    /// By itself, with success.
    Finished,
    /// By somebody or something else: it is started again at once.
    Killed(String),
    /// It needed more memory than it had.
    OutOfMemory,
    /// By itself, with an error: it is counted.
    Crashed(String),
    /// By itself, because of what it was given: another one would find the same.
    Mistaken(String),
}

/// What can be seen of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It waits for a place, an image or a volume; this is what Kubernetes says about it.
    Waiting(Option<String>),
    /// It runs.
    Running,
    /// It was told to leave and has not yet.
    Leaving,
    /// Its node does not answer: it will never be seen to end.
    Lost(String),
    /// It ended.
    Ended(PodEnd),
}

/// Reads a pod.
pub fn read(pod: &Pod, now: Timestamp) -> PodState {
    let status = pod.status.clone().unwrap_or_default();
    if let Some(end) = ended(&status) {
        return PodState::Ended(end);
    }
    if let Some(deletion) = &pod.metadata.deletion_timestamp {
        let disruption = disruption(&status);
        // The kubelet that would say more is not there.
        let silent =
            disruption.as_deref() == Some("DeletionByTaintManager") && !is_true(&status, "Ready");
        let overdue = now.as_second() > deletion.0.as_second() + OVERDUE;
        if silent || overdue {
            return PodState::Lost("its node does not answer".to_string());
        }
        return PodState::Leaving;
    }
    match status.phase.as_deref() {
        Some("Running") => PodState::Running,
        _ => PodState::Waiting(waiting(&status)),
    }
}

/// What a pod that is gone ended of, as far as it was last seen.
pub fn gone(last: &Pod) -> PodEnd {
    let status = last.status.clone().unwrap_or_default();
    ended(&status).unwrap_or_else(|| match disruption(&status) {
        Some(reason) => PodEnd::Killed(format!("its pod was deleted: {reason}")),
        None => PodEnd::Killed("its pod was deleted".to_string()),
    })
}

fn ended(status: &PodStatus) -> Option<PodEnd> {
    let terminated = container(status).and_then(|c| c.state.as_ref()?.terminated.as_ref());
    let phase = status.phase.as_deref().unwrap_or_default();
    if phase == "Succeeded" {
        return Some(PodEnd::Finished);
    }
    if phase != "Failed" && terminated.is_none() {
        return None;
    }
    // Before the exit code: whoever is disrupted may end in any way.
    if let Some(reason) = disruption(status) {
        return Some(PodEnd::Killed(with_message(&reason, status)));
    }
    if let Some(terminated) = terminated {
        return Some(meaning(terminated));
    }
    if let Some(reason) = failed_before(status) {
        return Some(PodEnd::Crashed(reason));
    }
    // It failed without having run: evicted, refused by the node, lost with it.
    let reason = status.reason.clone().unwrap_or_else(|| "its pod failed".to_string());
    Some(PodEnd::Killed(with_message(&reason, status)))
}

/// How a container broke that runs before ours.
fn failed_before(status: &PodStatus) -> Option<String> {
    let mut containers = status.init_container_statuses.as_ref()?.iter();
    containers.find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let (name, code) = (&container.name, ended.exit_code);
        let words = last_lines(ended.message.as_deref().unwrap_or_default());
        let text = format!("init container {name:?}: exit code {code}: {words}");
        (code != 0).then(|| text.trim_end_matches(": ").to_string())
    })
}

fn meaning(terminated: &ContainerStateTerminated) -> PodEnd {
    let quoted = last_lines(terminated.message.as_deref().unwrap_or_default());
    let crashed = |what: String| match quoted.as_str() {
        "" => PodEnd::Crashed(what),
        lines => PodEnd::Crashed(format!("{what}: {lines}")),
    };
    match (terminated.reason.as_deref(), terminated.exit_code) {
        (Some("OOMKilled"), _) => PodEnd::OutOfMemory,
        (_, 0) => PodEnd::Finished,
        (_, EXIT_LEFT) => PodEnd::Killed("it left on request".to_string()),
        (_, EXIT_MISTAKE) => PodEnd::Mistaken(quoted),
        (_, EXIT_LOCKED) => PodEnd::Killed("another master still holds the journal".to_string()),
        // Rust aborts when there is no memory.
        (_, 134) if quoted.contains("memory allocation of") => PodEnd::OutOfMemory,
        (Some(reason @ ("StartError" | "ContainerCannotRun")), _) => crashed(reason.to_string()),
        (_, code) => match (code - 128, signal(code - 128)) {
            (_, Some((name, true))) => crashed(name.to_string()),
            (_, Some((name, false))) => PodEnd::Killed(name.to_string()),
            _ => crashed(format!("exit code {code}")),
        },
    }
}

/// A signal's name, and whether a program brings it upon itself.
fn signal(number: i32) -> Option<(&'static str, bool)> {
    Some(match number {
        1 => ("SIGHUP", false),
        2 => ("SIGINT", false),
        4 => ("SIGILL", true),
        5 => ("SIGTRAP", true),
        6 => ("SIGABRT", true),
        7 => ("SIGBUS", true),
        8 => ("SIGFPE", true),
        9 => ("SIGKILL", false),
        11 => ("SIGSEGV", true),
        15 => ("SIGTERM", false),
        31 => ("SIGSYS", true),
        _ => return None,
    })
}

/// How the container of a pod ended, if it did.
pub fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    container(pod.status.as_ref()?)?.state.as_ref()?.terminated.as_ref()
}

/// For how many seconds another container, such as the proxy that a service mesh has put into the pod, has held it and
/// what it has since ours ended. A moment of that is in every end: a pod has ended when its node has cleaned up.
pub fn held_for(pod: &Pod, now: Timestamp) -> Option<i64> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = terminated(pod)?.finished_at.as_ref()?.0;
    let held = !matches!(phase, Some("Succeeded" | "Failed"));
    held.then(|| now.as_second() - ended.as_second())
}

fn container(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.as_ref()?.iter().find(|container| container.name == CONTAINER)
}

/// Why the pod was disrupted from outside, if it was: `PreemptionByScheduler`, `EvictionByEvictionAPI` and so on.
fn disruption(status: &PodStatus) -> Option<String> {
    let conditions = status.conditions.as_ref()?;
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    Some(target.reason.clone().unwrap_or_else(|| "it was disrupted".to_string()))
}

/// Whether its node has refused a pod, so that no container of it ever was: a device or the memory that it was placed
/// there for had gone.
pub fn was_refused(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let all = [&status.container_statuses, &status.init_container_statuses];
    let were_there = all.into_iter().flatten().any(|containers| !containers.is_empty());
    status.phase.as_deref() == Some("Failed") && !were_there && disruption(status).is_none()
}

/// Whether a pod says that it trains.
pub fn is_member(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| is_true(status, MEMBER))
}

fn is_true(status: &PodStatus, type_: &str) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// What keeps a pod from running: its place, its image, its volumes.
fn waiting(status: &PodStatus) -> Option<String> {
    let container = container(status).and_then(|c| c.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = container {
        let reason = waiting.reason.clone().unwrap_or_default();
        // All is well with these.
        if !matches!(reason.as_str(), "ContainerCreating" | "PodInitializing" | "") {
            let message = waiting.message.clone().unwrap_or_default();
            return Some(format!("{reason}: {message}").trim_end_matches(": ").to_string());
        }
    }
    let conditions = status.conditions.as_ref()?;
    let place = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    place.message.clone().or_else(|| place.reason.clone())
}

fn with_message(reason: &str, status: &PodStatus) -> String {
    match status.message.as_deref() {
        Some(message) if !message.is_empty() => format!("{reason}: {message}"),
        _ => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn check(status: Value, deleted: Option<i64>, expected: PodState) {
        let deleted = deleted
            .map(|seconds| Timestamp::from_second(NOW + seconds).expect("a time").to_string());
        let pod = json!({"metadata": {"deletionTimestamp": deleted}, "status": status.clone()});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let now = Timestamp::from_second(NOW).expect("a time");
        assert_eq!(read(&pod, now), expected, "{status}");
    }

    fn ended(reason: Value, code: i32, log: &str) -> Value {
        let terminated = json!({"reason": reason, "exitCode": code, "message": log});
        json!({
            "phase": "Failed",
            "containerStatuses": [{
                "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": terminated},
            }],
        })
    }

    fn disrupted(reason: &str, ready: &str, phase: &str) -> Value {
        json!({"phase": phase, "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason},
            {"type": "Ready", "status": ready},
        ]})
    }

    #[test]
    fn who_is_killed_is_not_to_blame() {
        let killed = |reason: &str| PodState::Ended(PodEnd::Killed(reason.into()));
        check(ended(json!("Error"), 137, "x"), None, killed("SIGKILL"));
        check(ended(json!("Error"), 143, "x"), None, killed("SIGTERM"));
        check(ended(json!("Error"), 75, "x"), None, killed("it left on request"));
        check(
            ended(json!("Error"), 77, "x"),
            None,
            killed("another master still holds the journal"),
        );
        for reason in ["PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet"] {
            check(disrupted(reason, "False", "Failed"), None, killed(reason));
        }
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
        check(evicted, None, killed("Evicted: low on memory"));
        check(json!({"phase": "Failed", "reason": "NodeLost"}), None, killed("NodeLost"));
        check(json!({"phase": "Failed"}), None, killed("its pod failed"));
    }

    #[test]
    fn a_crash_has_its_code_and_the_end_of_its_log() {
        let crashed = |reason: &str| PodState::Ended(PodEnd::Crashed(reason.into()));
        let log = "1\n2\n3\n\n4\n5\n  6\n";
        check(ended(json!("Error"), 101, log), None, crashed("exit code 101: 2 | 3 | 4 | 5 | 6"));
        check(ended(json!("Error"), 139, ""), None, crashed("SIGSEGV"));
        let start = ended(json!("StartError"), 128, "exec: \"salamander\": not found");
        check(start, None, crashed("StartError: exec: \"salamander\": not found"));
        check(ended(json!("Completed"), 0, ""), None, PodState::Ended(PodEnd::Finished));
        let mistaken = PodState::Ended(PodEnd::Mistaken("/data/x: no such file".into()));
        check(ended(json!("Error"), 78, "{}\nerror: /data/x: no such file\n"), None, mistaken);
    }

    #[test]
    fn a_container_that_breaks_before_ours_is_a_crash() {
        let status = json!({"phase": "Failed", "initContainerStatuses": [{
            "name": "fetch", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 2, "reason": "Error"}},
        }]});
        let reason = "init container \"fetch\": exit code 2".to_string();
        check(status, None, PodState::Ended(PodEnd::Crashed(reason)));
    }

    #[test]
    fn out_of_memory_is_told_apart() {
        check(ended(json!("OOMKilled"), 137, ""), None, PodState::Ended(PodEnd::OutOfMemory));
        let abort = ended(json!("Error"), 134, "memory allocation of 9 bytes failed");
        check(abort, None, PodState::Ended(PodEnd::OutOfMemory));
        check(
            ended(json!("Error"), 134, ""),
            None,
            PodState::Ended(PodEnd::Crashed("SIGABRT".into())),
        );
    }

    #[test]
    fn a_pod_that_leaves_gets_its_time_and_a_lost_node_none() {
        let lost = || PodState::Lost("its node does not answer".into());
        let running =
            || json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        check(running(), None, PodState::Running);
        check(running(), Some(30), PodState::Leaving);
        check(running(), Some(-5), PodState::Leaving);
        check(running(), Some(-6), lost());
        check(disrupted("DeletionByTaintManager", "False", "Running"), Some(30), lost());
        check(disrupted("DeletionByTaintManager", "True", "Running"), Some(30), PodState::Leaving);
        check(disrupted("PreemptionByScheduler", "False", "Running"), Some(30), PodState::Leaving);
    }

    #[test]
    fn a_pending_pod_says_what_it_waits_for() {
        let place = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"},
        ]});
        check(place, None, PodState::Waiting(Some("0/2 nodes".into())));
        let image = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [{
                "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "no such image"}},
            }]})
        };
        let expected = PodState::Waiting(Some("ImagePullBackOff: no such image".into()));
        check(image("ImagePullBackOff"), None, expected);
        check(image("ContainerCreating"), None, PodState::Waiting(None));
        check(json!({}), None, PodState::Waiting(None));
    }

    #[test]
    fn a_deleted_pod_was_killed_unless_its_end_was_seen() {
        let pod = |status: Value| serde_json::from_value(json!({"metadata": {}, "status": status}));
        let running: Pod = pod(json!({"phase": "Running"})).expect("a pod");
        assert_eq!(gone(&running), PodEnd::Killed("its pod was deleted".into()));
        let crashed: Pod = pod(ended(json!("Error"), 3, "")).expect("a pod");
        assert_eq!(gone(&crashed), PodEnd::Crashed("exit code 3".into()));
    }
}
