//! Decisions of the coordinator, one by one; the simulation runs them together.

use super::super::{
    CheckpointMark, Effect, History, Holding, Participant, Term, Version, WantedProcesses,
};
use super::*;

/// A master that takes over.
pub(super) fn open(
    history: History,
    min: usize,
    wanted: WantedProcesses,
    now: Millis,
) -> Coordinator {
    Coordinator::open(RunState::open(history, wanted), min, Timeouts::default(), now)
}

fn workers(workers: usize) -> WantedProcesses {
    WantedProcesses { workers, servers: 0 }
}

/// A master and some members that talk without loss.
pub(super) struct TestGroup {
    pub(super) coordinator: Coordinator,
    pub(super) members: BTreeMap<WorkerId, Participant>,
    pub(super) activations: BTreeMap<WorkerId, Activation>,
    pub(super) now: Millis,
}

impl TestGroup {
    pub(super) fn new(workers: u64) -> Self {
        let wanted = self::workers(workers.max(1) as usize);
        let coordinator = open(History::default(), 1, wanted, 0);
        let mut group =
            Self { coordinator, members: BTreeMap::new(), activations: BTreeMap::new(), now: 0 };
        (1..=workers).for_each(|id| group.join(WorkerId(id)));
        group
    }

    pub(super) fn join(&mut self, id: WorkerId) {
        self.join_slot(id, None);
    }

    pub(super) fn join_slot(&mut self, id: WorkerId, slot: Option<u32>) {
        let member = self.members.entry(id).or_insert_with(|| Participant::new(id));
        let peer = Peer { id, endpoint: format!("host-{id}") };
        let hello = Hello { peer, active: member.generation(), slot };
        self.coordinator.hello(self.now, hello);
        self.deliver();
    }

    pub(super) fn deliver(&mut self) {
        loop {
            let actions = self.coordinator.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let Action::Send(id, message) = action else { continue };
                let Some(member) = self.members.get_mut(&id) else { continue };
                if let ToMember::Activate(activation) = &message {
                    self.activations.insert(id, activation.clone());
                }
                member.message(message);
                if let Some(begun) = member.begin() {
                    member.adopt(begun.activation.generation, 0).expect("it has begun");
                }
                for effect in member.take_effects() {
                    if let Effect::Send(answer) = effect {
                        self.coordinator.message(self.now, id, answer);
                    }
                }
            }
        }
    }

    pub(super) fn commit(&mut self, ids: &[u64]) {
        for id in ids {
            let member = self.members.get_mut(&WorkerId(*id)).expect("joined");
            let generation = member.generation().expect("active");
            member.commit(generation, 1).expect("ready");
            member.applied();
        }
    }

    pub(super) fn lose(&mut self, id: u64) {
        self.members.remove(&WorkerId(id));
        self.coordinator.gone(self.now, WorkerId(id), "killed");
        self.deliver();
    }

    pub(super) fn source(&self) -> StateSource {
        let running = self.activations.values().max_by_key(|activation| activation.generation);
        running.expect("activated").source.clone()
    }

    fn source_generation(&self) -> Generation {
        self.coordinator.generation().expect("activated")
    }

    pub(super) fn wait(&mut self, millis: Millis) {
        self.now += millis;
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.coordinator.heard(self.now, id);
        }
        self.coordinator.tick(self.now);
        self.deliver();
    }
}

#[test]
fn the_first_generation_starts_anew_when_all_are_there() {
    let group = TestGroup::new(3);
    assert_eq!(group.source(), StateSource::Checkpoint { rank: 0, mark: None });
    assert_eq!(group.coordinator.members().len(), 3);
    assert!(group.coordinator.members().iter().all(|(_, confirmed)| *confirmed));
}

#[test]
fn the_newest_state_of_the_previous_generation_survives() {
    let mut group = TestGroup::new(3);
    group.commit(&[1, 2, 3]);
    group.commit(&[2]);
    group.lose(3);
    let StateSource::Member { rank: 1, identity } = group.source() else {
        panic!("a member holds it")
    };
    assert_eq!(identity.version, Version(2));
}

#[test]
fn who_was_dropped_comes_back_with_nothing() {
    let mut group = TestGroup::new(3);
    group.commit(&[1, 2, 3]);
    group.commit(&[3]);
    let sleeper = group.members.remove(&WorkerId(3)).expect("there");
    (0..20).for_each(|_| group.wait(500));
    assert_eq!(group.coordinator.members().len(), 2);
    // It wakes with a newer version than anybody has, and then is the only one left.
    group.members.insert(WorkerId(3), sleeper);
    group.wait(200);
    group.wait(200);
    assert_eq!(group.coordinator.members().len(), 3);
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(1));
}

