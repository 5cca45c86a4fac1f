//! A hub whose disk is full for a while, with a run and a search that train meanwhile.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::faults::SmallDisk;
use crate::hub::{Hub, place, processes_of};
use crate::hub_told::is_whole;
use crate::support::{may_change_host, skip};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// So long that it does not end before the disk is full.
const STEPS: u64 = 6000;

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

#[test]
fn a_run_and_a_search_of_a_hub_go_on_after_their_disk_was_full() {
    let test = "a_run_and_a_search_of_a_hub_go_on";
    let place = place();
    let runs = place.path().join("runs");
    fs::create_dir(&runs).expect("a folder");
    if !may_change_host(test) {
        return;
    }
    let Some(_disk) = SmallDisk::mount_of(&runs, "64m") else {
        return skip(test, "tmpfs cannot be mounted here (needs root)");
    };
    let long = format!("searcher.max_length={{batches: {STEPS}}}");
    let single = ["single.yaml", "--set", &long];
    let search = ["search.yaml", "--set", "searcher.max_length={batches: 1024}"];
    let alone: Value = place.train(&[&single[..], &["--out", "alone"]].concat());
    let searched: Value = place.train(&[&search[..], &["--out", "alone"]].concat());
    // Its store and its journal have no room then, either.
    let hub = Hub::start(&place);
    place.ok(&[&["experiment", "create", "--detach"], &single[..]].concat());
    place.ok(&[&["experiment", "create", "--detach"], &search[..]].concat());
    let steps = |run: &str| hub.get(&format!("/api/v1/runs/{run}"))["steps"].as_u64();
    until("both train", || steps("1.1") > Some(0) && steps("2.1") > Some(0));
    let filler = runs.join("filler");
    // What one of them leaves behind is no room for the other.
    until("a full disk ends both", || {
        fill(&filler);
        processes_of(&place).len() == 1
    });
    fs::remove_file(&filler).expect("removed");
    for id in ["1", "2"] {
        place.ok(&["experiment", "wait", id]);
        let experiment = hub.get(&format!("/api/v1/experiments/{id}"));
        assert_eq!(experiment["state"], "completed", "{experiment:#}");
        assert!(experiment["restarts"].as_u64() > Some(0), "it met the full disk: {experiment:#}");
    }
    let run: Value = place.ok(&["trial", "describe", "1.1", "--json"]).json();
    assert_eq!(run["summary"]["weights_hash"], alone["weights_hash"], "the same bits");
    let trials: Value = place.ok(&["experiment", "describe", "2", "--json"]).json();
    let decided = |trials: &Value| {
        let mut all: Vec<Value> = trials.as_array().expect("a list").clone();
        all.sort_by_key(|trial| trial["id"].as_u64());
        let of = |trial: &Value| ["id", "state", "length", "metric"].map(|it| trial[it].clone());
        all.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(decided(&trials["trial_list"]), decided(&searched["trials"]));
    is_whole(&hub, &runs);
    hub.stop();
}
