//! The fleet, driven by hand: every order and every event that Kubernetes can bring.

use serde_json::{Value, json};

use super::*;

const START: i64 = 1_800_000_000;
const GIB: u64 = 1 << 30;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).expect("a time")
}

fn fleet() -> Fleet {
    let memory = Memory { first: Some(GIB), most: Some(2 * GIB) };
    Fleet::new("j", (memory, memory))
}

fn pod(slot: u32, process: u32, memory: u64, status: Value) -> Pod {
    let (role, index) = Role::of_slot(slot);
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
    let (role, index) = Role::of_slot(slot);
    names::pod_name("j", role, index, process)
}

fn delete(slot: u32, process: u32) -> Action {
    Action::Delete { name: name(slot, process), force: false }
}

/// Starts a worker whose pod runs.
fn running(fleet: &mut Fleet, slot: u32) -> u32 {
    let [Action::Create { process, .. }] = fleet.start(at(0), slot)[..] else { panic!("created") };
    assert_eq!(fleet.created(at(0), (slot, process), Ok(())), []);
    assert_eq!(fleet.seen(at(0), pod(slot, process, GIB, json!({"phase": "Running"}))), []);
    process
}

#[test]
fn a_pod_that_is_killed_is_reported_and_removed() {
    let mut fleet = fleet();
    let process = running(&mut fleet, 0);
    assert_eq!(fleet.inventory(), [(0, process)]);
    let actions = fleet.seen(at(1), pod(0, process, GIB, ended("Error", 137)));
    let how = Ended::Killed("SIGKILL".into());
    assert_eq!(actions, [Action::Report { slot: 0, process, how }, delete(0, process)]);
    assert_eq!(fleet.inventory(), []);
    // What comes late about it changes nothing.
    assert_eq!(fleet.seen(at(1), pod(0, process, GIB, ended("Error", 137))), []);
    assert_eq!(fleet.deleted(pod(0, process, GIB, json!({}))), []);
    let next = running(&mut fleet, 0);
    assert!(next > process);
    assert_eq!(fleet.deleted(pod(0, process, GIB, json!({}))), []);
}

#[test]
fn numbers_never_repeat_even_within_a_second() {
    let mut fleet = fleet();
    let first = running(&mut fleet, 0);
    let second = running(&mut fleet, 1);
    assert_eq!((first, second), (START as u32, START as u32 + 1));
    assert_eq!(fleet.start(at(0), 0), [], "it is there");
}

#[test]
fn hunger_is_fed_up_to_the_limit() {
    let mut fleet = fleet();
    let process = running(&mut fleet, 0);
    let actions = fleet.seen(at(1), pod(0, process, GIB, ended("OOMKilled", 137)));
    let how = Ended::Killed("out of memory with 1024Mi".into());
    assert_eq!(actions[0], Action::Report { slot: 0, process, how });
    let mut had = GIB;
    for expected in [GIB / 2 * 3, 2 * GIB] {
        let [Action::Create { process, memory, .. }] = fleet.start(at(2), 0)[..] else {
            panic!("created")
        };
        assert_eq!(memory, Some(expected));
        had = expected;
        let report = &fleet.seen(at(3), pod(0, process, had, ended("OOMKilled", 137)))[0];
        let Action::Report { how, .. } = report else { panic!("reported") };
        assert_eq!(matches!(how, Ended::Crashed(_)), expected == 2 * GIB, "{how:?}");
    }
    assert_eq!(had, 2 * GIB);
    assert!(fleet.last_crash().expect("a crash").contains("raise workers.maxMemory"));
}

#[test]
fn without_a_limit_hunger_is_a_crash_with_advice() {
    let mut fleet = Fleet::new("j", Default::default());
    let process = running(&mut fleet, 0);
    let actions = fleet.seen(at(1), pod(0, process, GIB, ended("OOMKilled", 137)));
    let Action::Report { how: Ended::Crashed(reason), .. } = &actions[0] else { panic!("crashed") };
    assert!(reason.contains("workers.maxMemory"), "{reason}");
}

