//! Distributed runs: the same mathematics as a local one, whoever dies, and nothing left behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::chaos::{self, Fire, Story};

use crate::interrupted::{signal, start, steps_logged};
use crate::support::{PROGRAM, Workplace, digits_experiment, has_ended, points_csv};

/// The loss of every step of a run.
pub(crate) fn losses(summary: &Value) -> Vec<f64> {
    let path = Path::new(summary["dir"].as_str().expect("a folder")).join("metrics.jsonl");
    let text = std::fs::read_to_string(path).expect("metrics");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["kind"] == "step")
        .map(|l| l["loss"].as_f64().expect("a loss"))
        .collect()
}

/// 1, 2, 3 and 4 workers follow the local run over 100 steps, to the last bit.
fn check_mathematics(place: &Workplace, experiment: &str) {
    let local = place.train(&[experiment]);
    assert_eq!(losses(&local).len(), 100);
    for (workers, transport) in [("1", "auto"), ("2", "tcp"), ("3", "auto"), ("4", "tcp")] {
        let transport = format!("elastic.transport={transport}");
        let summary = place.train(&[experiment, "--workers", workers, "--set", &transport]);
        assert_same_bits(&summary, &local, &format!("{workers} workers, {transport}"));
    }
}

fn validation_loss(summary: &Value) -> f64 {
    summary["metrics"]["validation"]["loss"].as_f64().expect("a loss")
}

/// The same weights, losses of every step, validation and ledger.
pub(crate) fn assert_same_bits(found: &Value, expected: &Value, what: &str) {
    assert_eq!(losses(found), losses(expected), "{what}");
    for field in ["ledger", "steps", "micro_batches"] {
        assert_eq!(found[field], expected[field], "{what}: {field}");
    }
    assert_eq!(validation_loss(found), validation_loss(expected), "{what}");
    assert!(found["weights_hash"].is_string(), "{what}: {found}");
    assert_eq!(found["weights_hash"], expected["weights_hash"], "{what}: the weights");
}

#[test]
fn workers_follow_a_local_run_with_adam() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(803));
    let text = "entrypoint: points\n\
                data: {training: points.csv, validation: points.csv, shuffle: full}\n\
                micro_batches: 4\n\
                hyperparameters: {global_batch_size: 37, learning_rate: 0.01}\n\
                searcher: {metric: loss, max_length: {batches: 100}}\n\
                reproducibility: {experiment_seed: 5}\n";
    check_mathematics(&place, &place.write("points.yaml", text).display().to_string());
}

#[test]
fn workers_follow_a_local_run_with_sgd_dropout_and_batch_norm() {
    let place = Workplace::new();
    let rest = "micro_batches: 4\n\
                hyperparameters: {global_batch_size: 48}\n\
                searcher: {metric: loss, max_length: {batches: 100}}\n";
    let text = digits_experiment("resilient", rest);
    check_mathematics(&place, &place.write("resilient.yaml", &text).display().to_string());
}

pub(crate) fn under_fire(fire: &Fire) -> Story {
    let place = Workplace::new();
    let story = chaos::run(Path::new(PROGRAM), place.path(), fire);
    story.unwrap_or_else(|error| panic!("seed {}: {error}", fire.seed))
}

pub(crate) fn fire(seed: u64, workers: u32, faults: usize) -> Fire {
    Fire {
        seed,
        workers,
        servers: 0,
        asynchronous: false,
        // The last batch of each epoch is short.
        records: 480 * faults as u64 + 13,
        batch: 40,
        epochs: 3,
        faults,
        in_exchange: 0,
        delay_ms: 3,
        transport: "auto",
        loud: false,
    }
}

#[test]
fn every_record_counts_once_under_kills_stops_and_joins() {
    let story = under_fire(&fire(1, 4, 4));
    assert_eq!(story.faults.len(), 4, "{:?}", story.faults);
    assert!(story.summary["generations"].as_u64() > Some(1), "{}", story.summary);
}

#[test]
fn every_record_counts_once_over_tcp() {
    under_fire(&Fire { transport: "tcp", ..fire(2, 3, 2) });
}