#[test]
fn a_generation_that_never_connected_still_has_its_holder() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    let running = group.coordinator.run().history().prepared;
    let accused = Some(WorkerId(2));
    group.coordinator.message(0, WorkerId(1), FromMember::Broken(running, accused));
    group.deliver();
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(1));
}

#[test]
fn a_checkpoint_of_a_line_that_was_given_up_does_not_count() {
    let mut group = TestGroup::new(2);
    let old = group.coordinator.run().history().prepared;
    // Those that come next hold nothing: the run begins anew.
    group.members.values_mut().for_each(|member| *member = Participant::new(member.id()));
    group.lose(2);
    assert_eq!(group.source(), StateSource::Checkpoint { rank: 0, mark: None });
    let mark = CheckpointMark { id: "step-1".into(), version: Version(1), generation: old };
    group.coordinator.message(0, WorkerId(1), FromMember::Wrote(mark));
    assert_eq!(group.coordinator.run().history().checkpoint, None);
    assert!(!group.coordinator.is_on_line(old), "nor do its reports");
}

#[test]
fn a_checkpoint_counts_though_members_came_and_went_while_it_was_written() {
    let mut group = TestGroup::new(3);
    group.commit(&[1, 2, 3]);
    let old = group.coordinator.run().history().prepared;
    group.lose(3);
    group.lose(2);
    assert!(matches!(group.source(), StateSource::Member { .. }));
    let mark = CheckpointMark { id: "step-1".into(), version: Version(1), generation: old };
    group.coordinator.message(0, WorkerId(1), FromMember::Wrote(mark.clone()));
    assert_eq!(group.coordinator.run().history().checkpoint, Some(mark));
}

#[test]
fn a_holder_that_takes_long_to_apply_is_waited_for() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    let holder = group.members.get_mut(&WorkerId(1)).expect("there");
    let generation = holder.generation().expect("active");
    holder.commit(generation, 1).expect("ready");
    group.lose(2);
    assert!(matches!(group.coordinator.phase(), Phase::Preparing(_)));
    (0..20).for_each(|_| group.wait(900));
    assert!(matches!(group.coordinator.phase(), Phase::Preparing(_)), "it is not given up");
    let holder = group.members.get_mut(&WorkerId(1)).expect("there");
    holder.applied();
    for effect in holder.take_effects() {
        if let Effect::Send(answer) = effect {
            group.coordinator.message(group.now, WorkerId(1), answer);
        }
    }
    group.deliver();
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(2));
}

#[test]
fn one_that_applies_for_ever_is_given_up() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    let stuck = group.members.get_mut(&WorkerId(1)).expect("there");
    let generation = stuck.generation().expect("active");
    stuck.commit(generation, 1).expect("ready");
    group.coordinator.exclude(0, WorkerId(9), "nobody");
    group.coordinator.message(0, WorkerId(2), FromMember::Broken(generation, None));
    group.deliver();
    (0..200).for_each(|_| group.wait(900));
    assert_eq!(group.coordinator.members(), [(WorkerId(2), true)]);
}

#[test]
fn only_a_members_failure_ends_the_run() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    group.coordinator.exclude(0, WorkerId(2), "it hangs");
    group.deliver();
    group.coordinator.failed(0, WorkerId(2), "its disk is full".into());
    group.deliver();
    assert!(matches!(group.coordinator.phase(), Phase::Running(_)));
    group.coordinator.failed(0, WorkerId(1), "record 7 is damaged".into());
    let ending = Ending::Failed("record 7 is damaged".into());
    assert_eq!(group.coordinator.phase(), &Phase::Ended(ending));
}

