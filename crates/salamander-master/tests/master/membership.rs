//! Generations over real connections: deaths, silences, and masters that are killed.
use std::time::Duration;

use salamander_core::elastic::{
    CheckpointMark, Ending, FromMember, StateSource, Term, Version, WorkerId,
};
use salamander_master::Config;

/// Far more than it takes.
const FAREWELL: Duration = Duration::from_secs(60);

use crate::support::{BEAT_EVERY, Birth, Run, TIMEOUTS, Worker, together, wait_until};

/// For runs in which nobody is to be given up by the clock.
pub(crate) fn patient(config: &mut Config) {
    (config.timeouts.silence, config.timeouts.promise) = (10_000, 10_000);
}

fn three(run: &Run) -> [Worker; 3] {
    [1, 2, 3].map(|id| Worker::join(run, id))
}

#[test]
fn the_first_generation_has_all_workers() {
    let run = Run::with(3, patient);
    let workers = three(&run);
    together(&workers.each_ref());
    let status = run.status();
    assert_eq!((&status["state"], &status["generations"]), (&"running".into(), &1.into()));
    wait_until("all are confirmed", || {
        let status = run.status();
        let workers = status["workers"].as_array().expect("a list").clone();
        workers.iter().all(|worker| worker["confirmed"] == true)
    });
    assert!(run.told.has_note("generation 1.1 began: 3 members, from a new model"));
}

#[test]
fn workers_that_were_started_by_hand_have_numbers_of_their_own() {
    let run = Run::with(3, patient);
    let slots = || {
        let status = run.status();
        let workers = status["workers"].as_array().expect("a list").iter();
        let connected = workers.filter(|worker| worker["connected"] == true);
        let mut slots: Vec<u64> = connected.filter_map(|worker| worker["slot"].as_u64()).collect();
        slots.sort_unstable();
        slots
    };
    // Nobody has given them one.
    let [_first, mut second, _third] =
        [1, 2, 3].map(|id| Worker::born(&run, Birth { slot: 0, ..Birth::new(id) }));
    wait_until("all have one", || slots() == [0, 1, 2]);
    drop(second.session.take());
    wait_until("one is away", || slots().len() == 2);
    let _other = Worker::born(&run, Birth { slot: 0, ..Birth::new(4) });
    wait_until("another has that of the one that left", || slots() == [0, 1, 2]);
}

#[test]
fn a_worker_that_vanishes_is_left_out_once_a_neighbour_says_so() {
    let run = Run::with(3, patient);
    let [first, second, mut third] = three(&run);
    together(&[&first, &second, &third]);
    let generation = first.seen().member.generation().expect("active");
    drop(third.session.take());
    first.sender().send(FromMember::Broken(generation, Some(third.id)));
    together(&[&first, &second]);
    assert!(!run.told.has_note("dropped: it did not come back"), "nobody waited for the silence");
    let source = first.seen().activations.last().expect("there").source.clone();
    assert!(matches!(source, StateSource::Member { rank: 0, .. }));
}

#[test]
fn a_worker_that_vanishes_is_left_out_after_a_silence() {
    let run = Run::new(3);
    let [first, second, mut third] = three(&run);
    together(&[&first, &second, &third]);
    drop(third.session.take());
    together(&[&first, &second]);
    assert!(run.told.has_note("dropped: it did not come back"));
}

#[test]
fn a_stopped_worker_is_dropped_and_rejoins_when_it_wakes() {
    let run = Run::new(3);
    let workers = three(&run);
    let [first, second, third] = &workers;
    together(&[first, second, third]);
    third.freeze(true);
    together(&[first, second]);
    third.freeze(false);
    together(&[first, second, third]);
    assert!(run.told.has_note(&format!("worker {} dropped: it was silent", third.id)));
}