#[test]
fn every_record_counts_once_with_tables_on_servers() {
    let story = under_fire(&Fire { servers: 2, ..fire(1, 3, 4) });
    assert_eq!(story.faults.len(), 4, "{:?}", story.faults);
}

/// An experiment that takes some seconds with a few workers.
fn long_experiment(place: &Workplace) -> String {
    let ids: String = (0..4000).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let text = "entrypoint: tally\n\
                data: {training: ids.csv, shuffle: full}\n\
                strategy: allreduce\n\
                workers: 3\n\
                micro_batches: 3\n\
                reproducibility: {experiment_seed: 7}\n\
                hyperparameters: {global_batch_size: 40, records: 4000, delay_ms: 10, blend: true}\n\
                searcher: {metric: loss, max_length: {epochs: 3}}\n\
                elastic: {silence: 1}\n";
    place.write("long.yaml", text).display().to_string()
}

/// Whoever died, the weights are those of one process that nobody disturbed, to the last bit.
fn has_the_bits_of_one_process(place: &Workplace, experiment: &str, summary: &Value) {
    let alone = ["strategy=local", "workers=1", "hyperparameters.delay_ms=0"];
    let sets = alone.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = [experiment, "--out", "alone"].into_iter().chain(sets).collect();
    let expected = place.train(&args);
    assert!(summary["weights_hash"].is_string(), "{summary}");
    assert_eq!(summary["weights_hash"], expected["weights_hash"], "{summary}");
}

/// The summary of a run that nothing holds up any more; if it does not end well, its logs say what it waits for.
pub(crate) fn end_of(child: &mut Child, run: &Path) -> Value {
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a state") {
            Some(status) => break Some(status),
            None if begun.elapsed() > Duration::from_secs(180) => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if !status.is_some_and(|status| status.success()) {
        // Its processes end with it.
        let _ = child.kill();
        panic!("not an end, or no good one: {status:?}\n{}", logs_of(run));
    }
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

fn logs_of(run: &Path) -> String {
    let logs = std::fs::read_dir(run.join("logs")).into_iter().flatten().flatten();
    let shown = logs.map(|log| {
        let text = std::fs::read_to_string(log.path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("{}:\n{last}\n", log.path().display())
    });
    shown.collect()
}

#[test]
fn ctrl_c_ends_every_process_and_the_run_goes_on_later() {
    let place = Workplace::new();
    let experiment = long_experiment(&place);
    let command = place.command(&["train", &experiment]);
    let (mut child, run) = start(command, &place, 20, Duration::ZERO);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    assert!(chaos::children_of(child.id()).is_empty());
    let done = steps_logged(&run);
    assert!(done < 300, "it was stopped early, not at step {done}");
    let summary = place.train(&["--resume", &run.display().to_string()]);
    assert_eq!(summary["state"], "completed");
    assert_eq!(summary["steps"], 300);
    assert_eq!(steps_logged(&run), 303, "each step and each epoch is logged once");
    for line in summary["ledger"].as_array().expect("a ledger") {
        assert_eq!((&line["applied"], &line["missing"]), (&4000.into(), &0.into()), "{line}");
    }
    has_the_bits_of_one_process(&place, &experiment, &summary);
}

#[test]
fn a_killed_parent_leaves_nobody_and_the_run_goes_on_later() {
    let place = Workplace::new();
    let experiment = long_experiment(&place);
    let command =
        place.command(&["train", &experiment, "--set", "min_checkpoint_period={batches: 10}"]);
    let (mut child, run) = start(command, &place, 60, Duration::ZERO);
    let children = chaos::children_of(child.id());
    assert!(children.len() >= 3, "{children:?}");
    signal(&child, Signal::KILL);
    child.wait().expect("ended");
    let begun = Instant::now();
    while !children.iter().all(|pid| has_ended(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "children outlive their parent");
        std::thread::sleep(Duration::from_millis(20));
    }
    let summary = place.train(&["--resume", &run.display().to_string()]);
    assert_eq!((&summary["state"], &summary["steps"]), (&"completed".into(), &300.into()));
    for line in summary["ledger"].as_array().expect("a ledger") {
        assert_eq!((&line["applied"], &line["missing"]), (&4000.into(), &0.into()), "{line}");
    }
    has_the_bits_of_one_process(&place, &experiment, &summary);
}

#[test]
fn a_record_that_cannot_be_read_ends_the_run_with_its_name() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(300).replacen("0.", "zero.", 250));
    let text = "entrypoint: points\n\
                data: {training: points.csv}\n\
                strategy: allreduce\n\
                workers: 2\n";
    let experiment = place.write("points.yaml", text).display().to_string();
    let ended = place.run(&["train", &experiment]);
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.err().contains("points.csv") && ended.err().contains("record"),
        "{}",
        ended.err()
    );
}