#[test]
fn fewer_workers_are_those_of_the_lowest_slots_and_the_others_hand_over() {
    let mut group = TestGroup::new(0);
    group.coordinator.scale(0, 3);
    // The first slot was filled last.
    for (id, slot) in [(5, 2), (6, 1), (7, 0)] {
        group.join_slot(WorkerId(id), Some(slot));
    }
    group.wait(4_000);
    assert_eq!(group.coordinator.members().len(), 3);
    group.commit(&[5, 6, 7]);
    // The one of the first slot was replaced, so that it is the last by rank and has nothing.
    group.lose(7);
    group.join_slot(WorkerId(8), Some(0));
    group.coordinator.scale(0, 1);
    assert_eq!(group.coordinator.needed_slots(), Some([1, 2].into()));
    (0..10).for_each(|_| group.wait(500));
    assert_eq!(group.coordinator.members(), [(WorkerId(8), true)]);
    assert_eq!(group.coordinator.needed_slots(), Some([0].into()));
    let StateSource::Member { identity, .. } = group.source() else { panic!("it was handed over") };
    assert_eq!(identity.version, Version(1));
    // A master that has just come does not know yet where they are.
    let history = group.coordinator.run().history().clone();
    group.coordinator = open(history, 1, workers(1), 0);
    assert_eq!(group.coordinator.needed_slots(), None);
    group.join_slot(WorkerId(8), Some(0));
    assert_eq!(group.coordinator.needed_slots(), Some([0].into()));
}

#[test]
fn a_restarted_master_leaves_a_working_generation_alone() {
    let mut group = TestGroup::new(2);
    let history = group.coordinator.run().history().clone();
    let running = history.prepared;
    group.coordinator = open(history, 1, workers(2), 50);
    group.join(WorkerId(1));
    group.join(WorkerId(2));
    group.wait(1_000);
    assert_eq!(group.coordinator.phase(), &Phase::Running(running));
    assert_eq!(group.coordinator.run().term(), Term(2));
}

#[test]
fn spare_workers_wait_and_scaling_lets_them_in() {
    let mut group = TestGroup::new(2);
    group.join(WorkerId(9));
    group.wait(500);
    assert_eq!(group.coordinator.members().len(), 2);
    group.coordinator.scale(group.now, 3);
    group.wait(500);
    assert_eq!(group.coordinator.members().len(), 3);
    group.coordinator.scale(group.now, 1);
    group.wait(500);
    assert_eq!(group.coordinator.members().len(), 1);
}

#[test]
fn an_older_checkpoint_never_replaces_a_newer_one() {
    let mut group = TestGroup::new(2);
    let generation = group.coordinator.run().history().prepared;
    let mark = |version| CheckpointMark {
        id: format!("step-{version}"),
        version: Version(version),
        generation,
    };
    let mut write = |mark| {
        group.coordinator.message(0, WorkerId(1), FromMember::Wrote(mark));
        group.coordinator.take_actions()
    };
    assert!(write(mark(8)).contains(&Action::Journal(MembershipEntry::Checkpoint(mark(8)))));
    assert_eq!(write(mark(4)), []);
    // The same one is acknowledged again, since the first answer may be lost.
    let kept = |id| Action::Send(WorkerId(id), ToMember::Kept(mark(8)));
    assert_eq!(write(mark(8)), [kept(1), kept(2)]);
}

#[test]
fn an_ended_run_keeps_its_checkpoint() {
    let mut group = TestGroup::new(1);
    let generation = group.coordinator.run().history().prepared;
    group.coordinator.end(Ending::Completed);
    let mark = CheckpointMark { id: "step-1".into(), version: Version(1), generation };
    group.coordinator.message(0, WorkerId(1), FromMember::Wrote(mark));
    assert_eq!(group.coordinator.run().history().checkpoint, None);
}

#[test]
fn a_checkpoint_is_not_read_while_a_holder_may_come_back() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    let history = group.coordinator.run().history().clone();
    group.coordinator = open(history, 1, workers(2), 50);
    // A newcomer finds the restarted master first, then a member that never got the state.
    group.join(WorkerId(9));
    group.wait(500);
    group.members.insert(WorkerId(1), Participant::new(WorkerId(1)));
    group.join(WorkerId(1));
    assert_eq!(
        group.coordinator.phase(),
        &Phase::Preparing(Generation { term: Term(2), number: 2 })
    );
    group.join(WorkerId(2));
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(1));
}

#[test]
fn a_master_that_slept_drops_nobody() {
    let mut group = TestGroup::new(2);
    let running = group.coordinator.phase().clone();
    group.coordinator.tick(100);
    group.coordinator.tick(60_000);
    assert_eq!(group.coordinator.phase(), &running);
    group.coordinator.tick(60_100);
    assert_eq!(group.coordinator.phase(), &running);
}

#[test]
fn fewer_than_the_least_are_enough_when_fewer_are_wanted() {
    let mut group = TestGroup::new(2);
    group.coordinator.scale(0, 1);
    let history = group.coordinator.run().history().clone();
    group.coordinator = open(history, 2, workers(2), 50);
    group.members.clear();
    group.lose(1);
    group.lose(2);
    group.join(WorkerId(9));
    assert!(matches!(group.coordinator.phase(), Phase::Running(_)));
}

