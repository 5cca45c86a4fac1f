//! A master and whoever starts its processes, here without processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use salamander_core::elastic::{Ended, Ending, Order};
use salamander_master::{Config, PlatformKind};
use salamander_proto::client::{PlatformClient, PlatformHandler, SessionOptions};

use crate::support::{Birth, Run, TOKEN, Worker, together, wait_until};

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    running: BTreeMap<u32, u32>,
    orders: Vec<Order>,
    next: u32,
    over: Option<Ending>,
}

impl PlatformHandler for Fake {
    fn inventory(&mut self) -> Vec<(u32, u32)> {
        self.0.lock().expect("not poisoned").running.iter().map(|(s, p)| (*s, *p)).collect()
    }

    fn order(&mut self, order: Order) {
        let mut state = self.0.lock().expect("not poisoned");
        state.orders.push(order);
        if let Order::Start(slot) = order {
            state.next += 1;
            let pid = state.next;
            state.running.insert(slot, pid);
        }
    }

    fn over(&mut self, ending: Ending) {
        self.0.lock().expect("not poisoned").over = Some(ending);
    }
}

impl Fake {
    fn open(&self, run: &Run) -> PlatformClient {
        let options = SessionOptions::new(run.master(), TOKEN);
        PlatformClient::open_with(&options, |_| self.clone()).expect("open")
    }

    fn orders(&self) -> Vec<Order> {
        self.0.lock().expect("not poisoned").orders.clone()
    }

    fn running(&self) -> usize {
        self.0.lock().expect("not poisoned").running.len()
    }

    fn is_running(&self, slot: u32) -> bool {
        self.0.lock().expect("not poisoned").running.contains_key(&slot)
    }

    fn pid(&self, slot: u32) -> u32 {
        self.0.lock().expect("not poisoned").running[&slot]
    }

    fn over(&self) -> Option<Ending> {
        self.0.lock().expect("not poisoned").over.clone()
    }

    fn lose(&self, client: &PlatformClient, slot: u32, how: Ended) {
        let mut state = self.0.lock().expect("not poisoned");
        let pid = state.running[&slot];
        client.ends().ended(slot, pid, how);
        state.running.remove(&slot);
    }

    /// Opens the platform; its two workers have met.
    fn two_together(&self, run: &Run) -> (PlatformClient, [Worker; 2]) {
        let client = self.open(run);
        wait_until("both are started", || self.running() == 2);
        let [first, second] = [(1, 0), (2, 1)].map(|(id, slot)| self.worker(run, id, slot));
        together(&[&first, &second]);
        (client, [first, second])
    }

    fn worker(&self, run: &Run, id: u64, slot: u32) -> Worker {
        Worker::born(run, Birth { slot, pid: self.pid(slot), ..Birth::new(id) })
    }
}

fn served(config: &mut Config) {
    config.platform = PlatformKind::Served;
    config.max_restarts = 1;
}

#[test]
fn a_killed_process_is_out_at_once_and_replaced() {
    let run = Run::with(2, served);
    let fake = Fake::default();
    let (client, [first, second]) = fake.two_together(&run);
    drop(second);
    for _ in 0..5 {
        let orders = fake.orders().len();
        fake.lose(&client, 1, Ended::Killed("SIGKILL".into()));
        wait_until("it is started again", || fake.orders().len() > orders);
        assert_eq!(fake.orders().last(), Some(&Order::Start(1)));
    }
    together(&[&first]);
    assert!(run.told.has_note("dropped: its process was killed"));
    let third = fake.worker(&run, 3, 1);
    together(&[&first, &third]);
    wait_until("restarts are counted", || run.status()["restarts"]["worker"] == 5);
    assert!(client.close(std::time::Duration::from_secs(5)));
}

#[test]
fn too_many_crashes_end_the_run_with_the_reason() {
    let mut run = Run::with(1, served);
    let fake = Fake::default();
    let client = fake.open(&run);
    wait_until("it is started", || fake.running() == 1);
    fake.lose(&client, 0, Ended::Crashed("exit code 101: out of range".into()));
    wait_until("it is started again", || fake.running() == 1);
    // A program that ends by itself while the run goes on is no better.
    fake.lose(&client, 0, Ended::Finished);
    wait_until("it is over", || fake.over().is_some());
    let Ok(Ending::Failed(reason)) = run.finish() else { panic!("it fails") };
    assert!(reason.contains("workers crashed 2 times"), "{reason}");
    assert!(reason.contains("it ended though the run goes on"), "{reason}");
}