#[test]
fn a_loss_that_is_not_a_number_ends_the_run_with_its_step() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(300));
    let text = "entrypoint: points\n\
                data: {training: points.csv}\n\
                strategy: allreduce\n\
                workers: 2\n\
                hyperparameters: {learning_rate: 1.0e+38}\n";
    let experiment = place.write("points.yaml", text).display().to_string();
    let ended = place.run(&["train", &experiment]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("the loss is not a number at epoch"), "{}", ended.err());
}

#[test]
fn a_worker_that_hangs_is_replaced() {
    let place = Workplace::new();
    let experiment = long_experiment(&place);
    let file = place.write("hang", "whoever removes this hangs").display().to_string();
    let hang = format!("hyperparameters.hang_file={file}");
    let summary = place.train(&[&experiment, "--set", &hang, "--set", "elastic.hang=1"]);
    assert_eq!(summary["state"], "completed");
    assert!(summary["restarts"]["worker"].as_u64() >= Some(1), "{summary}");
    for line in summary["ledger"].as_array().expect("a ledger") {
        assert_eq!((&line["applied"], &line["missing"]), (&4000.into(), &0.into()), "{line}");
    }
    has_the_bits_of_one_process(&place, &experiment, &summary);
}

/// The others wait for its part of the validation. Before a run its model is tried on the first two records of each
/// file, so that only a worker comes to the last one, and only when it validates.
#[test]
fn a_worker_that_hangs_while_it_validates_is_replaced() {
    let place = Workplace::new();
    let ids = |ids: std::ops::Range<u32>| ids.map(|id| format!("{id}\n")).collect::<String>();
    place.write("ids.csv", &format!("id\n{}", ids(0..1200)));
    place.write("others.csv", &format!("id\n{}", ids(1200..1400)));
    // For one alone nobody would wait.
    let text = "entrypoint: tally\n\
                data: {training: ids.csv, validation: others.csv, shuffle: full}\n\
                strategy: allreduce\n\
                workers: {min: 2, max: 3}\n\
                micro_batches: 3\n\
                reproducibility: {experiment_seed: 7}\n\
                hyperparameters: {global_batch_size: 40, records: 1400, blend: true}\n\
                searcher: {metric: loss, max_length: {epochs: 3}}\n\
                elastic: {silence: 1, hang: 2}\n";
    let experiment = place.write("validated.yaml", text).display().to_string();
    let file = place.write("hang", "whoever removes this hangs");
    let hang = format!("hyperparameters.hang_file={}", file.display());
    let sets = ["--set", &hang, "--set", "hyperparameters.hang_record=1399"];
    let command = place.command(&[&["train", &experiment], &sets[..]].concat());
    let (mut child, run) = start(command, &place, 1, Duration::ZERO);
    let summary = end_of(&mut child, &run);
    assert!(!file.exists(), "nobody hung");
    let notes = place.ok(&["logs", &run.display().to_string()]).out();
    assert!(notes.contains("replaced: it hangs"), "{notes}");
    assert_eq!((&summary["state"], &summary["steps"]), (&"completed".into(), &90.into()));
    for line in summary["ledger"].as_array().expect("a ledger") {
        assert_eq!((&line["applied"], &line["missing"]), (&1200.into(), &0.into()), "{line}");
    }
    has_the_bits_of_one_process(&place, &experiment, &summary);
}

