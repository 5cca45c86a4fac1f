//! Evaluation and prediction by several workers: what one process finds, whoever is killed, and nothing left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::chaos::children_of;

use crate::interrupted::signal;
use crate::support::{Ended, Workplace, digits, digits_experiment, has_ended, points_csv};

/// A model whose batches take their time, trained, with its run's folder and the file of its records.
fn slow_run(place: &Workplace, delay_ms: u64) -> (String, String) {
    let ids: String = (0..1203).map(|id| format!("{id}\n")).collect();
    let data = place.write("ids.csv", &format!("id\n{ids}")).display().to_string();
    let text = format!(
        "entrypoint: tally\n\
         data: {{training: ids.csv, validation: ids.csv}}\n\
         hyperparameters: {{global_batch_size: 8, records: 1203, delay_ms: {delay_ms}}}\n\
         searcher: {{metric: loss, max_length: {{batches: 10}}}}\n"
    );
    let experiment = place.write("tally.yaml", &text).display().to_string();
    let summary = place.train(&[&experiment]);
    (summary["dir"].as_str().expect("a folder").to_string(), data)
}

/// The folder of the parts, while there is one.
fn scratch(run: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(run).expect("a folder").flatten();
    let is_scratch = |path: &PathBuf| path.display().to_string().contains("tasks-");
    entries.map(|entry| entry.path()).find(is_scratch)
}

