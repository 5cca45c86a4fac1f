//! The dispatcher's decisions, one at a time; the simulation has them all at once.

use super::*;
use crate::asynchronous::{Report, Task};
use crate::elastic::WorkerId;
use crate::plan::Plan;

const ANN: WorkerId = WorkerId(1);
const BOB: WorkerId = WorkerId(2);

fn settings(consistency: Consistency) -> Settings {
    let names = Numbering::of(&Plan { records: 12, batch: 4, aggregation: 1, slices: 2 });
    Settings { names, epochs: 2, consistency, servers: 2, lease: 100 }
}

fn fresh(incarnation: u64) -> ServerState {
    ServerState { incarnation, placed: None }
}

fn placed(dispatcher: &Dispatcher, incarnation: u64, applied: Applied) -> ServerState {
    let placed = Placed { map: dispatcher.map().number, applied };
    ServerState { incarnation, placed: Some(placed) }
}

fn up(dispatcher: &mut Dispatcher, server: u32, incarnation: u64) {
    dispatcher.server_up(server, fresh(incarnation));
    dispatcher.server_up(server, placed(dispatcher, incarnation, Applied::new(2)));
}

/// A run with servers 10 and 20, ready to work.
fn ready(consistency: Consistency) -> Dispatcher {
    let mut dispatcher = Dispatcher::open(History::default(), settings(consistency));
    up(&mut dispatcher, 0, 10);
    up(&mut dispatcher, 1, 20);
    dispatcher.take_orders();
    dispatcher
}

#[track_caller]
fn leased(dispatcher: &mut Dispatcher, now: Millis, worker: WorkerId, most: usize) -> Task {
    match dispatcher.lease(now, worker, most) {
        Lease::Leased(task) => task,
        other => panic!("{other:?}"),
    }
}

fn report(task: &Task, acks: [u64; 2]) -> Report {
    let acks = (0..).zip(acks).map(|(server, incarnation)| Process { server, incarnation });
    let (fence, map, names) = (task.fence, task.map, task.names.clone());
    Report { fence, map, names, acks: acks.collect() }
}

fn numbers(task: &Task) -> Vec<u64> {
    task.names.iter().map(|name| name.step * 2 + u64::from(name.k)).collect()
}

fn add(applied: &mut Applied, epoch: u64, numbers: &[u64]) {
    for number in numbers {
        applied.insert(settings(Consistency::Async).names.name(epoch, *number));
    }
}

#[test]
fn nothing_is_given_out_before_all_servers_have_their_partitions() {
    let mut dispatcher = Dispatcher::open(History::default(), settings(Consistency::Async));
    up(&mut dispatcher, 0, 10);
    assert!(matches!(dispatcher.lease(0, ANN, 2), Lease::Wait(_, Waiting::Server(1))));
    dispatcher.server_up(1, fresh(20));
    assert!(matches!(dispatcher.lease(0, ANN, 2), Lease::Wait(_, Waiting::Server(1))));
    up(&mut dispatcher, 1, 20);
    assert_eq!(numbers(&leased(&mut dispatcher, 0, ANN, 2)), [0, 1]);
}

#[test]
fn an_ack_of_another_life_puts_the_names_back() {
    let mut dispatcher = ready(Consistency::Async);
    let task = leased(&mut dispatcher, 0, ANN, 2);
    assert_eq!(dispatcher.report(1, ANN, &report(&task, [10, 21])), ReportVerdict::NotAcked(1));
    let again = leased(&mut dispatcher, 1, BOB, 2);
    assert_eq!(again.names, task.names);
    assert_eq!(dispatcher.report(1, BOB, &report(&again, [10, 20])), ReportVerdict::Done);
    assert_eq!(dispatcher.status().left, 4);
}

#[test]
fn two_lives_of_a_server_in_one_report_put_the_names_back() {
    let mut dispatcher = ready(Consistency::Async);
    let task = leased(&mut dispatcher, 0, ANN, 2);
    let mut both = report(&task, [10, 20]);
    both.acks.insert(Process { server: 0, incarnation: 9 });
    assert_eq!(dispatcher.report(1, ANN, &both), ReportVerdict::NotAcked(0));
}

#[test]
fn names_of_expired_and_released_leases_come_first() {
    let mut dispatcher = ready(Consistency::Async);
    let first = leased(&mut dispatcher, 0, ANN, 1);
    let second = leased(&mut dispatcher, 50, BOB, 1);
    assert_eq!(dispatcher.release(BOB), 1);
    assert_eq!(numbers(&leased(&mut dispatcher, 60, BOB, 1)), numbers(&second));
    assert_eq!(dispatcher.tick(100), [ANN]);
    assert_eq!(numbers(&leased(&mut dispatcher, 100, BOB, 1)), numbers(&first));
    // The old lease is over, but what it has done is done.
    assert_eq!(dispatcher.report(110, ANN, &report(&first, [10, 20])), ReportVerdict::Done);
    assert_eq!(dispatcher.status().left, 5);
}

