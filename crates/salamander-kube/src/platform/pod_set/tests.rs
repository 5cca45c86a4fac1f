//! A set of pods, driven by hand: every order and every event that Kubernetes can bring.

use serde_json::{Value, json};

use super::*;
use crate::names;

const START: i64 = 1_800_000_000;
const GIB: u64 = 1 << 30;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).expect("a time")
}

fn pods() -> PodSet {
    let memory = MemoryLimits { first: Some(GIB), most: Some(2 * GIB) };
    PodSet::new("j", RoleMemory { worker: memory, server: memory })
}

fn pod(slot: u32, process: u32, memory: u64, status: Value) -> Pod {
    let (role, index) = PodRole::of_slot(slot);
    let labels = names::pod_labels("j", role, index, process);
    let pod = json!({
        "metadata": {"name": name(slot, process), "labels": labels},
        "spec": {"containers": [{
            "name": names::CONTAINER,
            "resources": {"limits": {"memory": memory.to_string()}},
        }]},
        "status": status,
    });
    serde_json::from_value(pod).expect("a pod")
}

fn ended(reason: &str, code: i32) -> Value {
    json!({"phase": "Failed", "containerStatuses": [{
        "name": names::CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"reason": reason, "exitCode": code}},
    }]})
}

fn name(slot: u32, process: u32) -> String {
    let (role, index) = PodRole::of_slot(slot);
    names::pod_name("j", role, index, process)
}

fn key(slot: u32, process: u32) -> PodKey {
    PodKey { slot, process }
}

fn delete(slot: u32, process: u32) -> PodAction {
    PodAction::Delete { name: name(slot, process), force: false }
}

/// Starts a worker whose pod runs.
fn running(pods: &mut PodSet, slot: u32) -> u32 {
    let [PodAction::Create { key: PodKey { process, .. }, .. }] = pods.start(at(0), slot)[..]
    else {
        panic!("created")
    };
    assert_eq!(pods.created(at(0), key(slot, process), Ok(())), []);
    assert_eq!(pods.seen(at(0), pod(slot, process, GIB, json!({"phase": "Running"}))), []);
    process
}

#[test]
fn a_pod_that_is_killed_is_reported_and_removed() {
    let mut pods = pods();
    let process = running(&mut pods, 0);
    assert_eq!(pods.inventory(), [key(0, process)]);
    let actions = pods.seen(at(1), pod(0, process, GIB, ended("Error", 137)));
    let how = Ended::Killed("SIGKILL".into());
    assert_eq!(actions, [PodAction::Report { key: key(0, process), how }, delete(0, process)]);
    assert_eq!(pods.inventory(), []);
    // What comes late about it changes nothing.
    assert_eq!(pods.seen(at(1), pod(0, process, GIB, ended("Error", 137))), []);
    assert_eq!(pods.deleted(&pod(0, process, GIB, json!({}))), []);
    let next = running(&mut pods, 0);
    assert!(next > process);
    assert_eq!(pods.deleted(&pod(0, process, GIB, json!({}))), []);
}

#[test]
fn a_pod_that_nodes_refuse_is_made_again_ever_more_rarely() {
    let mut pods = pods();
    let refuse = |pods: &mut PodSet, key: PodKey, seconds: i64| {
        let status = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"});
        let actions = pods.seen(at(seconds), pod(0, key.process, GIB, status));
        assert!(
            matches!(&actions[0], PodAction::Report { how: Ended::Killed(_), .. }),
            "{actions:?}"
        );
        assert_eq!(pods.start(at(seconds), 0), [], "not at once");
    };
    let created = |actions: Vec<PodAction>| {
        let [PodAction::Create { key, .. }] = actions[..] else { panic!("created: {actions:?}") };
        key
    };
    let first = created(pods.start(at(0), 0));
    refuse(&mut pods, first, 1);
    let reason = "a node refused its pod: UnexpectedAdmissionError: no device";
    assert_eq!(pods.waiting(), (1, Some(reason.to_string())));
    assert_eq!(pods.tick(at(2)), []);
    let second = created(pods.tick(at(3)));
    refuse(&mut pods, second, 4);
    assert_eq!(pods.tick(at(7)), []);
    let third = created(pods.tick(at(8)));
    assert_eq!(pods.created(at(8), third, Ok(())), []);
    // Once it has run, it is like any other.
    pods.seen(at(9), pod(0, third.process, GIB, json!({"phase": "Running"})));
    pods.seen(at(9), pod(0, third.process, GIB, ended("Error", 137)));
    created(pods.start(at(9), 0));
}

#[test]
fn numbers_never_repeat_even_within_a_second() {
    let mut pods = pods();
    let first = running(&mut pods, 0);
    let second = running(&mut pods, 1);
    assert_eq!((first, second), (START as u32, START as u32 + 1));
    assert_eq!(pods.start(at(0), 0), [], "it is there");
}

