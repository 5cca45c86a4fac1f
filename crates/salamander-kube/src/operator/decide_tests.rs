//! Decisions about jobs, one case after the other: what there is on the left, what is done about it on the right.

use serde_json::{Value, json};

use super::*;
use crate::crd::WorkerCount;
use crate::names::CONTAINER;

const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).expect("a time")
}

fn job(spec: Value, status: Value) -> TrainingJob {
    let mut whole = json!({
        "image": "i", "experiment": {"inline": {}}, "workers": {"max": 2}, "storage": {"claimName": "c"},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let job = json!({
        "apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "generation": 3},
        "spec": whole, "status": status,
    });
    serde_json::from_value(job).expect("a job")
}

fn pod(role: &str, index: u32, process: u32, annotations: Value, status: Value) -> Pod {
    let role = PodRole::parse(role).expect("a role");
    let pod = json!({
        "metadata": {
            "name": names::pod_name("j", role, index, process),
            "labels": names::pod_labels("j", role, index, process),
            "annotations": annotations,
        },
        "status": status,
    });
    serde_json::from_value(pod).expect("a pod")
}

fn master(number: u32, state: &str, status: Value) -> Pod {
    let progress =
        json!({"state": state, "reason": "bad data", "workers": 2, "step": 7, "loss": 0.5})
            .to_string();
    let mut annotations = json!({names::WANTED: "2"});
    if !state.is_empty() {
        annotations[names::PROGRESS] = progress.into();
    }
    pod("master", 0, number, annotations, status)
}

fn running() -> Value {
    json!({"phase": "Running"})
}

fn ended(code: i32, ago: i64) -> Value {
    let at = Timestamp::from_second(NOW - ago).expect("a time").to_string();
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": [{
        "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": "Error", "message": "oh\n", "finishedAt": at}},
    }]})
}

fn check(job: &TrainingJob, pods: Vec<Pod>, phase: Phase, actions: &[Action]) -> ReconcilePlan {
    let observed = ObservedJob { pods, contract: 1, ..ObservedJob::default() };
    let plan = decide(job, &observed, now());
    assert_eq!(plan.status.phase, Some(phase), "{:?}", plan.status.message);
    assert_eq!(plan.actions, actions);
    assert_eq!(plan.status.observed_generation, Some(3));
    plan
}

fn create(number: u32, resume: bool) -> Action {
    Action::CreateMaster { number, resume }
}

fn delete(name: &str) -> Action {
    Action::Delete { name: name.to_string(), force: false }
}

#[test]
fn a_new_job_gets_a_master() {
    let plan = check(&job(json!({}), json!({})), vec![], Phase::Pending, &[create(0, false)]);
    assert_eq!(plan.status.master, Some(0));
    assert!(plan.status.start_time.is_some());
    let suspended = job(json!({"suspend": true}), json!({}));
    check(&suspended, vec![], Phase::Suspended, &[]);
}

#[test]
fn the_pod_of_an_earlier_jobs_master_is_no_restart_of_this_one() {
    let observed = ObservedJob { first_master: 3, contract: 1, ..ObservedJob::default() };
    for spec in [json!({}), json!({"storage": null})] {
        let plan = decide(&job(spec, json!({})), &observed, now());
        assert_eq!(plan.actions, [create(3, false)]);
        assert_eq!((plan.status.master, plan.status.restarts), (Some(3), None));
        let reasons: Vec<&str> = plan.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(reasons, ["Pending"]);
    }
}

#[test]
fn pods_that_a_proxy_holds_go_when_the_job_is_over() {
    let over = job(json!({}), json!({"master": 0, "phase": "Complete", "message": "m"}));
    let held = |ago: i64| {
        let mut status = ended(0, ago);
        status["phase"] = "Running".into();
        status
    };
    let pods = |ago: i64| {
        let worker = |index: u32, status: Value| pod("worker", index, 36, json!({}), status);
        vec![master(0, "completed", held(ago)), worker(0, held(ago)), worker(1, ended(0, ago))]
    };
    // A node needs a moment to clean up, and what a job says last is to be read.
    let plan = check(&over, pods(20), Phase::Complete, &[]);
    assert_eq!(plan.requeue_after, Duration::from_secs(40));
    let gone = [delete("j-master-0"), delete("j-worker-0-10")];
    check(&over, pods(60), Phase::Complete, &gone);
}

