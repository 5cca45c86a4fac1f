//! A Postgres server that stops, and one that is killed, while a hub reads what is trained.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_hub::ingest::Ingester;
use salamander_hub::operation::Operation;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::points::Window;
use salamander_hub::{ExperimentId, Hub, RunId, Speaker, StoreUrl};

use crate::folders::write_run;
use crate::server::PostgresServer;

/// Steps that are written in all, a few at a time.
const STEPS: i64 = 6000;
const TOGETHER: i64 = 20;

#[test]
fn a_server_that_stops_or_is_killed_loses_and_doubles_nothing() {
    let server = PostgresServer::start();
    let url: StoreUrl = server.database().parse().expect("an address");
    let runs = tempfile::tempdir().expect("a folder");
    let folder = write_run(runs.path(), "a", 0);
    std::fs::remove_file(folder.join("metrics.jsonl")).expect("removed");
    let hub = Hub::open(runs.path(), Some(&url)).expect("opened");
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        // A test that fails does not wait for the others for ever.
        let ends = Ends(&ended);
        threads.spawn(|| write_slowly(&folder));
        threads.spawn(|| {
            let mut ingester = Ingester::new(hub.clone());
            while !ended.load(Ordering::Acquire) {
                // What fails now is read later.
                let _ = ingester.look_at_all();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let labels = threads.spawn(|| label(&hub, 40, &ended));
        server.signal("-STOP");
        std::thread::sleep(Duration::from_secs(1));
        server.signal("-CONT");
        // 11 s are longer than anybody waits for a server: what is asked meanwhile fails, and is done later.
        for away in [0, 11_000, 300, 1200] {
            server.restart(Duration::from_millis(away));
            std::thread::sleep(Duration::from_millis(300));
        }
        let labels = labels.join().expect("said");
        until_all_is_there(&hub);
        drop(ends);
        let experiment = hub.store().experiment(ExperimentId(1)).expect("read");
        assert_eq!(experiment.labels.len(), labels, "each is there, and once");
    });
    check(&hub);
    drop(hub);
    let hub = Hub::open(runs.path(), Some(&url)).expect("opened again");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    check(&hub);
}

#[test]
fn two_hubs_on_one_database_are_refused() {
    let server = crate::server::server();
    let url: StoreUrl = server.database().parse().expect("an address");
    let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("one"));
    let first = Hub::open(one.path(), Some(&url)).expect("opened");
    let error = Hub::open(other.path(), Some(&url)).err().expect("refused").to_string();
    assert!(error.contains("another hub has this store"), "{error}");
    drop(first);
    Hub::open(other.path(), Some(&url)).expect("free again");
    let wrong: StoreUrl = server.url("nowhere").parse().expect("an address");
    let error = Hub::open(one.path(), Some(&wrong)).err().expect("refused").to_string();
    assert!(error.contains("database \"nowhere\" does not exist"), "{error}");
    assert!(!error.contains("hub@"), "{error}");
}

/// Says that it is over, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes metrics and a log, a few lines at a time.
fn write_slowly(folder: &std::path::Path) {
    let open = |name: &str| -> File {
        OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("opened")
    };
    let (mut metrics, mut log) = (open("metrics.jsonl"), open("logs/master.log"));
    for first in (1..=STEPS).step_by(TOGETHER as usize) {
        let (mut points, mut lines) = (String::new(), String::new());
        for step in first..first + TOGETHER {
            points +=
                &format!("{{\"kind\":\"step\",\"steps\":{step},\"epoch\":0,\"loss\":{step}.5}}\n");
            lines += &format!("line number {step}\n");
        }
        metrics.write_all(points.as_bytes()).expect("written");
        log.write_all(lines.as_bytes()).expect("written");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Labels an experiment, each label until it is heard; returns how many there are.
fn label(hub: &Hub, labels: usize, ended: &AtomicBool) -> usize {
    for number in 0..labels {
        while !ended.load(Ordering::Acquire) {
            let add = vec![format!("label {number}")];
            let operation = Operation::Label { experiment: ExperimentId(1), add, remove: vec![] };
            if hub.say(&Speaker::default(), operation).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    labels
}

fn until_all_is_there(hub: &Hub) {
    let run: RunId = "1.1".parse().expect("a run");
    let query =
        LogQuery { process: Some("master".into()), tail: Some(true), ..LogQuery::default() };
    let last = format!("line number {STEPS}");
    loop {
        let steps = hub.store().run(run).map(|run| run.steps);
        let lines = hub.store().run_logs(run, &query).map(|page| page.lines);
        if let (Ok(STEPS), Ok(lines)) = (steps, lines)
            && lines.last().is_some_and(|line| line.text == last)
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All points and lines are there, each once and in their order.
fn check(hub: &Hub) {
    let run: RunId = "1.1".parse().expect("a run");
    let window = Window { from: i64::MIN, to: i64::MAX, stretches: 1 << 20 };
    let curve = hub.store().curve(run, "loss", &window).expect("read").expect("there");
    assert_eq!(curve.steps, (1..=STEPS).collect::<Vec<_>>());
    assert!(curve.steps.iter().zip(&curve.values).all(|(n, v)| *v == Some(*n as f64 + 0.5)));
    let metrics = hub.store().metrics(run).expect("read");
    assert_eq!(metrics.iter().find(|m| m.name == "loss").expect("there").points, STEPS as u64);
    let all = LogQuery {
        process: Some("master".into()),
        limit: Some(STEPS as usize + 100),
        ..LogQuery::default()
    };
    let lines = hub.store().run_logs(run, &all).expect("read").lines;
    let texts: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    assert_eq!(texts, (1..=STEPS).map(|n| format!("line number {n}")).collect::<Vec<_>>());
    assert_eq!(hub.store().experiments(&ListQuery::default()).expect("read").total, 1);
}