#[test]
fn bounded_staleness_holds_the_fast_ones_back() {
    let mut dispatcher = ready(Consistency::Bounded(1));
    let slow = leased(&mut dispatcher, 0, ANN, 1);
    let fast = leased(&mut dispatcher, 0, BOB, 9);
    assert_eq!(numbers(&fast), [1, 2, 3]);
    assert!(matches!(dispatcher.lease(0, BOB, 1), Lease::Wait(_, Waiting::Step(0))));
    dispatcher.report(1, ANN, &report(&slow, [10, 20]));
    assert!(matches!(dispatcher.lease(1, ANN, 1), Lease::Wait(_, Waiting::Step(0))));
    dispatcher.report(1, BOB, &report(&fast, [10, 20]));
    assert_eq!(numbers(&leased(&mut dispatcher, 1, ANN, 9)), [4, 5]);
}

/// Does all names that are to be had.
fn work_off(dispatcher: &mut Dispatcher, now: Millis, acks: [u64; 2]) -> u64 {
    let mut done = 0;
    while let Lease::Leased(task) = dispatcher.lease(now, ANN, 4) {
        assert_eq!(dispatcher.report(now, ANN, &report(&task, acks)), ReportVerdict::Done);
        done += task.names.len() as u64;
    }
    done
}

fn save(dispatcher: &mut Dispatcher, incarnations: [u64; 2]) -> Vec<DispatchAction> {
    assert!(dispatcher.save());
    let id = dispatcher.saving().expect("all servers are up");
    for (server, incarnation) in (0..).zip(incarnations) {
        dispatcher.saved(Process { server, incarnation }, id);
    }
    dispatcher.take_orders()
}

#[test]
fn an_epoch_ends_when_all_is_done_and_is_reopened_by_a_lost_server() {
    let mut dispatcher = ready(Consistency::Async);
    assert_eq!(work_off(&mut dispatcher, 0, [10, 20]), 6);
    assert!(dispatcher.take_orders().contains(&DispatchAction::Validate { epoch: 0 }));
    dispatcher.server_lost(Process { server: 0, incarnation: 10 });
    dispatcher.server_up(0, fresh(11));
    let mut restored = Applied::new(2);
    add(&mut restored, 0, &[0, 1, 4]);
    dispatcher.server_up(0, placed(&dispatcher, 11, restored));
    assert_eq!(dispatcher.next_epoch(0), Err(NotYet::Reopened(0)));
    assert_eq!(work_off(&mut dispatcher, 1, [11, 20]), 3);
    assert!(dispatcher.take_orders().contains(&DispatchAction::Validate { epoch: 0 }));
    assert_eq!(dispatcher.next_epoch(0), Ok(()));
    assert_eq!(dispatcher.next_epoch(0), Err(NotYet::OtherEpoch(0)));
    assert_eq!(work_off(&mut dispatcher, 2, [11, 20]), 6);
}

#[test]
fn the_run_is_complete_when_a_checkpoint_has_everything() {
    let mut dispatcher = ready(Consistency::Async);
    for epoch in 0..2 {
        work_off(&mut dispatcher, 0, [10, 20]);
        assert_eq!(dispatcher.next_epoch(epoch), Ok(()));
    }
    assert!(matches!(dispatcher.lease(0, ANN, 1), Lease::Wait(_, Waiting::EpochEnd)));
    let id = dispatcher.saving().expect("the last checkpoint is taken by itself");
    dispatcher.saved(Process { server: 0, incarnation: 10 }, id);
    assert_eq!(dispatcher.ending(), None);
    dispatcher.saved(Process { server: 1, incarnation: 20 }, id);
    assert_eq!(dispatcher.take_orders().last(), Some(&DispatchAction::End(Ending::Completed)));
    assert_eq!(dispatcher.lease(0, ANN, 1), Lease::Done);
}

#[test]
fn a_run_that_is_stopped_ends_with_all_that_was_done() {
    let mut dispatcher = ready(Consistency::Async);
    let task = leased(&mut dispatcher, 0, ANN, 2);
    dispatcher.stop();
    assert!(matches!(dispatcher.lease(0, BOB, 1), Lease::Wait(_, Waiting::Stopping)));
    assert_eq!(dispatcher.saving(), None, "Ann may bring her names to an end");
    assert_eq!(dispatcher.report(0, ANN, &report(&task, [10, 20])), ReportVerdict::Done);
    let id = dispatcher.saving().expect("nothing is leased");
    for (server, incarnation) in [(0, 10), (1, 20)] {
        dispatcher.saved(Process { server, incarnation }, id);
    }
    assert_eq!(dispatcher.ending(), Some(&Ending::Interrupted));
    assert_eq!(dispatcher.lease(0, BOB, 1), Lease::Done);
}