#[test]
fn a_cap_that_bounds_a_job_is_told() {
    let resources = json!({"requests": {"cpu": 1}});
    let spec =
        json!({"resourceCap": {"cpu": "2500m"}, "workers": {"max": 4, "resources": resources}});
    let known = job(spec, json!({"master": 0, "phase": "Running"}));
    let plan = check(&known, vec![master(0, "running", running())], Phase::Running, &[]);
    let message = plan.status.message.as_deref();
    assert_eq!(message, Some("spec.resourceCap lets 2 of 4 workers run"));
}

#[test]
fn a_master_that_runs_is_copied_into_the_status() {
    let known = job(json!({}), json!({"master": 0, "phase": "Pending"}));
    let plan = check(&known, vec![master(0, "running", running())], Phase::Running, &[]);
    assert_eq!((plan.status.step, plan.status.loss.as_deref()), (Some(7), Some("0.500000")));
    assert_eq!(plan.status.workers, Some(WorkerCount { wanted: 2, ready: 2, pending: 0 }));
    assert_eq!(plan.events.len(), 1, "the phase is new");
    let same = job(json!({}), serde_json::to_value(&plan.status).expect("written"));
    let again = check(&same, vec![master(0, "running", running())], Phase::Running, &[]);
    assert_eq!((again.events, again.status), (vec![], plan.status), "nothing is new");
    check(&known, vec![master(0, "gathering", running())], Phase::Gathering, &[]);
    check(&known, vec![master(0, "", running())], Phase::Pending, &[]);
}

#[test]
fn a_killed_master_is_replaced_at_once_and_a_crashed_one_after_a_while() {
    let known = job(json!({}), json!({"master": 4, "phase": "Running"}));
    let relaunch = [delete("j-master-4"), create(5, false)];
    let plan =
        check(&known, vec![master(4, "running", ended(137, 0))], Phase::Recovering, &relaunch);
    let restarts = plan.status.restarts.expect("counted");
    assert_eq!((restarts.master, restarts.master_crashes), (1, 0));
    let plan = check(&known, vec![master(4, "running", ended(101, 0))], Phase::Recovering, &[]);
    assert_eq!(plan.requeue_after, Duration::from_secs(1));
    assert_eq!(plan.status.last_crash.as_deref(), Some("master: exit code 101: oh"));
    let plan =
        check(&known, vec![master(4, "running", ended(101, 1))], Phase::Recovering, &relaunch);
    assert_eq!(plan.status.restarts.expect("counted").master_crashes, 1);
    // Its pod is gone without a trace.
    check(&known, vec![], Phase::Recovering, &[create(5, false)]);
}

#[test]
fn nodes_that_refuse_the_master_are_given_time() {
    let known = job(json!({}), json!({"master": 0, "phase": "Pending"}));
    let refused = |ago: i64| {
        let mut pod = master(0, "", json!({"phase": "Failed", "reason": "OutOfcpu"}));
        let at = Timestamp::from_second(NOW - ago).expect("a time");
        pod.metadata.creation_timestamp = Some(Time(at));
        vec![pod]
    };
    let plan = check(&known, refused(4), Phase::Recovering, &[]);
    assert_eq!(plan.requeue_after, Duration::from_secs(6));
    let message = plan.status.message.as_deref();
    assert_eq!(message, Some("a node refused the master's pod: OutOfcpu"));
    check(&known, refused(10), Phase::Recovering, &[delete("j-master-0"), create(1, false)]);
}

#[test]
fn too_many_crashes_fail_the_job_and_end_its_workers() {
    let restarts = json!({"worker": 0, "master": 5, "masterCrashes": 5});
    let known = job(json!({}), json!({"master": 5, "phase": "Running", "restarts": restarts}));
    let worker = pod("worker", 0, 36, json!({}), running());
    let pods = vec![master(5, "running", ended(101, 99)), worker];
    let plan = check(&known, pods, Phase::Failed, &[delete("j-worker-0-10")]);
    let message = plan.status.message.expect("a message");
    assert!(message.contains("crashed 6 times, last: exit code 101: oh"), "{message}");
    assert!(plan.status.completion_time.is_some());
}

#[test]
fn the_end_of_a_run_is_believed_from_words_or_from_the_exit_code() {
    let known = job(json!({}), json!({"master": 0, "phase": "Running"}));
    check(&known, vec![master(0, "completed", running())], Phase::Complete, &[]);
    check(&known, vec![master(0, "running", ended(0, 0))], Phase::Complete, &[]);
    let plan = check(&known, vec![master(0, "failed", running())], Phase::Failed, &[]);
    assert_eq!(plan.status.message.as_deref(), Some("bad data"));
    let plan = check(&known, vec![master(0, "running", ended(70, 0))], Phase::Failed, &[]);
    assert_eq!(plan.status.message.as_deref(), Some("oh"));
    // Whatever happens to its pods later, an end is an end.
    let done = job(json!({}), json!({"master": 0, "phase": "Complete", "message": "m"}));
    let plan = check(&done, vec![], Phase::Complete, &[]);
    assert_eq!((plan.status.message.as_deref(), plan.events.len()), (Some("m"), 0));
}

