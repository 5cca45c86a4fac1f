//! Decisions of the coordinator that parameter servers have a part in.

use super::super::{CheckpointMark, History, Participant, Term, Version, WantedProcesses};
use super::tests::{TestGroup, open};
use super::*;

fn server(id: u64) -> Peer {
    Peer { id: WorkerId(id), endpoint: format!("server-{id}") }
}

/// Two workers and two parameter servers, which are ready.
fn with_servers() -> TestGroup {
    let mut group = TestGroup::new(0);
    group.coordinator = open(History::default(), 1, WantedProcesses { workers: 2, servers: 2 }, 0);
    group.join(WorkerId(1));
    group.join(WorkerId(2));
    assert!(group.activations.is_empty(), "no generation without servers");
    group.coordinator.server_up(0, 0, server(70));
    group.coordinator.server_up(0, 1, server(71));
    group.deliver();
    group
}

fn kept(group: &mut TestGroup) -> CheckpointMark {
    let generation = group.activations[&WorkerId(1)].generation;
    let mark = CheckpointMark { id: "step-4".to_string(), version: Version(4), generation };
    group.coordinator.message(group.now, WorkerId(1), FromMember::Wrote(mark.clone()));
    group.deliver();
    mark
}

#[test]
fn a_generation_begins_when_all_servers_are_ready() {
    let group = with_servers();
    let servers = &group.activations[&WorkerId(1)].servers;
    assert_eq!(*servers, [server(70), server(71)]);
}

#[test]
fn a_state_does_not_count_without_the_server_that_held_its_rows() {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    let mark = kept(&mut group);
    group.commit(&[1, 2]);
    group.coordinator.server_lost(group.now, WorkerId(71));
    group.deliver();
    assert!(matches!(group.coordinator.phase(), Phase::Preparing(_)), "it waits for the server");
    group.coordinator.server_up(group.now, 1, server(72));
    group.deliver();
    assert_eq!(group.source(), StateSource::Checkpoint { rank: 0, mark: Some(mark) });
    // From then on the new states count again.
    group.commit(&[1, 2]);
    group.lose(1);
    assert!(matches!(group.source(), StateSource::Member { .. }));
}

#[test]
fn servers_that_come_back_to_a_restarted_master_change_nothing() {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    let history = group.coordinator.run().history().clone();
    let generation = group.activations[&WorkerId(1)].generation;
    group.coordinator = open(history, 1, WantedProcesses { workers: 2, servers: 2 }, 0);
    group.coordinator.take_actions();
    group.coordinator.server_up(1, 0, server(70));
    group.coordinator.server_up(1, 1, server(71));
    group.deliver();
    assert_eq!(*group.coordinator.phase(), Phase::Running(generation));
    group.coordinator.server_up(2, 1, server(73));
    assert!(matches!(group.coordinator.phase(), Phase::Preparing(_)), "another one holds nothing");
}

/// Three servers are wanted where there were two, and the third has come.
fn moving() -> TestGroup {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    group.coordinator.scale_servers(group.now, 3);
    group.deliver();
    assert_eq!(group.coordinator.run().history().generations, 1, "work goes on while it starts");
    assert_eq!(group.coordinator.needed_servers(), 3);
    group.coordinator.server_up(group.now, 2, server(72));
    group.deliver();
    group
}

impl TestGroup {
    pub(super) fn newest(&self) -> &Activation {
        self.activations.values().max_by_key(|activation| activation.generation).expect("one")
    }

    fn tell_moved(&mut self) {
        let generation = self.newest().generation;
        self.coordinator.message(self.now, WorkerId(1), FromMember::Moved(generation));
        self.deliver();
    }
}

#[test]
fn a_newcomer_waits_until_rows_have_moved() {
    let mut group = moving();
    let before = group.newest().generation;
    group.coordinator.scale(group.now, 3);
    group.join(WorkerId(3));
    group.wait(Timeouts::default().join + 1);
    assert_eq!(group.newest().generation, before, "rows are on their way");
    group.tell_moved();
    group.wait(1);
    let next = group.newest().clone();
    assert_eq!(next.members.len(), 3);
    assert!(matches!(next.source, StateSource::Member { .. }), "{:?}", next.source);
}