#[test]
fn memory_grows_up_to_the_limit() {
    let mut pods = pods();
    let process = running(&mut pods, 0);
    let actions = pods.seen(at(1), pod(0, process, GIB, ended("OOMKilled", 137)));
    let how = Ended::Killed("out of memory with 1024Mi".into());
    assert_eq!(actions[0], PodAction::Report { key: key(0, process), how });
    let mut had = GIB;
    for expected in [GIB / 2 * 3, 2 * GIB] {
        let [PodAction::Create { key: PodKey { process, .. }, memory }] = pods.start(at(2), 0)[..]
        else {
            panic!("created")
        };
        assert_eq!(memory, Some(expected));
        had = expected;
        let report = &pods.seen(at(3), pod(0, process, had, ended("OOMKilled", 137)))[0];
        let PodAction::Report { how, .. } = report else { panic!("reported") };
        assert_eq!(matches!(how, Ended::Crashed(_)), expected == 2 * GIB, "{how:?}");
    }
    assert_eq!(had, 2 * GIB);
    assert!(pods.last_crash().expect("a crash").contains("raise workers.maxMemory"));
}

#[test]
fn out_of_memory_without_a_limit_is_a_crash_with_advice() {
    let mut pods = PodSet::new("j", Default::default());
    let process = running(&mut pods, 0);
    let actions = pods.seen(at(1), pod(0, process, GIB, ended("OOMKilled", 137)));
    let PodAction::Report { how: Ended::Crashed(reason), .. } = &actions[0] else {
        panic!("crashed")
    };
    assert!(reason.contains("workers.maxMemory"), "{reason}");
}

#[test]
fn a_pod_that_cannot_be_created_is_tried_again_or_reported() {
    let mut pods = pods();
    let [PodAction::Create { key: PodKey { process, .. }, .. }] = pods.start(at(0), 0)[..] else {
        panic!("created")
    };
    let quota = CreateError::Transient("exceeded quota".into());
    assert_eq!(pods.created(at(0), key(0, process), Err(quota.clone())), []);
    assert_eq!(pods.waiting(), (1, Some("exceeded quota".into())));
    assert_eq!(
        pods.inventory(),
        [key(0, process)],
        "it counts as there: nobody needs to order it again"
    );
    assert_eq!(pods.tick(at(0)), []);
    let again = PodAction::Create { key: key(0, process), memory: None };
    assert_eq!(pods.tick(at(1)), [again]);
    assert_eq!(pods.created(at(1), key(0, process), Err(quota)), []);
    let killed = Ended::Killed("it was not started".into());
    assert_eq!(pods.end(0), [PodAction::Report { key: key(0, process), how: killed }]);

    let [PodAction::Create { key: PodKey { process, .. }, .. }] = pods.start(at(9), 0)[..] else {
        panic!("created")
    };
    let no = CreateError::Permanent("pods is forbidden".into());
    let actions = pods.created(at(9), key(0, process), Err(no));
    let how = Ended::Crashed("its pod cannot be created: pods is forbidden".into());
    assert_eq!(actions, [PodAction::Report { key: key(0, process), how }]);
}

#[test]
fn an_end_that_comes_before_the_answer_is_not_forgotten() {
    let mut pods = pods();
    let [PodAction::Create { key: PodKey { process, .. }, .. }] = pods.start(at(0), 0)[..] else {
        panic!("created")
    };
    assert_eq!(pods.end(0), []);
    assert_eq!(pods.created(at(0), key(0, process), Ok(())), [delete(0, process)]);
    let actions = pods.deleted(&pod(0, process, GIB, json!({"phase": "Running"})));
    let how = Ended::Killed("its pod was deleted".into());
    assert_eq!(actions, [PodAction::Report { key: key(0, process), how }]);
}

#[test]
fn what_was_missed_is_found_when_pods_are_listed_again() {
    let mut pods = pods();
    let [gone, stays] = [0, 1].map(|slot| running(&mut pods, slot));
    let [PodAction::Create { key: PodKey { process: new, .. }, .. }] = pods.start(at(0), 2)[..]
    else {
        panic!("created")
    };
    let actions = pods.relisted(at(1), vec![pod(1, stays, GIB, json!({"phase": "Running"}))]);
    let how = Ended::Killed("its pod was deleted".into());
    assert_eq!(actions, [PodAction::Report { key: key(0, gone), how }]);
    // One that was asked for may not be in the list yet.
    assert_eq!(pods.inventory(), [key(1, stays), key(2, new)]);
    // One whose deletion failed is deleted again.
    let left = pod(0, gone, GIB, ended("Error", 137));
    let stays = pod(1, stays, GIB, json!({"phase": "Running"}));
    assert_eq!(pods.relisted(at(2), vec![left, stays]), [delete(0, gone)]);
}

