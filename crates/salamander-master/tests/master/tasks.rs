//! Work in tasks: each counts once, whoever dies.

use std::time::Duration;

use salamander_core::elastic::{Ending, Lease, WorkerId};
use salamander_core::report::TaskResult;
use salamander_master::{Config, ModePlan, TaskPlan};
use salamander_proto::client::Admin;

use crate::support::{Birth, Run, Worker, wait_until};

fn plan(config: &mut Config) {
    let deadline = Duration::from_secs(30);
    config.mode = ModePlan::Tasks(TaskPlan { records: 100, size: 8, deadline });
}

/// Works until all is done or so many tasks are.
fn work(admin: &mut Admin, worker: WorkerId, most: usize) -> bool {
    for _ in 0..most {
        match admin.lease(worker).expect("an answer") {
            Lease::Leased(task) => {
                admin.finish(worker, &task, Ok(TaskResult::default())).expect("an answer");
            }
            Lease::Wait(wait) => std::thread::sleep(Duration::from_millis(wait)),
            Lease::Done => return true,
        }
    }
    false
}

#[test]
fn each_task_counts_once_over_deaths_of_workers_and_master() {
    let mut run = Run::with(2, plan);
    let dies = Worker::born(&run, Birth { tasks_only: true, ..Birth::new(1) });
    let lives = Worker::born(&run, Birth { tasks_only: true, ..Birth::new(2) });
    wait_until("both are there", || dies.seen().connected && lives.seen().connected);
    let mut admin = run.admin();
    let Lease::Leased(held) = admin.lease(dies.id).expect("an answer") else { panic!("a task") };
    work(&mut admin, lives.id, 4);
    assert_eq!(run.status()["tasks"]["done"], 4);
    run.kill();
    run.told = Default::default();
    run.start(plan);
    let mut admin = run.admin();
    // The result of a lease of the last master does not count.
    assert!(!admin.finish(dies.id, &held, Ok(TaskResult::default())).expect("an answer"));
    wait_until("it is back", || dies.seen().connected);
    admin.lease(dies.id).expect("an answer");
    drop(dies);
    assert!(work(&mut admin, lives.id, 1_000));
    wait_until("it is told", || lives.seen().ended == Some(Ending::Completed));
    drop(lives);
    assert_eq!(run.finish().expect("ended"), Ending::Completed);
    let mut reports = run.told.reports();
    reports.sort_unstable();
    assert_eq!(reports, (0..13).collect::<Vec<u64>>());
}

#[test]
fn a_task_that_cannot_be_done_ends_the_run() {
    let mut run = Run::with(1, plan);
    let mut admin = run.admin();
    let Lease::Leased(task) = admin.lease(WorkerId(1)).expect("an answer") else {
        panic!("a task")
    };
    admin.finish(WorkerId(1), &task, Err("record 3 is cut off".into())).expect("taken");
    let ending = run.finish().expect("ended");
    assert_eq!(ending, Ending::Failed("task 0: record 3 is cut off".into()));
}