#[test]
fn sixteen_bits_on_the_wire_are_close() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(400));
    let text = "entrypoint: points\n\
                data: {training: points.csv}\n\
                hyperparameters: {global_batch_size: 40}\n\
                searcher: {metric: loss, max_length: {batches: 40}}\n\
                elastic: {transport: tcp}\n\
                reproducibility: {experiment_seed: 5}\n";
    let experiment = place.write("points.yaml", text).display().to_string();
    let full = losses(&place.train(&[&experiment, "--workers", "2"]));
    let half = "optimizations.gradient_compression=true";
    let rounded = losses(&place.train(&[&experiment, "--workers", "2", "--set", half]));
    assert_ne!(full, rounded, "nothing was rounded");
    let off = full.iter().zip(&rounded).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 0.02, "{off}");
}

#[test]
fn strangers_are_refused_and_commands_work_while_a_run_goes_on() {
    let place = Workplace::new();
    // It goes slowly until all commands were given.
    let slow = place.write("slow", "").display().to_string();
    let slowly = format!("hyperparameters.slow_file={slow}");
    let file = long_experiment(&place);
    let sets = ["--set", &slowly, "--set", "hyperparameters.delay_ms=100"];
    let command = place.command(&[&["train", &file], &sets[..]].concat());
    let (mut child, run) = start(command, &place, 10, Duration::ZERO);
    let shown = run.display().to_string();

    let begun = Instant::now();
    let status = loop {
        let status = place.ok(&["status", &shown, "--json"]).json();
        if status["workers"].as_array().is_some_and(|all| all.len() == 3) {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not three workers: {status}");
    };
    let workers = status["workers"].as_array().expect("workers");
    let master = std::fs::read_to_string(run.join("master.address")).expect("an address");
    let endpoints = workers.iter().map(|worker| worker["endpoint"].as_str().expect("an endpoint"));
    let ports: Vec<&str> =
        endpoints.filter_map(|text| text.split(',').next()).chain([master.trim()]).collect();
    for port in ports {
        assert!(port.starts_with("127.0.0.1:"), "{port} is not on loopback");
        annoy(port);
    }
    // A command with another secret is refused; the run's own is not readable by others.
    let token = run.join("token");
    let secret = std::fs::read_to_string(&token).expect("a token");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&token).expect("a file"));
    assert_eq!(mode & 0o077, 0);
    std::fs::write(&token, "0".repeat(64)).expect("written");
    let refused = place.run(&["scale", &shown, "--workers", "2"]);
    assert_eq!(refused.code(), Some(1));
    assert!(!refused.err().contains(secret.trim()), "the secret is shown");
    std::fs::write(&token, &secret).expect("written");

    place.ok(&["scale", &shown, "--workers", "2"]);
    std::fs::remove_file(&slow).expect("removed");
    assert!(place.ok(&["logs", &shown, "--role", "worker-0"]).out().contains("begins"));
    for log in std::fs::read_dir(run.join("logs")).expect("logs").flatten() {
        let text = std::fs::read_to_string(log.path()).expect("a log");
        assert!(!text.contains(secret.trim()), "{}: the secret is shown", log.path().display());
    }
    assert!(child.wait().expect("ended").success());
    let ledger = place.ok(&["ledger", &shown]).out();
    assert_eq!(ledger.matches("intact").count(), 3, "{ledger}");
    let stats = std::fs::read_to_string(run.join("stats.csv")).expect("stats");
    assert!(stats.starts_with("rank,workers,steps,records,compute_s"), "{stats}");
}

/// Garbage, half a message, a length of 4 GB, silence.
fn annoy(address: &str) {
    let openings: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x00",
        b"",
    ];
    for bytes in openings {
        let mut stream = TcpStream::connect(address).expect("a listener");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        let _ = stream.write_all(bytes);
        let mut answer = [0; 64];
        let _ = stream.read(&mut answer);
    }
}