#[test]
fn names_are_pruned_when_a_checkpoint_with_all_of_them_is_complete() {
    let mut dispatcher = ready(Consistency::Async);
    work_off(&mut dispatcher, 0, [10, 20]);
    dispatcher.next_epoch(0).expect("all is done");
    assert!(
        !dispatcher.take_orders().iter().any(|order| matches!(order, DispatchAction::Prune { .. }))
    );
    let orders = save(&mut dispatcher, [10, 20]);
    let below = |order: &DispatchAction| matches!(order, DispatchAction::Prune { below: 1, .. });
    assert_eq!(orders.iter().filter(|order| below(order)).count(), 2);
    let kept = orders
        .iter()
        .position(|order| matches!(order, DispatchAction::Journal(AsynchronousEntry::Kept(_))));
    assert!(kept < orders.iter().position(below), "it is on disk before");
}

#[test]
fn a_checkpoint_during_which_a_server_was_lost_does_not_count() {
    let mut dispatcher = ready(Consistency::Async);
    assert!(dispatcher.save());
    let id = dispatcher.saving().expect("all servers are up");
    dispatcher.saved(Process { server: 0, incarnation: 10 }, id);
    dispatcher.server_lost(Process { server: 0, incarnation: 10 });
    up(&mut dispatcher, 0, 11);
    dispatcher.saved(Process { server: 1, incarnation: 20 }, id);
    assert_eq!(dispatcher.history().checkpoint, None);
    assert!(dispatcher.saving().is_some_and(|next| next > id));
}

#[test]
fn a_restarted_master_learns_everything_from_the_servers() {
    let mut dispatcher = ready(Consistency::Async);
    work_off(&mut dispatcher, 0, [10, 20]);
    dispatcher.next_epoch(0).expect("all is done");
    let mut next = Dispatcher::open(dispatcher.history().clone(), settings(Consistency::Async));
    assert_eq!(next.map(), dispatcher.map());
    for (server, incarnation, number) in [(0, 10, 3), (1, 20, 4)] {
        let mut applied = Applied::everything(2, 1);
        add(&mut applied, 1, &[0, 1, 2, 3][..number]);
        next.server_up(server, placed(&next, incarnation, applied));
    }
    assert_eq!(numbers(&leased(&mut next, 0, ANN, 9)), [3, 4, 5]);
}

#[test]
fn partitions_move_when_nothing_is_leased() {
    let mut dispatcher = ready(Consistency::Async);
    let before = dispatcher.map();
    let task = leased(&mut dispatcher, 0, ANN, 2);
    dispatcher.resize(1);
    assert!(matches!(dispatcher.lease(0, BOB, 1), Lease::Wait(_, Waiting::Resizing)));
    dispatcher.give_back(ANN, task.fence);
    assert_eq!((dispatcher.map().servers, dispatcher.map().number > before.number), (1, true));
    let orders = dispatcher.take_orders();
    let places = orders.iter().filter(|order| {
        matches!(order, DispatchAction::Place { placement, .. }
        if placement.source == PartitionSource::Servers(before))
    });
    assert_eq!(places.count(), 2);
    // Its acks were true once, but who knows where these partitions come from now.
    assert_eq!(dispatcher.report(1, ANN, &report(&task, [10, 20])), ReportVerdict::OtherMap);
    dispatcher.server_up(0, placed(&dispatcher, 10, Applied::new(2)));
    let gone = Process { server: 1, incarnation: 20 };
    let dismissed =
        |order: &DispatchAction| matches!(order, DispatchAction::Dismiss { to, .. } if *to == gone);
    assert!(dispatcher.take_orders().iter().any(dismissed));
    assert_eq!(leased(&mut dispatcher, 1, ANN, 2).map, dispatcher.map());
}

#[test]
fn work_goes_on_until_the_servers_to_come_are_there() {
    let mut dispatcher = ready(Consistency::Async);
    dispatcher.resize(3);
    let task = leased(&mut dispatcher, 0, ANN, 1);
    dispatcher.server_up(2, fresh(30));
    assert!(matches!(dispatcher.lease(0, BOB, 1), Lease::Wait(_, Waiting::Resizing)));
    assert_eq!(dispatcher.report(0, ANN, &report(&task, [10, 20])), ReportVerdict::Done);
    assert_eq!(dispatcher.map().servers, 3);
    let orders = dispatcher.take_orders();
    let places = orders.iter().filter(|order| matches!(order, DispatchAction::Place { .. }));
    assert_eq!(places.count(), 3);
}