#[test]
fn a_restarted_master_leaves_a_working_generation_alone() {
    let mut run = Run::new(2);
    let workers = [1, 2].map(|id| Worker::join(&run, id));
    together(&workers.each_ref());
    let generation = workers[0].seen().member.generation();
    run.kill();
    wait_until("both know", || workers.iter().all(|worker| !worker.seen().connected));
    run.start(|_| {});
    wait_until("both are back", || workers.iter().all(|worker| worker.seen().connected));
    // Twice as many heartbeats as a worker may miss: who was to be dropped or asked to regroup, was.
    let beats = workers.each_ref().map(|worker| worker.seen().beats);
    let enough = 2 * TIMEOUTS.silence / BEAT_EVERY.as_millis() as u64;
    wait_until("many heartbeats", || {
        workers.iter().zip(beats).all(|(worker, before)| worker.seen().beats > before + enough)
    });
    assert!(workers.iter().all(|worker| worker.seen().member.generation() == generation));
    assert!(workers.iter().all(|worker| worker.seen().activations.len() == 1));
    let status = run.status();
    assert_eq!((&status["term"], &status["generations"]), (&2.into(), &1.into()));
    assert_eq!(status["restarts"]["master"], 1);
    assert!(run.told.has_note("master restarted, term 2"));
}

#[test]
fn what_matters_reaches_the_next_master() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let generation = worker.seen().member.generation().expect("active");
    run.kill();
    let mark = CheckpointMark { id: "step-9".into(), version: Version(9), generation };
    worker.sender().send(FromMember::Wrote(mark));
    worker.report(9);
    worker.sender().send(FromMember::Reached(generation, Ending::Completed));
    run.start(|_| {});
    wait_until("it is told", || worker.seen().ended == Some(Ending::Completed));
    assert_eq!(worker.seen().kept, ["step-9"]);
    assert_eq!(run.told.reports(), [9]);
    drop(worker);
    assert_eq!(run.finish().expect("ended"), Ending::Completed);
}

#[test]
fn an_ended_run_says_so_and_can_be_resumed() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    run.admin().stop().expect("asked");
    wait_until("it is asked to stop", || worker.seen().stop);
    let generation = worker.seen().member.generation().expect("active");
    let mark = CheckpointMark { id: "last".into(), version: Version(5), generation };
    worker.sender().send(FromMember::Wrote(mark));
    worker.sender().send(FromMember::Reached(generation, Ending::Interrupted));
    wait_until("it is told", || worker.seen().ended == Some(Ending::Interrupted));
    drop(worker);
    assert_eq!(run.finish().expect("ended"), Ending::Interrupted);
    // Without being resumed it stays over, and whoever comes is told.
    run.start(|_| {});
    let late = Worker::join(&run, 2);
    wait_until("it is told", || late.seen().ended == Some(Ending::Interrupted));
    drop(late);
    assert_eq!(run.finish().expect("ended"), Ending::Interrupted);
    run.start(|config| config.resume = true);
    let next = Worker::join(&run, 3);
    together(&[&next]);
    let source = next.seen().activations[0].source.clone();
    assert!(
        matches!(source, StateSource::Checkpoint { mark: Some(mark), .. } if mark.id == "last")
    );
}

#[test]
fn a_worker_with_other_data_is_refused_and_the_run_goes_on() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let other = Worker::born(&run, Birth { records: 99, ..Birth::new(2) });
    let reason = "it sees 99 records and the others 100";
    let refused = Some(Ending::Failed(reason.into()));
    wait_until("it is refused", || other.seen().ended == refused);
    // A restarted master remembers what the first worker had.
    run.kill();
    drop((worker, other));
    run.start(|_| {});
    let again = Worker::born(&run, Birth { records: 99, ..Birth::new(3) });
    wait_until("it is refused", || again.seen().ended == refused);
    assert_ne!(run.status()["state"], "failed");
}

/// The master refuses this worker in words that begin like this.
fn is_refused(worker: &Worker, part: &str) {
    let refused = |ending: &Ending| match ending {
        Ending::Failed(reason) => reason.starts_with(part),
        _ => false,
    };
    wait_until(part, || worker.seen().ended.as_ref().is_some_and(refused));
}