#[test]
fn rows_move_to_another_number_of_servers_with_the_state_that_members_hold() {
    let mut group = moving();
    let before = group.activations[&WorkerId(1)].clone();
    assert!(matches!(before.source, StateSource::Member { .. }));
    assert_eq!((before.servers.len(), before.destination.len()), (2, 3));
    assert_eq!(before.rows, Generation { term: Term(1), number: 1 });
    group.tell_moved();
    assert_eq!(group.coordinator.run().history().servers.len(), 3);
    assert_eq!(group.coordinator.phase(), &Phase::Running(before.generation));
    // From now on a lost member costs nothing.
    group.commit(&[1, 2]);
    group.lose(2);
    let next = group.newest().clone();
    assert!(matches!(next.source, StateSource::Member { .. }), "{:?}", next.source);
    assert_eq!((next.servers.len(), next.destination.len()), (3, 0));
    assert_eq!(next.rows, before.generation);
}

#[test]
fn servers_that_are_not_wanted_stay_until_their_rows_have_moved() {
    let mut group = moving();
    group.coordinator.scale_servers(group.now, 1);
    group.deliver();
    assert_eq!(group.newest().destination.len(), 3, "one move after the other");
    group.tell_moved();
    let next = group.newest().clone();
    assert_eq!((next.servers.len(), next.destination), (3, vec![server(70)]));
    assert_eq!(group.coordinator.needed_servers(), 3);
    group.tell_moved();
    assert_eq!(group.coordinator.needed_servers(), 1);
    group.coordinator.forget_superfluous_servers();
    assert_eq!(group.coordinator.run().servers().count(), 1);
    group.coordinator.server_lost(group.now, WorkerId(72));
    group.deliver();
    assert_eq!(group.coordinator.phase(), &Phase::Running(next.generation));
}

/// It was not told to end, so it will not say again that it is there.
#[test]
fn a_server_that_is_wanted_again_before_it_has_to_end_is_known_still() {
    let mut group = moving();
    group.coordinator.scale_servers(group.now, 2);
    group.deliver();
    group.tell_moved();
    group.tell_moved();
    assert_eq!(group.coordinator.run().history().servers.len(), 2);
    group.coordinator.scale_servers(group.now, 3);
    group.coordinator.forget_superfluous_servers();
    group.deliver();
    let next = group.newest().clone();
    assert_eq!((next.servers.len(), next.destination.len()), (2, 3));
}

#[test]
fn whoever_is_lost_while_rows_move_the_checkpoint_counts() {
    let lost = |lose: &dyn Fn(&mut TestGroup)| {
        let mut group = moving();
        lose(&mut group);
        group.deliver();
        let next = group.newest().clone();
        assert_eq!(next.source, StateSource::Checkpoint { rank: 0, mark: None });
        assert_eq!((next.servers.len(), next.destination.len()), (3, 0));
        assert_eq!(next.rows, next.generation);
    };
    lost(&|group| group.lose(2));
    for (seat, id) in [(0, 70), (2, 72)] {
        lost(&|group| {
            group.coordinator.server_lost(group.now, WorkerId(id));
            group.deliver();
            assert!(matches!(group.coordinator.phase(), Phase::Preparing(_)));
            group.coordinator.server_up(group.now, seat, server(90));
        });
    }
    lost(&|group| {
        let message = FromMember::Broken(group.newest().generation, None);
        group.coordinator.message(group.now, WorkerId(1), message);
    });
}

