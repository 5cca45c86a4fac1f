//! A hub whose disk is full for a while, with a run and a search that train meanwhile.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::faults::SmallDisk;
use crate::hub::{Hub, place, processes_of, search};
use crate::support::{may_change_host, skip};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// They would go on for hours, so that the disk is full before they end.
const LONG: &str = "searcher.max_length={batches: 100000000}";

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes all the space that is left, to the last block.
fn fill(path: &Path) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("opened");
    for size in [64 << 10, 1 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// The steps in a run's metrics.
fn trained(run: &Path) -> Vec<u64> {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let lines = metrics.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let steps = lines.filter(|line: &Value| line["kind"] == "step");
    steps.map(|line| line["steps"].as_u64().expect("a number")).collect()
}

#[test]
fn a_run_and_a_search_of_a_hub_go_on_after_their_disk_was_full() {
    let test = "a_run_and_a_search_of_a_hub_go_on";
    let place = place();
    let runs = place.path().join("runs");
    fs::create_dir(&runs).expect("a folder");
    if !may_change_host(test) {
        return;
    }
    let Some(_disk) = SmallDisk::mount_of(&runs, "128m") else {
        return skip(test, "tmpfs cannot be mounted here (needs root)");
    };
    place.write("long.yaml", &search().replace("batches: 64", "batches: 6400000"));
    // Its store and its journal have no room then, either.
    let hub = Hub::start(&place);
    place.ok(&["experiment", "create", "single.yaml", "--detach", "--set", LONG]);
    place.ok(&["experiment", "create", "long.yaml", "--detach"]);
    let steps = |run: &str| hub.get(&format!("/api/v1/runs/{run}"))["steps"].as_u64();
    let experiment = |id: &str| -> Value { hub.get(&format!("/api/v1/experiments/{id}")) };
    until("both train", || steps("1.1") > Some(0) && steps("2.1") > Some(0));
    let filler = runs.join("filler");
    // What one of them leaves behind is no room for the other.
    until("a full disk ends both", || {
        fill(&filler);
        processes_of(&place).len() == 1
    });
    fs::remove_file(&filler).expect("removed");
    for (id, run) in [("1", "1.1"), ("2", "2.1")] {
        until("it goes on", || {
            let experiment = experiment(id);
            assert_ne!(experiment["state"], "failed", "{experiment:#}");
            experiment["state"] == "running" && experiment["restarts"].as_u64() > Some(0)
        });
        let before = steps(run);
        until("it trains on", || steps(run) > before);
        place.ok(&["experiment", "cancel", id]);
        until("it ends", || experiment(id)["state"] == "canceled");
    }
    for run in ["1.1", "2.1", "2.2"] {
        let folder = hub.get(&format!("/api/v1/runs/{run}"))["folder"].clone();
        let all = trained(&runs.join(folder.as_str().expect("a folder")));
        assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>(), "each step of {run} once");
        let told = || {
            let metrics = hub.get(&format!("/api/v1/runs/{run}/metrics"));
            let mut metrics = metrics.as_array().into_iter().flatten();
            metrics.find(|one| one["name"] == "loss").and_then(|one| one["points"].as_u64())
        };
        until("the hub has all of it", || told().unwrap_or(0) == all.len() as u64);
    }
    hub.stop();
    assert!(processes_of(&place).is_empty(), "nothing is left running");
}