#[test]
fn a_pod_that_cannot_be_created_is_tried_again_or_reported() {
    let mut fleet = fleet();
    let [Action::Create { process, .. }] = fleet.start(at(0), 0)[..] else { panic!("created") };
    let quota = Refusal::Passing("exceeded quota".into());
    assert_eq!(fleet.created(at(0), (0, process), Err(quota.clone())), []);
    assert_eq!(fleet.waiting(), (1, Some("exceeded quota".into())));
    assert_eq!(
        fleet.inventory(),
        [(0, process)],
        "it counts as there: nobody needs to order it again"
    );
    assert_eq!(fleet.tick(at(0)), []);
    let again = Action::Create { slot: 0, process, memory: None };
    assert_eq!(fleet.tick(at(1)), [again]);
    assert_eq!(fleet.created(at(1), (0, process), Err(quota)), []);
    let killed = Ended::Killed("it was not started".into());
    assert_eq!(fleet.end(0), [Action::Report { slot: 0, process, how: killed }]);

    let [Action::Create { process, .. }] = fleet.start(at(9), 0)[..] else { panic!("created") };
    let no = Refusal::Final("pods is forbidden".into());
    let actions = fleet.created(at(9), (0, process), Err(no));
    let how = Ended::Crashed("its pod cannot be created: pods is forbidden".into());
    assert_eq!(actions, [Action::Report { slot: 0, process, how }]);
}

#[test]
fn an_end_that_comes_before_the_answer_is_not_forgotten() {
    let mut fleet = fleet();
    let [Action::Create { process, .. }] = fleet.start(at(0), 0)[..] else { panic!("created") };
    assert_eq!(fleet.end(0), []);
    assert_eq!(fleet.created(at(0), (0, process), Ok(())), [delete(0, process)]);
    let actions = fleet.deleted(pod(0, process, GIB, json!({"phase": "Running"})));
    let how = Ended::Killed("its pod was deleted".into());
    assert_eq!(actions, [Action::Report { slot: 0, process, how }]);
}

#[test]
fn what_was_missed_is_found_when_pods_are_listed_again() {
    let mut fleet = fleet();
    let [gone, stays] = [0, 1].map(|slot| running(&mut fleet, slot));
    let [Action::Create { process: new, .. }] = fleet.start(at(0), 2)[..] else {
        panic!("created")
    };
    let actions = fleet.relisted(at(1), vec![pod(1, stays, GIB, json!({"phase": "Running"}))]);
    let how = Ended::Killed("its pod was deleted".into());
    assert_eq!(actions, [Action::Report { slot: 0, process: gone, how }]);
    // One that was asked for may not be in the list yet.
    assert_eq!(fleet.inventory(), [(1, stays), (2, new)]);
    // One whose deletion failed is deleted again.
    let left = pod(0, gone, GIB, ended("Error", 137));
    let stays = pod(1, stays, GIB, json!({"phase": "Running"}));
    assert_eq!(fleet.relisted(at(2), vec![left, stays]), [delete(0, gone)]);
}

#[test]
fn a_lost_node_is_given_up_when_time_passes() {
    let mut fleet = fleet();
    let process = running(&mut fleet, 0);
    let mut leaving = pod(0, process, GIB, json!({"phase": "Running"}));
    let deletion = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(30));
    leaving.metadata.deletion_timestamp = Some(deletion);
    assert_eq!(fleet.seen(at(0), leaving), []);
    assert_eq!(fleet.tick(at(30)), []);
    let how = Ended::Killed("its node does not answer".into());
    let force = Action::Delete { name: name(0, process), force: true };
    assert_eq!(fleet.tick(at(36)), [Action::Report { slot: 0, process, how }, force]);
    assert_eq!(fleet.tick(at(99)), []);
}