/// The process of a slot is one that the master refuses, and ends for that.
fn refuse(fake: &Fake, run: &Run, client: &PlatformClient, id: u64, slot: u32) {
    wait_until("one is started", || fake.is_running(slot));
    let pid = fake.pid(slot);
    let other = Worker::born(run, Birth { slot, pid, arithmetic: (9, 6), ..Birth::new(id) });
    wait_until("it is refused", || other.seen().ended.is_some());
    drop(other);
    fake.lose(client, slot, Ended::Crashed("exit code 1: it is refused".into()));
}

#[test]
fn a_slot_whose_processes_are_refused_does_not_end_a_run_that_others_train() {
    let run = Run::with(2, served);
    let fake = Fake::default();
    let client = fake.open(&run);
    wait_until("both are started", || fake.running() == 2);
    let first = fake.worker(&run, 1, 0);
    wait_until("it says what it computes with", || first.seen().connected);
    // More than may crash.
    (2..5).for_each(|id| refuse(&fake, &run, &client, id, 1));
    wait_until("another is tried", || fake.is_running(1));
    let fitting = fake.worker(&run, 5, 1);
    together(&[&first, &fitting]);
    assert_eq!(run.status()["restarts"]["worker"], 3);
}

#[test]
fn a_run_with_nobody_but_refused_workers_ends_with_the_reason() {
    let mut run = Run::with(1, served);
    let fake = Fake::default();
    let client = fake.open(&run);
    wait_until("it is started", || fake.running() == 1);
    let first = fake.worker(&run, 1, 0);
    together(&[&first]);
    drop(first);
    fake.lose(&client, 0, Ended::Killed("SIGKILL".into()));
    (2..4).for_each(|id| refuse(&fake, &run, &client, id, 0));
    wait_until("it is over", || fake.over().is_some());
    let Ok(Ending::Failed(reason)) = run.finish() else { panic!("it fails") };
    assert!(reason.contains("workers were refused 2 times in a row"), "{reason}");
    assert!(reason.contains("its instruction set is not that of"), "{reason}");
}

#[test]
fn scaling_starts_and_ends_processes() {
    let run = Run::with(1, served);
    let fake = Fake::default();
    let client = fake.open(&run);
    wait_until("one is started", || fake.running() == 1);
    let first = fake.worker(&run, 1, 0);
    together(&[&first]);
    run.admin().scale(Some(3), None).expect("asked");
    wait_until("three run", || fake.running() == 3);
    let [second, third] = [(2, 1), (3, 2)].map(|(id, slot)| fake.worker(&run, id, slot));
    together(&[&first, &second, &third]);
    run.admin().scale(Some(2), None).expect("asked");
    wait_until("one is to end", || fake.orders().contains(&Order::End(2)));
    drop(third);
    fake.lose(&client, 2, Ended::Finished);
    together(&[&first, &second]);
    assert_eq!(run.status()["wanted"], 2);
}

#[test]
fn a_restarted_master_takes_over_what_runs() {
    let mut run = Run::with(2, served);
    let fake = Fake::default();
    let (client, [first, second]) = fake.two_together(&run);
    run.kill();
    // It dies while no master is there.
    fake.lose(&client, 1, Ended::Killed("SIGKILL".into()));
    drop(second);
    run.start(served);
    wait_until("the lost one is started again", || fake.orders().len() == 3);
    assert_eq!(fake.orders()[2], Order::Start(1));
    let third = fake.worker(&run, 3, 1);
    together(&[&first, &third]);
    assert_eq!(fake.orders().len(), 3);
}

#[test]
fn a_process_that_stays_silent_is_ended_and_replaced() {
    let run = Run::with(2, served);
    let fake = Fake::default();
    let (client, [first, second]) = fake.two_together(&run);
    second.freeze(true);
    together(&[&first]);
    // Dropped at once, ended much later.
    assert!(!fake.orders().contains(&Order::End(1)));
    wait_until("it is ended", || fake.orders().contains(&Order::End(1)));
    fake.lose(&client, 1, Ended::Killed("SIGKILL".into()));
    wait_until("it is replaced", || fake.running() == 2);
    second.freeze(false);
}