#[test]
fn what_a_master_says_after_the_end_is_copied_too() {
    let known = json!({"master": 0, "phase": "Complete", "message": "m", "checkpoint": "step-6"});
    let last = json!({"state": "completed", "step": 7, "checkpoint": "step-7"}).to_string();
    let pod = pod("master", 0, 0, json!({names::PROGRESS: last}), ended(0, 0));
    let plan = check(&job(json!({}), known), vec![pod], Phase::Complete, &[]);
    assert_eq!((plan.status.step, plan.status.checkpoint.as_deref()), (Some(7), Some("step-7")));
    assert_eq!((plan.status.message.as_deref(), plan.events.len()), (Some("m"), 0));
}

#[test]
fn suspending_stops_first_and_deletes_then() {
    let wanted = json!({"suspend": true});
    let asked = job(wanted.clone(), json!({"master": 0, "phase": "Running"}));
    let stop =
        Action::Annotate { name: "j-master-0".into(), key: names::STOP, value: "true".into() };
    check(&asked, vec![master(0, "running", running())], Phase::Suspending, &[stop]);
    check(&asked, vec![master(0, "interrupted", running())], Phase::Suspending, &[]);
    let stopped = vec![master(0, "interrupted", ended(76, 0))];
    check(&asked, stopped, Phase::Suspended, &[delete("j-master-0")]);
    let resumed = job(json!({}), json!({"master": 0, "phase": "Suspended"}));
    check(&resumed, vec![], Phase::Pending, &[create(1, true)]);
    // A quota was in its way when it was to go on.
    let blocked = job(json!({}), json!({"master": 0, "phase": "Blocked"}));
    let plan = check(&blocked, vec![], Phase::Pending, &[create(1, true)]);
    assert_eq!(plan.status.restarts, None, "that is no restart");
    let began = json!({"master": 0, "phase": "Blocked", "startTime": now().to_string()});
    check(&job(json!({}), began), vec![], Phase::Recovering, &[create(1, false)]);
    // Resumed before it had stopped.
    let again = [delete("j-master-0"), create(1, true)];
    check(
        &job(json!({}), json!({"master": 0})),
        vec![master(0, "running", ended(76, 0))],
        Phase::Pending,
        &again,
    );
    // Killed while it was stopping: its last checkpoint is as far as it came.
    let killed = vec![master(0, "running", ended(137, 0))];
    check(&asked, killed, Phase::Suspended, &[delete("j-master-0")]);
}

#[test]
fn without_storage_another_master_begins_anew_with_new_workers() {
    let known = job(json!({"storage": null}), json!({"master": 0, "phase": "Running"}));
    let worker = pod("worker", 1, 36, json!({}), running());
    let pods = vec![master(0, "running", ended(137, 0)), worker];
    let actions = [delete("j-master-0"), delete("j-worker-1-10"), create(1, false)];
    let plan = check(&known, pods, Phase::Recovering, &actions);
    assert!(plan.events.iter().any(|event| event.reason == "BeginsAnew"), "{:?}", plan.events);
}

#[test]
fn with_an_object_store_another_master_goes_on_with_the_same_workers() {
    let store = json!({"objectStore": {"url": "s3://b/p"}});
    let more = json!({"storage": null, "checkpoints": store});
    let known = job(more, json!({"master": 0, "phase": "Running"}));
    let worker = pod("worker", 1, 36, json!({}), running());
    let pods = vec![master(0, "running", ended(137, 0)), worker];
    let plan = check(&known, pods, Phase::Recovering, &[delete("j-master-0"), create(1, false)]);
    assert!(plan.events.iter().all(|event| event.reason != "BeginsAnew"), "{:?}", plan.events);
}

#[test]
fn a_lost_node_is_not_waited_for_and_a_leaving_pod_is() {
    let known = job(json!({}), json!({"master": 0, "phase": "Running"}));
    let leaving = |seconds: i64| {
        let mut pod = master(0, "running", running());
        let at = Timestamp::from_second(NOW + seconds).expect("a time");
        pod.metadata.deletion_timestamp = Some(Time(at));
        vec![pod]
    };
    check(&known, leaving(20), Phase::Recovering, &[]);
    let force = Action::Delete { name: "j-master-0".into(), force: true };
    check(&known, leaving(-20), Phase::Recovering, &[force, create(1, false)]);
}