#[test]
fn a_new_master_adopts_the_newest_pod_of_each_slot() {
    let mut fleet = fleet();
    let grown = GIB / 2 * 3;
    let pods = vec![
        pod(0, 7, GIB, ended("Error", 1)),
        pod(0, 9, grown, json!({"phase": "Running"})),
        pod(1, 8, GIB, ended("Error", 137)),
        pod(2, 6, GIB, json!({"phase": "Succeeded"})),
    ];
    let actions = fleet.adopt(at(0), pods);
    let how = Ended::Killed("SIGKILL".into());
    let report = Action::Report { slot: 1, process: 8, how };
    // The older pod of slot 0 was reported before it was replaced.
    // And one that ended well did so with the run, before that was resumed.
    assert_eq!(actions, [delete(0, 7), report, delete(1, 8), delete(2, 6)]);
    assert_eq!(fleet.inventory(), [(0, 9)]);
    let [Action::Create { memory, .. }] = fleet.start(at(0), 1)[..] else { panic!("created") };
    assert_eq!(memory, Some(grown), "what was learnt is kept");
}

#[test]
fn pods_are_marked_until_they_say_whether_they_train() {
    let mut fleet = fleet();
    let [first, second] = [0, 1].map(|slot| running(&mut fleet, slot));
    let mark = |member| Action::Mark { name: name(0, first), member };
    assert_eq!(fleet.members(&[(0, first)]), [mark(true)]);
    assert_eq!(fleet.members(&[(0, first)]), [mark(true)], "it does not show yet");
    let member =
        json!({"phase": "Running", "conditions": [{"type": names::MEMBER, "status": "True"}]});
    assert_eq!(fleet.seen(at(1), pod(0, first, GIB, member)), []);
    assert_eq!(fleet.members(&[(0, first)]), []);
    assert_eq!(
        fleet.members(&[(0, first + 9), (1, second)]).len(),
        2,
        "an earlier pod of the slot is another"
    );
}

#[test]
fn finished_pods_are_kept_when_the_run_is_over_and_a_closed_fleet_starts_none() {
    let mut fleet = fleet();
    let process = running(&mut fleet, 0);
    fleet.over();
    let actions = fleet.seen(at(1), pod(0, process, GIB, json!({"phase": "Succeeded"})));
    assert_eq!(actions, [Action::Report { slot: 0, process, how: Ended::Finished }]);
    assert_eq!(fleet.start(at(2), 0), []);
    let mut fleet = self::fleet();
    fleet.close();
    assert_eq!(fleet.start(at(2), 0), []);
}

#[test]
fn parameter_servers_have_places_and_memory_of_their_own() {
    let mut fleet = fleet();
    let seat = Role::Ps.slot(1).expect("a slot");
    let worker = running(&mut fleet, 1);
    let server = running(&mut fleet, seat);
    assert_eq!(
        name(seat, server),
        format!("j-ps-1-{}", name(0, server).rsplit('-').next().expect("a part"))
    );
    assert_eq!(fleet.inventory(), [(1, worker), (seat, server)]);
    let actions = fleet.seen(at(1), pod(seat, server, GIB, ended("OOMKilled", 137)));
    let how = Ended::Killed("out of memory with 1024Mi".into());
    assert_eq!(
        actions,
        [Action::Report { slot: seat, process: server, how }, delete(seat, server)]
    );
    let memory_of = |actions: &[Action]| match actions {
        [Action::Create { memory, .. }] => *memory,
        other => panic!("{other:?}"),
    };
    assert_eq!(memory_of(&fleet.start(at(2), 0)), None, "workers were not hungry");
    assert_eq!(memory_of(&fleet.start(at(2), seat)), Some(GIB / 2 * 3));
    // Another master finds what it has learnt, and whom.
    let mut next = self::fleet();
    let found = vec![
        pod(1, worker, GIB, json!({"phase": "Running"})),
        pod(seat, server + 9, 2 * GIB, ended("Error", 3)),
    ];
    let actions = next.adopt(at(3), found);
    let Action::Report { slot, how: Ended::Crashed(_), .. } = &actions[0] else {
        panic!("{actions:?}")
    };
    assert_eq!((*slot, next.inventory()), (seat, vec![(1, worker)]));
    assert!(next.last_crash().expect("a crash").starts_with("ps 1: "));
    assert_eq!(memory_of(&next.start(at(4), seat)), Some(2 * GIB));
}