/// Starts a command and waits until some of its tasks are reported.
fn start(mut command: Command, run: &Path) -> Child {
    let mut child = command.spawn().expect("the program starts");
    let begun = Instant::now();
    let reported = || {
        // Every worker says in its log what it has done.
        let logs = scratch(run).map(|folder| std::fs::read_dir(folder.join("logs")));
        let logs = logs.into_iter().flatten().flatten().flatten();
        let done = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        logs.map(|log| done(log.path()).matches("counted=true").count()).sum::<usize>() >= 2
    };
    while !reported() {
        assert!(child.try_wait().expect("a state").is_none(), "it ended too soon");
        assert!(begun.elapsed() < Duration::from_secs(60), "no task is done");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn kill_one(parent: &Child) -> u32 {
    let victim = *children_of(parent.id()).first().expect("a worker");
    let pid = Pid::from_raw(victim as i32).expect("a process id");
    kill_process(pid, Signal::KILL).expect("the process is ours");
    victim
}

fn read(place: &Workplace, name: &str) -> Vec<u8> {
    std::fs::read(place.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn check_same_evaluation(alone: &Value, together: &Value) {
    for key in ["checkpoint", "records", "skipped", "report"] {
        assert_eq!(alone[key], together[key], "{key}");
    }
    let (alone, together) = (&alone["metrics"], &together["metrics"]);
    for (name, expected) in alone.as_object().expect("metrics") {
        let (expected, found) = (expected.as_f64(), together[name].as_f64());
        let off = (expected.expect("a number") - found.expect("a number")).abs();
        assert!(off < 1e-9, "{name}: {found:?} and {expected:?}");
    }
}

#[test]
fn three_workers_find_what_one_process_finds() {
    let place = Workplace::new();
    let rest = "hyperparameters: {global_batch_size: 48}\n\
                searcher: {metric: loss, max_length: {batches: 20}}\n";
    let text = digits_experiment("mnist_mlp", rest);
    let summary = place.train(&[&place.write("mlp.yaml", &text).display().to_string()]);
    let run = summary["dir"].as_str().expect("a folder");
    let alone = place.ok(&["evaluate", run, "--json"]).json();
    assert_eq!(alone["records"], 2000);
    let together = place.ok(&["evaluate", run, "--json", "--workers", "3"]);
    check_same_evaluation(&alone, &together.json());
    assert!(together.err().contains("evaluating: task"), "{}", together.err());

    // The same bytes, from a run and from an exported model.
    place.ok(&["export", run, "--out", "exported"]);
    let data = digits("mnist-valid.recordio");
    for (name, model) in [("p.csv", run), ("p.jsonl", run), ("p.parquet", "exported")] {
        let again = format!("again-{name}");
        place.ok(&["predict", model, "--data", &data, "--out", name]);
        place.ok(&["predict", model, "--data", &data, "--out", &again, "--workers", "3"]);
        assert!(read(&place, name) == read(&place, &again), "{name}");
    }
    assert_eq!(scratch(Path::new(run)), None);
    assert_eq!(scratch(&place.path().join("exported")), None);
}

#[test]
fn each_record_counts_once_whoever_is_killed() {
    let place = Workplace::new();
    let (run, data) = slow_run(&place, 15);
    let folder = Path::new(&run);
    place.ok(&["predict", &run, "--data", &data, "--out", "alone.csv"]);
    let alone = place.ok(&["evaluate", &run, "--json"]).json();

    let args = ["predict", &run, "--data", &data, "--out", "p.csv", "--workers", "3"];
    let child = start(place.command(&args), folder);
    let first = kill_one(&child);
    while children_of(child.id()).contains(&first) {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_one(&child);
    let ended = Ended(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.code(), Some(0), "{}", ended.err());
    // Of one that had not yet said who it is, nothing is said.
    assert!((1..=2).contains(&ended.err().matches("SIGKILL").count()), "{}", ended.err());
    assert!(read(&place, "p.csv") == read(&place, "alone.csv"));

    let child = start(place.command(&["evaluate", &run, "--json", "--workers", "3"]), folder);
    kill_one(&child);
    let ended = Ended(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.code(), Some(0), "{}", ended.err());
    assert!(ended.err().contains("SIGKILL"), "{}", ended.err());
    check_same_evaluation(&alone, &ended.json());
    assert_eq!(scratch(folder), None);
}

#[test]
fn ctrl_c_ends_every_worker_and_leaves_no_file() {
    let place = Workplace::new();
    let (run, data) = slow_run(&place, 60);
    let args = ["predict", &run, "--data", &data, "--out", "p.jsonl", "--workers", "3"];
    let mut child = start(place.command(&args), Path::new(&run));
    let workers = children_of(child.id());
    assert_eq!(workers.len(), 3);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    for worker in workers {
        assert!(has_ended(worker), "worker {worker} is left");
    }
    assert_eq!(scratch(Path::new(&run)), None);
    assert!(!place.path().join("p.jsonl").exists() && !place.path().join("p.jsonl.tmp").exists());
}

#[test]
fn what_a_killed_parent_leaves_goes_with_the_next() {
    let place = Workplace::new();
    let (run, data) = slow_run(&place, 60);
    let args = ["predict", &run, "--data", &data, "--out", "p.csv", "--workers", "2"];
    let mut child = start(place.command(&args), Path::new(&run));
    let workers = children_of(child.id());
    signal(&child, Signal::KILL);
    child.wait().expect("ended");
    let begun = Instant::now();
    while !workers.iter().all(|pid| has_ended(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "workers outlive their parent");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(scratch(Path::new(&run)).is_some());
    place.write("few.csv", "id\n1\n2\n");
    place.ok(&["predict", &run, "--data", "few.csv", "--out", "few.jsonl", "--workers", "2"]);
    assert_eq!(scratch(Path::new(&run)), None);
}

#[test]
fn a_bad_record_ends_it_with_its_name_or_is_skipped_and_counted() {
    let place = Workplace::new();
    place.write("good.csv", &points_csv(100));
    let good = points_csv(300);
    let mut lines: Vec<&str> = good.lines().collect();
    lines[202] = "zero,1.0,1";
    let bad = place.write("bad.csv", &lines.join("\n")).display().to_string();
    let trained = |name: &str, rule: &str| {
        let text = format!(
            "entrypoint: points\n\
             data: {{training: good.csv, on_bad_record: {rule}}}\n\
             hyperparameters: {{global_batch_size: 10}}\n"
        );
        let summary = place.train(&[&place.write(name, &text).display().to_string()]);
        summary["dir"].as_str().expect("a folder").to_string()
    };

    let strict = trained("strict.yaml", "fail");
    for args in [vec!["evaluate", &strict], vec!["predict", &strict, "--out", "p.jsonl"]] {
        let alone = place.run(&[&args[..], &["--data", &bad]].concat());
        let together = place.run(&[&args[..], &["--data", &bad, "--workers", "2"]].concat());
        assert_eq!((alone.code(), together.code()), (Some(1), Some(1)));
        let error = |ended: &Ended| ended.err().lines().last().unwrap_or_default().to_string();
        let named = error(&alone);
        assert!(named.contains("bad.csv") && named.contains("201"), "{named}");
        assert_eq!(error(&together), error(&alone));
    }
    let entries = std::fs::read_dir(place.path()).expect("a folder").flatten();
    let left = entries.filter(|e| e.file_name().to_string_lossy().starts_with("p.")).count();
    assert_eq!((left, scratch(Path::new(&strict))), (0, None));

    let lenient = trained("lenient.yaml", "skip");
    let alone = place.ok(&["evaluate", &lenient, "--data", &bad, "--json"]).json();
    assert_eq!((&alone["records"], &alone["skipped"]), (&299.into(), &1.into()));
    let args = ["evaluate", &lenient, "--data", &bad, "--json", "--workers", "2"];
    check_same_evaluation(&alone, &place.ok(&args).json());
    let args = ["predict", &lenient, "--data", &bad, "--out", "p.csv"];
    let said = place.ok(&args).out();
    let predicted = read(&place, "p.csv");
    assert_eq!(place.ok(&[&args[..], &["--workers", "2"]].concat()).out(), said);
    assert!(said.contains("1 record could not be decoded"), "{said}");
    assert_eq!(read(&place, "p.csv"), predicted);
}