#[test]
fn fewer_workers_still_have_the_state_among_them() {
    let mut group = TestGroup::new(2);
    group.commit(&[1, 2]);
    // The first member has nothing: the state that it was to receive has not come.
    group.members.insert(WorkerId(1), Participant::new(WorkerId(1)));
    group.coordinator.scale(0, 1);
    group.wait(500);
    assert_eq!(group.coordinator.members(), [(WorkerId(2), true)]);
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(1));
}

#[test]
fn fewer_workers_that_were_wanted_of_the_master_before_are_wanted_still() {
    let mut group = TestGroup::new(3);
    group.coordinator.scale(group.now, 2);
    let history = group.coordinator.run().history().clone();
    group.coordinator = open(history, 1, workers(3), group.now);
    (1..=3).for_each(|id| group.join(WorkerId(id)));
    group.wait(Timeouts::default().join + 1);
    assert_eq!(group.newest().members.len(), 2);
}

/// A worker with nothing answers the master, and one of its generation accuses another: whether the generation that is
/// being formed has it, and is broken for that.
fn breaks(group: &mut TestGroup, late: u64, by: u64, accused: u64) -> bool {
    group.deliver();
    let Phase::Preparing(generation) = *group.coordinator.phase() else { return false };
    let promise = FromMember::Promise(generation, Holding::default());
    group.coordinator.message(group.now, WorkerId(late), promise);
    group.deliver();
    let has_it = group.coordinator.members().iter().any(|(id, _)| *id == WorkerId(late));
    if has_it {
        let broken = FromMember::Broken(generation, Some(WorkerId(accused)));
        group.coordinator.message(group.now, WorkerId(by), broken);
    }
    has_it
}

/// No neighbour reaches worker 3.
fn breaks_on_the_third(group: &mut TestGroup) -> bool {
    breaks(group, 3, 1, 3)
}

#[test]
fn one_that_has_nothing_puts_nobody_out_who_has_the_state() {
    let mut group = TestGroup::new(1);
    group.commit(&[1]);
    group.coordinator.scale(group.now, 2);
    // It reaches the master and not the other one, whose state never arrives.
    let peer = Peer { id: WorkerId(2), endpoint: "host-2".to_string() };
    group.coordinator.hello(group.now, Hello { peer, active: None, slot: None });
    group.wait(Timeouts::default().join + 1);
    for _ in 0..3 {
        assert!(breaks(&mut group, 2, 2, 1), "it is tried");
    }
    group.deliver();
    assert_eq!(group.coordinator.members(), [(WorkerId(1), true)]);
    let StateSource::Member { identity, .. } = group.source() else { panic!("a member holds it") };
    assert_eq!(identity.version, Version(1));
    // Nobody else is left: it is not waited for the end of its pause.
    group.lose(1);
    (0..5).for_each(|_| group.wait(500));
    let Phase::Preparing(generation) = *group.coordinator.phase() else { panic!("it is asked") };
    let promise = FromMember::Promise(generation, Holding::default());
    group.coordinator.message(group.now, WorkerId(2), promise);
    assert_eq!(group.coordinator.members(), [(WorkerId(2), false)]);
}

#[test]
fn one_that_neighbours_cannot_reach_is_tried_ever_more_rarely() {
    let mut group = TestGroup::new(3);
    group.members.remove(&WorkerId(3));
    let first = FromMember::Broken(group.source_generation(), Some(WorkerId(3)));
    group.coordinator.message(group.now, WorkerId(1), first);
    assert!(breaks_on_the_third(&mut group) && breaks_on_the_third(&mut group));
    assert!(!breaks_on_the_third(&mut group), "left out after three times");
    let silence = Timeouts::default().silence;
    for pause in [silence, 2 * silence, 4 * silence] {
        // The others work meanwhile.
        group.deliver();
        assert!(group.coordinator.members().iter().all(|(_, confirmed)| *confirmed));
        let until = group.now + pause;
        while group.now < until {
            assert_eq!(group.coordinator.members().len(), 2);
            group.coordinator.heard(group.now, WorkerId(3));
            group.wait(silence / 4);
        }
        group.coordinator.heard(group.now, WorkerId(3));
        group.wait(Timeouts::default().join + 1);
        assert!(breaks_on_the_third(&mut group), "it is tried again");
        assert!(!breaks_on_the_third(&mut group), "once is enough now");
    }
}
