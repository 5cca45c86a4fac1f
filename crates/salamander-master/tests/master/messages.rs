//! Reports, events and the calls of people.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salamander_core::elastic::{Ending, FromMember};
use salamander_core::environment;
use salamander_core::report::Report;
use salamander_files::mutated::try_mutations;
use salamander_proto::fuzzing::control;
use salamander_proto::v1::event::Event;

use crate::support::{Run, Worker, together, wait_until};

#[test]
fn a_report_counts_once_whoever_sends_it() {
    let mut run = Run::new(2);
    let workers = [1, 2].map(|id| Worker::join(&run, id));
    together(&workers.each_ref());
    let report = |worker: usize, version| {
        workers[worker].report(version);
    };
    (1..=3).for_each(|version| report(0, version));
    wait_until("three are told", || run.told.reports().len() == 3);
    (2..=5).for_each(|version| report(1, version));
    wait_until("five are told", || run.told.reports().len() == 5);
    run.kill();
    // The next master has not seen them, but knows.
    run.start(|_| {});
    (4..=7).for_each(|version| report(0, version));
    wait_until("seven are told", || run.told.reports().len() >= 7);
    assert_eq!(run.told.reports(), [1, 2, 3, 4, 5, 6, 7]);
    let status = run.status();
    assert_eq!(
        (&status["version"], &status["last_report"]["step"]["steps"]),
        (&7.into(), &7.into())
    );
}

#[test]
fn a_session_that_closes_waits_for_what_matters() {
    let run = Run::new(1);
    let mut worker = Worker::join(&run, 1);
    together(&[&worker]);
    (1..=200).for_each(|version| worker.report(version));
    let session = worker.session.take().expect("open");
    assert!(session.close(Duration::from_secs(10)));
    assert_eq!(run.told.reports().len(), 200);
}

#[test]
fn a_watcher_sees_everything_over_a_restart() {
    let mut run = Run::new(1);
    let mut admin = run.admin();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let has = |expected: &str| {
        seen.lock().expect("not poisoned").iter().any(|text: &String| text == expected)
    };
    let watched = seen.clone();
    let watcher = std::thread::spawn(move || {
        admin.watch(0, |event| {
            watched.lock().expect("not poisoned").push(match event.event.expect("some event") {
                Event::Report(report) => match report.try_into() {
                    Ok(Report::Step(step)) => format!("report {}", step.steps),
                    other => panic!("{other:?}"),
                },
                Event::Note(text) => text,
                Event::Result(done) => format!("task {}", done.task),
                Event::Ended(ending) => format!("ended {:?}", Ending::try_from(ending)),
            });
            ControlFlow::Continue(())
        })
    });
    let worker = Worker::join(&run, 1);
    together(&[&worker]);
    worker.report(1);
    wait_until("it is seen", || has("report 1"));
    run.kill();
    run.start(|_| {});
    worker.report(2);
    let generation = worker.seen().member.generation().expect("active");
    worker.sender().send(FromMember::Reached(generation, Ending::Completed));
    wait_until("it is told", || worker.seen().ended.is_some());
    drop(worker);
    watcher.join().expect("no panic").expect("watched to the end");
    assert!(has("report 2") && has("ended Ok(Completed)"));
    assert_eq!(run.finish().expect("ended"), Ending::Completed);
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    let run = Run::new(1);
    let mut admin = run.admin();
    let error = admin.scale(Some(0), None).expect_err("nobody").to_string();
    assert!(error.contains("0 workers cannot be"), "{error}");
    let error = admin.lease(salamander_core::elastic::WorkerId(1)).expect_err("no tasks");
    assert!(error.to_string().contains("this run has no tasks"), "{error}");
}

/// What the fuzz target of control messages begins with, and mutations of it.
#[test]
fn no_message_breaks_who_reads_it() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/control");
    let seconds = std::env::var(environment::FUZZ_SECONDS).ok();
    let executions = try_mutations(&seeds, seconds.as_deref(), control).expect("there are seeds");
    println!("{executions} executions");
}