#[test]
fn a_worker_with_other_arithmetic_is_refused_until_the_run_is_resumed() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let other = |id, arithmetic| Birth { arithmetic, ..Birth::new(id) };
    is_refused(&Worker::born(&run, other(2, (9, 6))), "its instruction set is not that of");
    is_refused(&Worker::born(&run, other(3, (5, 9))), "its program is not that of");
    // A restarted master remembers it, one that resumes takes what there is.
    run.kill();
    drop(worker);
    run.start(|_| {});
    is_refused(&Worker::born(&run, other(4, (9, 6))), "its instruction set is not that of");
    run.kill();
    run.start(|config| config.resume = true);
    let weaker = Worker::born(&run, other(5, (9, 6)));
    together(&[&weaker]);
    is_refused(&Worker::born(&run, Birth::new(6)), "its instruction set is not that of");
}

#[test]
fn a_worker_with_other_settings_or_files_is_refused_and_named() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    let other = |id, training| Birth { training, ..Birth::new(id) };
    is_refused(&Worker::born(&run, other(2, (9, 4))), "its experiment is not that of");
    is_refused(&Worker::born(&run, other(3, (3, 9))), "its list of data files is not that of");
    // People read in the events who it was.
    let note = format!("worker {} refused: its list of data files", WorkerId(3));
    assert!(run.told.has_note(&note));
    assert_eq!(worker.members(), 1);
    // With a run that is resumed, settings may have been changed for all.
    run.kill();
    drop(worker);
    run.start(|config| config.resume = true);
    let changed = Worker::born(&run, other(4, (8, 4)));
    together(&[&changed]);
    is_refused(&Worker::born(&run, Birth::new(5)), "its experiment is not that of");
}

#[test]
fn a_worker_that_cannot_go_on_ends_the_run_with_its_reason() {
    let mut run = Run::new(2);
    let workers = [1, 2].map(|id| Worker::join(&run, id));
    together(&workers.each_ref());
    workers[1].sender().failed("shard-3: record 7 cannot be read".into());
    let ending = Ending::Failed("shard-3: record 7 cannot be read".into());
    wait_until("all are told", || workers.iter().all(|w| w.seen().ended.as_ref() == Some(&ending)));
    drop(workers);
    assert_eq!(run.finish().expect("ended"), ending);
}

#[test]
fn a_worker_leaves_an_old_master_and_finds_the_new_one() {
    let mut run = Run::new(1);
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    // It has met the third master, while the second one still sits where the first was.
    worker.seen().member.welcome(Term(3)).expect("a newer one");
    run.kill();
    run.start(|_| {});
    wait_until("it has met the second", || worker.seen().old_masters > 0);
    assert_eq!(worker.seen().refused, None);
    assert_eq!(worker.seen().ended, None);
    run.kill();
    run.start(|_| {});
    wait_until("it is with the third", || worker.seen().connected);
    assert_eq!(worker.seen().refused, None);
}

#[test]
fn a_failure_of_one_that_is_no_member_does_not_end_the_run() {
    let run = Run::new(1);
    let member = Worker::join(&run, 1);
    together(&[&member]);
    // A second one waits for a place.
    let spare = Worker::join(&run, 2);
    wait_until("it is connected", || spare.seen().connected);
    spare.sender().failed("my disk is full".into());
    member.report(1);
    let mut spare = spare;
    assert!(spare.session.take().expect("alive").close(FAREWELL), "it was heard");
    assert_eq!(member.seen().ended, None);
    assert_eq!(run.status()["state"], "running");
    member.sender().failed("record 7 is damaged".into());
    wait_until("the run is over", || member.seen().ended.is_some());
    let ended = member.seen().ended.clone();
    assert_eq!(ended, Some(Ending::Failed("record 7 is damaged".into())));
}