#[test]
fn older_masters_are_removed_and_scale_is_told() {
    let known = job(json!({"workers": {"max": 3}}), json!({"master": 1, "phase": "Running"}));
    let pods = vec![master(1, "running", running()), master(0, "running", ended(137, 9))];
    let scale =
        Action::Annotate { name: "j-master-1".into(), key: names::WANTED, value: "3".into() };
    check(&known, pods, Phase::Running, &[delete("j-master-0"), scale]);
}

#[test]
fn a_job_that_is_wrong_says_so_and_is_looked_at_again() {
    let observed =
        ObservedJob { invalid: Some("experiment: line 2".into()), ..ObservedJob::default() };
    let plan = decide(&job(json!({}), json!({})), &observed, now());
    assert_eq!((plan.status.phase, plan.actions.len()), (Some(Phase::Invalid), 0));
    assert!(plan.events[0].warning && plan.requeue_after < LATER);
}

#[test]
fn a_job_has_a_deadline_and_is_deleted_after_its_time() {
    let at = |ago: i64| Timestamp::from_second(NOW - ago).expect("a time").to_string();
    let known = |ago: i64| {
        let status = json!({"master": 0, "phase": "Running", "startTime": at(ago)});
        job(json!({"activeDeadlineSeconds": 100}), status)
    };
    let worker = || pod("worker", 0, 36, json!({}), running());
    let pods = || vec![master(0, "running", running()), worker()];
    let plan = check(&known(90), pods(), Phase::Running, &[]);
    assert_eq!(plan.requeue_after, Duration::from_secs(10));
    let ended = [delete("j-master-0"), delete("j-worker-0-10")];
    let plan = check(&known(100), pods(), Phase::Failed, &ended);
    assert!(plan.status.message.expect("a message").contains("activeDeadlineSeconds, 100 s"));
    let suspended = json!({"suspend": true, "activeDeadlineSeconds": 100});
    let suspended = job(suspended, json!({"master": 0, "phase": "Suspended", "startTime": at(50)}));
    assert_eq!(check(&suspended, vec![], Phase::Suspended, &[]).status.start_time, None);
    let done = |ago: i64| {
        let status = json!({"master": 0, "phase": "Complete", "completionTime": at(ago)});
        job(json!({"ttlSecondsAfterFinished": 60}), status)
    };
    assert_eq!(check(&done(50), vec![], Phase::Complete, &[]).requeue_after.as_secs(), 10);
    check(&done(60), vec![], Phase::Complete, &[Action::DeleteJob]);
}

#[test]
fn an_image_that_is_too_old_is_refused_with_a_sentence() {
    let known = job(json!({}), json!({"master": 0, "phase": "Pending"}));
    let told = |contract: u32| {
        let pods = vec![master(0, "gathering", running())];
        decide(&known, &ObservedJob { pods, contract, ..ObservedJob::default() }, now()).status
    };
    assert_eq!(told(1).phase, Some(Phase::Gathering), "a job that was begun before goes on");
    let status = told(2);
    let message = status.message.expect("a message");
    assert_eq!(status.phase, Some(Phase::Failed));
    assert!(message.contains("knows version 1") && message.contains("needs 2"), "{message}");
}

#[test]
fn crashes_long_ago_are_forgotten() {
    let restarts = json!({"worker": 0, "master": 5, "masterCrashes": 5});
    let known = job(json!({}), json!({"master": 5, "phase": "Running", "restarts": restarts}));
    let since = |ago: i64| {
        let at = Timestamp::from_second(NOW - ago).expect("a time").to_string();
        let pods = vec![master(5, "running", json!({"phase": "Running", "startTime": at}))];
        check(&known, pods, Phase::Running, &[]).status.restarts.expect("counted").master_crashes
    };
    assert_eq!((since(30), since(601)), (5, 0));
}

#[test]
fn a_refusal_is_told_once_and_does_not_hide_that_a_job_trains() {
    let error = Error::Refused { what: "creating the Pod p".into(), message: "quota".into() };
    let tell = |status: Value| refused(&job(json!({}), status), &error, now());
    let plan = tell(json!({})).expect("told");
    assert_eq!((plan.status.phase, plan.events.len()), (Some(Phase::Blocked), 1));
    let same = serde_json::to_value(&plan.status).expect("written");
    assert_eq!(tell(same).expect("the same").events, []);
    let plan = tell(json!({"phase": "Running", "master": 0})).expect("told");
    assert_eq!(
        (plan.status.phase, plan.events[0].reason.as_str()),
        (Some(Phase::Running), "Refused")
    );
    assert!(tell(json!({"phase": "Complete"})).is_none());
}