#[test]
fn a_lost_node_is_given_up_when_time_passes() {
    let mut pods = pods();
    let process = running(&mut pods, 0);
    let mut leaving = pod(0, process, GIB, json!({"phase": "Running"}));
    let deletion = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(30));
    leaving.metadata.deletion_timestamp = Some(deletion);
    assert_eq!(pods.seen(at(0), leaving), []);
    assert_eq!(pods.tick(at(30)), []);
    let how = Ended::Killed("its node does not answer".into());
    let force = PodAction::Delete { name: name(0, process), force: true };
    assert_eq!(pods.tick(at(36)), [PodAction::Report { key: key(0, process), how }, force]);
    assert_eq!(pods.tick(at(99)), []);
}

#[test]
fn a_new_master_adopts_the_newest_pod_of_each_slot() {
    let mut pods = pods();
    let grown = GIB / 2 * 3;
    let found = vec![
        pod(0, 7, GIB, ended("Error", 1)),
        pod(0, 9, grown, json!({"phase": "Running"})),
        pod(1, 8, GIB, ended("Error", 137)),
        pod(2, 6, GIB, json!({"phase": "Succeeded"})),
    ];
    let actions = pods.adopt(at(0), found);
    let how = Ended::Killed("SIGKILL".into());
    let report = PodAction::Report { key: key(1, 8), how };
    // The older pod of slot 0 was reported before it was replaced.
    // And one that ended well did so with the run, before that was resumed.
    assert_eq!(actions, [delete(0, 7), report, delete(1, 8), delete(2, 6)]);
    assert_eq!(pods.inventory(), [key(0, 9)]);
    let [PodAction::Create { memory, .. }] = pods.start(at(0), 1)[..] else { panic!("created") };
    assert_eq!(memory, Some(grown), "what was learnt is kept");
}

#[test]
fn the_member_condition_is_set_until_it_shows() {
    let mut pods = pods();
    let [first, second] = [0, 1].map(|slot| running(&mut pods, slot));
    let set = |member| PodAction::SetMember { name: name(0, first), member };
    assert_eq!(pods.members(&[(0, first)]), [set(true)]);
    assert_eq!(pods.members(&[(0, first)]), [set(true)], "it does not show yet");
    let member =
        json!({"phase": "Running", "conditions": [{"type": names::MEMBER, "status": "True"}]});
    assert_eq!(pods.seen(at(1), pod(0, first, GIB, member)), []);
    assert_eq!(pods.members(&[(0, first)]), []);
    assert_eq!(
        pods.members(&[(0, first + 9), (1, second)]).len(),
        2,
        "an earlier pod of the slot is another"
    );
}

#[test]
fn finished_pods_are_kept_when_the_run_is_over_and_a_closed_set_starts_none() {
    let mut pods = pods();
    let process = running(&mut pods, 0);
    pods.over();
    let actions = pods.seen(at(1), pod(0, process, GIB, json!({"phase": "Succeeded"})));
    assert_eq!(actions, [PodAction::Report { key: key(0, process), how: Ended::Finished }]);
    assert_eq!(pods.start(at(2), 0), []);
    let mut pods = self::pods();
    pods.close();
    assert_eq!(pods.start(at(2), 0), []);
}

#[test]
fn parameter_servers_have_slots_and_memory_of_their_own() {
    let mut pods = pods();
    let seat = PodRole::Ps.slot(1).expect("a slot");
    let worker = running(&mut pods, 1);
    let server = running(&mut pods, seat);
    assert_eq!(
        name(seat, server),
        format!("j-ps-1-{}", name(0, server).rsplit('-').next().expect("a part"))
    );
    assert_eq!(pods.inventory(), [key(1, worker), key(seat, server)]);
    let actions = pods.seen(at(1), pod(seat, server, GIB, ended("OOMKilled", 137)));
    let how = Ended::Killed("out of memory with 1024Mi".into());
    assert_eq!(actions, [PodAction::Report { key: key(seat, server), how }, delete(seat, server)]);
    let memory_of = |actions: &[PodAction]| match actions {
        [PodAction::Create { memory, .. }] => *memory,
        other => panic!("{other:?}"),
    };
    assert_eq!(memory_of(&pods.start(at(2), 0)), None, "no worker ran out of memory");
    assert_eq!(memory_of(&pods.start(at(2), seat)), Some(GIB / 2 * 3));
    // Another master finds what it has learnt, and whom.
    let mut next = self::pods();
    let found = vec![
        pod(1, worker, GIB, json!({"phase": "Running"})),
        pod(seat, server + 9, 2 * GIB, ended("Error", 3)),
    ];
    let actions = next.adopt(at(3), found);
    let PodAction::Report { key: PodKey { slot, .. }, how: Ended::Crashed(_) } = &actions[0] else {
        panic!("{actions:?}")
    };
    assert_eq!((*slot, next.inventory()), (seat, vec![key(1, worker)]));
    assert!(next.last_crash().expect("a crash").starts_with("ps 1: "));
    assert_eq!(memory_of(&next.start(at(4), seat)), Some(2 * GIB));
}