#[test]
fn a_restarted_master_hears_that_rows_have_moved() {
    let mut group = moving();
    let history = group.coordinator.run().history().clone();
    group.coordinator = open(history, 1, WantedProcesses { workers: 2, servers: 2 }, 0);
    assert_eq!(group.coordinator.run().wanted().servers, 3);
    [1, 2].into_iter().for_each(|id| group.join(WorkerId(id)));
    (0..3).for_each(|seat| group.coordinator.server_up(1, seat, server(70 + u64::from(seat))));
    group.deliver();
    let generation = group.newest().generation;
    assert_eq!(group.coordinator.phase(), &Phase::Running(generation));
    group.tell_moved();
    group.lose(1);
    assert!(matches!(group.newest().source, StateSource::Member { .. }));
}

/// A worker says that it cannot reach the servers; how many are in the next generation.
fn members_without_rows(group: &mut TestGroup, id: u64) -> usize {
    let broken = FromMember::Broken(group.newest().generation, Some(WorkerId(id)));
    group.coordinator.message(group.now, WorkerId(id), broken);
    group.deliver();
    group.coordinator.members().len()
}

#[test]
fn one_that_cannot_reach_the_servers_is_left_out_where_others_can() {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    assert_eq!([(); 2].map(|()| members_without_rows(&mut group, 2)), [2, 2]);
    // A step is done, which it has a part in.
    let generation = group.newest().generation;
    group.coordinator.worked(generation);
    assert_eq!([(); 3].map(|()| members_without_rows(&mut group, 2)), [2, 2, 1]);
    let next = group.newest().clone();
    assert_eq!(next.members[0].id, WorkerId(1));
    assert!(matches!(next.source, StateSource::Member { .. }), "{:?}", next.source);
    // The last one tries on: the servers may come back.
    assert_eq!([(); 5].map(|()| members_without_rows(&mut group, 1)), [1; 5]);
}

/// Members have written a checkpoint and wait; who may leave.
fn let_go(group: &mut TestGroup) -> Vec<WorkerId> {
    kept(group);
    let generation = group.newest().generation;
    group.coordinator.message(group.now, WorkerId(1), FromMember::Holds(generation));
    let go = |action| match action {
        Action::Send(id, ToMember::Stop) => Some(id),
        _ => None,
    };
    group.coordinator.take_actions().into_iter().filter_map(go).collect()
}

#[test]
fn nobody_goes_on_before_a_server_that_was_let_go_has_left() {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    group.coordinator.server_leaves(WorkerId(71));
    group.deliver();
    assert!(group.members.values_mut().all(Participant::take_save), "a checkpoint comes first");
    assert_eq!(let_go(&mut group), [WorkerId(71)]);
    let before = group.newest().generation;
    group.lose(2);
    group.wait(10);
    assert_eq!(group.newest().generation, before, "what is done now is lost with its rows");
    group.coordinator.server_lost(group.now, WorkerId(71));
    group.coordinator.server_up(group.now, 1, server(72));
    group.deliver();
    let next = group.newest().clone();
    assert!(next.generation > before);
    assert!(matches!(next.source, StateSource::Checkpoint { mark: Some(_), .. }), "{next:?}");
}

#[test]
fn who_wants_to_leave_while_members_wait_may_at_once() {
    let mut group = with_servers();
    group.coordinator.server_leaves(WorkerId(71));
    group.deliver();
    assert_eq!(let_go(&mut group), [WorkerId(71)]);
    group.coordinator.server_leaves(WorkerId(70));
    let told = [Action::Send(WorkerId(70), ToMember::Stop)];
    assert_eq!(group.coordinator.take_actions(), told);
    group.coordinator.server_up(group.now, 0, server(70));
    assert_eq!(group.coordinator.take_actions(), told, "it may have lost its connection");
}

#[test]
fn members_that_wait_though_nobody_leaves_go_on() {
    let mut group = with_servers();
    group.commit(&[1, 2]);
    assert!(let_go(&mut group).is_empty());
    let before = group.newest().generation;
    group.wait(Timeouts::default().silence);
    let next = group.newest().clone();
    assert!(next.generation > before);
    assert!(matches!(next.source, StateSource::Member { .. }), "{next:?}");
}
