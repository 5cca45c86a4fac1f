//! What a worker takes part in, promises and refuses.

use super::super::Peer;
use super::*;

const FIRST: Generation = Generation { term: Term(1), number: 1 };
const SECOND: Generation = Generation { term: Term(1), number: 2 };
const ID: WorkerId = WorkerId(7);

fn activation(generation: Generation, mark: Option<CheckpointMark>) -> Activation {
    Activation {
        generation,
        members: vec![Peer { id: ID, endpoint: String::new() }],
        source: StateSource::Checkpoint { rank: 0, mark },
        transfer: false,
        servers: Vec::new(),
        rows: generation,
        destination: Vec::new(),
    }
}

fn begun() -> Participant {
    let mut worker = Participant::new(ID);
    worker.message(ToMember::Prepare(FIRST));
    worker.message(ToMember::Activate(activation(FIRST, None)));
    assert_eq!(worker.begin().map(|begun| begun.part), Some(StartFrom::Load(None)));
    worker.adopt(FIRST, 0).expect("it is within");
    worker.take_effects();
    worker
}

fn promise(worker: &Participant, generation: Generation) -> Effect {
    Effect::Send(FromMember::Promise(generation, worker.holding()))
}

#[test]
fn a_promise_waits_for_what_is_being_applied() {
    let mut worker = begun();
    let committed = worker.commit(FIRST, 1).expect("it is within");
    worker.message(ToMember::Prepare(SECOND));
    assert_eq!(worker.take_effects(), [Effect::Send(FromMember::Busy(SECOND))]);
    assert_eq!(worker.common(), Some(Version(0)), "a checkpoint may be named by it");
    worker.applied();
    assert_eq!(worker.holding().identity, Some(committed));
    assert_eq!(worker.take_effects(), [Effect::Cancel, promise(&worker, SECOND)]);
    assert!(worker.commit(FIRST, 2).is_err());
}

#[test]
fn a_late_prepare_does_not_replace_a_newer_one_that_waits() {
    let mut worker = begun();
    worker.commit(FIRST, 1).expect("it is within");
    worker.message(ToMember::Prepare(Generation { term: Term(2), number: 3 }));
    worker.message(ToMember::Prepare(SECOND));
    worker.take_effects();
    worker.applied();
    let newest = promise(&worker, Generation { term: Term(2), number: 3 });
    assert_eq!(worker.take_effects(), [Effect::Cancel, newest]);
}

/// A member of the first generation that has to receive the state of the second.
fn receiving() -> Participant {
    let mut worker = begun();
    worker.commit(FIRST, 1).expect("it is within");
    worker.applied();
    worker.message(ToMember::Prepare(SECOND));
    let other = WorkerId(8);
    let identity = Identity::begin(Version(5), FIRST, 3);
    let members = [other, ID].map(|id| Peer { id, endpoint: String::new() }).to_vec();
    let source = StateSource::Member { rank: 0, identity };
    let activation = Activation { members, source, transfer: true, ..activation(SECOND, None) };
    worker.message(ToMember::Activate(activation));
    assert_eq!(worker.begin().map(|begun| begun.part), Some(StartFrom::Receive { from: 0 }));
    worker.take_effects();
    worker
}

const THIRD: Generation = Generation { term: Term(1), number: 3 };

#[test]
fn a_state_that_has_not_arrived_replaces_nothing() {
    let mut worker = receiving();
    let own = worker.holding();
    worker.message(ToMember::Prepare(THIRD));
    assert_eq!(worker.holding(), own);
    assert_eq!(worker.take_effects(), [Effect::Cancel, promise(&worker, THIRD)]);
    assert!(worker.replace(SECOND).is_err(), "what it promised is what it keeps");
}

#[test]
fn a_promise_waits_for_a_state_that_replaces_its_own() {
    let mut worker = receiving();
    worker.replace(SECOND).expect("it is within");
    worker.message(ToMember::Prepare(THIRD));
    assert_eq!(worker.take_effects(), [Effect::Send(FromMember::Busy(THIRD))]);
    let identity = worker.adopt(SECOND, 0).expect("it is within");
    worker.applied();
    assert_eq!(worker.holding().identity, Some(identity));
    let effects = worker.take_effects();
    assert_eq!(effects[1..], [Effect::Cancel, promise(&worker, THIRD)]);
}

#[test]
fn a_state_that_could_not_replace_its_own_leaves_none() {
    let mut worker = receiving();
    worker.replace(SECOND).expect("it is within");
    worker.message(ToMember::Prepare(THIRD));
    worker.take_effects();
    worker.applied();
    assert_eq!(worker.holding(), Holding::default());
    assert_eq!(worker.take_effects(), [Effect::Cancel, promise(&worker, THIRD)]);
}

#[test]
fn who_reads_a_checkpoint_holds_nothing_meanwhile() {
    let mut worker = begun();
    worker.message(ToMember::Prepare(SECOND));
    worker.message(ToMember::Activate(activation(SECOND, None)));
    assert_eq!(worker.begin().map(|begun| begun.part), Some(StartFrom::Load(None)));
    assert_eq!(worker.holding(), Holding::default());
}

#[test]
fn an_announced_generation_is_gone_with_the_next_prepare() {
    let mut worker = begun();
    worker.message(ToMember::Prepare(SECOND));
    worker.message(ToMember::Activate(activation(SECOND, None)));
    worker.message(ToMember::Prepare(Generation { term: Term(1), number: 3 }));
    assert_eq!(worker.begin(), None);
}

#[test]
fn a_repeated_prepare_does_not_take_back_what_was_announced() {
    let mut worker = begun();
    worker.message(ToMember::Prepare(SECOND));
    worker.message(ToMember::Activate(activation(SECOND, None)));
    worker.message(ToMember::Prepare(SECOND));
    assert_eq!(worker.begin().map(|begun| begun.activation.generation), Some(SECOND));
}

#[test]
fn a_repeated_activation_does_not_end_what_has_begun() {
    let mut worker = begun();
    worker.message(ToMember::Activate(activation(FIRST, None)));
    assert!(matches!(worker.take_effects().as_slice(), [Effect::Refused(_)]));
    assert!(worker.commit(FIRST, 1).is_ok());
}

#[test]
fn a_checkpoint_gives_its_version() {
    let mut worker = Participant::new(ID);
    let mark = CheckpointMark { id: "step-4".into(), version: Version(4), generation: FIRST };
    worker.message(ToMember::Prepare(SECOND));
    worker.message(ToMember::Activate(activation(SECOND, Some(mark))));
    worker.begin().expect("it was announced");
    let identity = worker.adopt(SECOND, 9).expect("it is within");
    assert_eq!(identity, Identity::begin(Version(4), SECOND, 9));
}

#[test]
fn the_end_lets_a_commit_finish_that_has_its_result() {
    let mut worker = begun();
    worker.message(ToMember::Ended(Ending::Completed));
    assert_eq!(worker.take_effects(), [Effect::Cancel]);
    assert_eq!(worker.ending(), Some(&Ending::Completed));
    assert!(worker.commit(FIRST, 1).is_ok());
}

#[test]
fn a_refused_worker_knows_why() {
    let mut worker = begun();
    worker.refused("wrong token");
    let reason = "the master refuses this worker: wrong token".to_string();
    assert_eq!(worker.ending(), Some(&Ending::Failed(reason)));
}

#[test]
fn an_older_master_is_refused() {
    let mut worker = begun();
    worker.welcome(Term(2)).expect("newer");
    worker.message(ToMember::Prepare(Generation { term: Term(1), number: 9 }));
    let effects = worker.take_effects();
    let [Effect::Refused(fenced)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(fenced.reason, "its master was replaced");
}

#[test]
fn a_repeated_prepare_does_not_end_what_has_begun() {
    let mut worker = begun();
    worker.message(ToMember::Prepare(FIRST));
    assert!(matches!(worker.take_effects().as_slice(), [Effect::Refused(_)]));
    assert!(worker.commit(FIRST, 1).is_ok());
}

#[test]
fn a_version_is_common_one_exchange_later() {
    let mut worker = begun();
    assert_eq!(worker.common(), None);
    worker.commit(FIRST, 1).expect("active");
    assert_eq!(worker.common(), Some(Version(0)));
    worker.commit(FIRST, 2).expect("active");
    assert_eq!(worker.common(), Some(Version(1)));
}
