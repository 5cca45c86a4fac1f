//! A hub with real trials: what goes and what starts from what, a trial that is killed, a run that tells of itself.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hub::{Hub, place, processes_of, search};
use crate::support::Workplace;

const SHORT: &str = "searcher.max_length={batches: 40}";
const LONG: &str = "searcher.max_length={batches: 100000000}";

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn checkpoints(run: &Path) -> Vec<String> {
    let mut names = names(&run.join("checkpoints"));
    names.retain(|name| name.starts_with("step-"));
    names
}

/// The loss of a run's first step.
fn first_loss(run: &Path) -> f64 {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("read");
    let line: Value = serde_json::from_str(metrics.lines().next().expect("a line")).expect("JSON");
    line["loss"].as_f64().expect("a loss")
}

#[test]
fn checkpoints_go_at_the_end_and_another_experiment_starts_from_one_that_stays() {
    let place = place();
    let often = [
        "--set",
        "min_checkpoint_period={batches: 5}",
        "--set",
        "min_validation_period={batches: 10}",
    ];
    let create = ["experiment", "create", "single.yaml", "--json", "--set", SHORT];
    let create = [&create[..], &often].concat();
    let keep = "checkpoint_storage={save_trial_best: 2, save_trial_latest: 3}";
    let end: Value = place.ok(&[&create[..], &["--set", keep]].concat()).json();
    let first = place.path().join("runs").join(end["dir"].as_str().expect("a folder"));
    let all: Value = place.ok(&["checkpoint", "list", "1.1", "--json"]).json();
    let there = |all: &Value| {
        let all = all.as_array().expect("a list").iter();
        all.filter(|one| one["state"] == "completed").count()
    };
    assert_eq!(there(&all), checkpoints(&first).len(), "{all:#}");
    assert!((3..=5).contains(&there(&all)), "the best and the latest: {all:#}");
    place.ok(&["model", "create", "sides"]);
    let oldest = checkpoints(&first)[0].clone();
    place.ok(&["model", "register", "sides", "1.1", "--checkpoint", &oldest]);
    let gc = ["experiment", "gc", "1", "--save-trial-best", "0", "--save-trial-latest", "1"];
    let told: Value = place.ok(&[&gc[..], &["--dry-run", "--json"]].concat()).json();
    assert_eq!(told["kept"], 2, "{told:#}");
    assert_eq!(checkpoints(&first).len(), there(&all), "a dry run removes nothing");
    place.ok(&gc);
    assert_eq!(checkpoints(&first).len(), 2);
    assert_eq!(checkpoints(&first)[0], oldest, "it is a version of a model");
    assert!(place.ok(&["checkpoint", "gc"]).out().contains("0 removed"));
    // What was learned comes along, and nothing else.
    let source = "searcher.source_trial_id=\"1.1\"";
    let warm: Value = place.ok(&[&create[..], &["--set", source]].concat()).json();
    let second = place.path().join("runs").join(warm["dir"].as_str().expect("a folder"));
    assert!(first_loss(&second) < first_loss(&first), "it begins where the other has ended");
    let described: Value = place.ok(&["experiment", "describe", "2", "--json"]).json();
    assert_eq!(described["lineage"]["source"]["run"], "1.1", "{described:#}");
    assert!(place.ok(&["experiment", "describe", "1"]).out().contains("used by   experiment 2"));
    // The same without a hub, by the run's folder: the same bits.
    let id = first.file_name().expect("a name").to_string_lossy().into_owned();
    let source = format!("searcher.source_trial_id={id}");
    let plain = ["single.yaml", "--set", SHORT, "--set", &source];
    let plain = place.train(&[&plain[..], &often].concat());
    let summary = fs::read_to_string(second.join("summary.json")).expect("read");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(plain["weights_hash"], summary["weights_hash"]);
    let by_name = format!("searcher.source_checkpoint_uuid={id}/{oldest}");
    place.train(&["single.yaml", "--set", SHORT, "--set", &by_name]);
    let wrong = place.run(&["train", "single.yaml", "--set", "searcher.source_trial_id=nobody"]);
    assert!(wrong.err().contains("searcher.source_trial_id"), "{}", wrong.err());
}

#[test]
fn a_trial_that_is_killed_ends_and_its_search_goes_on() {
    let place = place();
    // Its trials would go on for hours.
    let long = search().replace("batches: 64", "batches: 6400000");
    place.write("long.yaml", &long.replace("order: fixed", "order: arrival"));
    let hub = Hub::start(&place);
    place.ok(&["experiment", "create", "long.yaml", "--detach"]);
    let state = |trial: &str| hub.get(&format!("/api/v1/runs/{trial}"))["state"].clone();
    while state("1.1") != "running" {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(place.ok(&["trial", "kill", "1.1"]).out().trim(), "trial 1.1: canceled");
    let wrong = place.run(&["trial", "kill", "1.1"]);
    assert!(wrong.err().contains("trial 1.1 is over"), "{}", wrong.err());
    // Another one takes its place.
    while state("1.3") != "running" {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(state("1.1"), "canceled");
    place.ok(&["experiment", "kill", "1"]);
    while hub.get("/api/v1/experiments/1")["state"] != "canceled" {
        std::thread::sleep(Duration::from_millis(50));
    }
    hub.stop();
    while !processes_of(&place).is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_experiment_that_is_killed_or_deleted_leaves_no_process() {
    let place = place();
    let hub = Hub::start(&place);
    let processes = || processes_of(&place).len();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < Duration::from_secs(120), "{what}: {}", processes());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let alone = processes();
    let ring = ["--set", "workers=2", "--set", "strategy=allreduce", "--set", LONG];
    let create = ["experiment", "create", "single.yaml", "--detach"];
    for id in ["1", "2"] {
        place.ok(&[&create[..], &ring].concat());
        until("its supervisor, a master and two workers", &|| processes() >= alone + 4);
        place.ok(&["experiment", "kill", id]);
        until("nothing of it is left", &|| processes() == alone);
        let ended = place.run(&["experiment", "wait", id]);
        assert_eq!(ended.code(), Some(1));
        let reason = format!("experiment {id} is canceled");
        assert!(ended.err().contains(&reason), "{}", ended.err());
    }
    let folder = hub.get("/api/v1/experiments/2")["folder"].as_str().expect("a folder").to_string();
    place.ok(&["experiment", "delete", "2"]);
    assert!(!place.path().join("runs").join(folder).exists());
    hub.stop();
}

#[test]
fn a_run_of_a_hub_that_is_stopped_by_hand_stays_so_until_it_is_activated() {
    let place = place();
    let hub = Hub::start(&place);
    place.ok(&["experiment", "create", "single.yaml", "--detach", "--set", LONG]);
    let experiment = || hub.get("/api/v1/experiments/1");
    let steps = || hub.get("/api/v1/runs/1.1")["steps"].as_u64().unwrap_or(0);
    let until = |state: &str| {
        while experiment()["state"] != state {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    while steps() == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let folder = experiment()["folder"].as_str().expect("a folder").to_string();
    place.ok(&["stop", &folder]);
    until("paused");
    assert_eq!(experiment()["restarts"], 0, "nobody has killed it");
    let reason = experiment()["reason"].as_str().unwrap_or_default().to_string();
    assert!(reason.contains("stopped by hand"), "{reason}");
    let stopped = steps();
    place.ok(&["experiment", "activate", "1"]);
    while steps() <= stopped {
        std::thread::sleep(Duration::from_millis(20));
    }
    place.ok(&["experiment", "kill", "1"]);
    until("canceled");
    hub.stop();
}

#[test]
fn a_run_tells_a_hub_of_itself_also_one_that_was_away() {
    let place = place();
    let mut hub = Hub::start(&place);
    let address = hub.address().to_string();
    let url = format!("http://{address}");
    // It would go on for hours, so that it is seen.
    let train = [
        "train",
        "single.yaml",
        "--id",
        "told",
        "--out",
        "elsewhere",
        "--hub",
        &url,
        "--set",
        LONG,
    ];
    let mut process = place.command(&train).stdout(Stdio::null()).spawn().expect("started");
    let run = |hub: &Hub| hub.get("/api/v1/runs")["items"][0].clone();
    let steps = |hub: &Hub| run(hub)["steps"].as_u64().unwrap_or(0);
    while run(&hub)["state"] != "running" || steps(&hub) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Training does not wait for a hub that is gone.
    hub.kill();
    let here = place.path().join("elsewhere/told");
    let length = || fs::metadata(here.join("metrics.jsonl")).expect("there").len();
    let before = length();
    while length() == before {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut hub = Hub::start_on(&place, &address);
    let known = steps(&hub);
    while steps(&hub) <= known {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(process.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("asked");
    process.wait().expect("ended");
    // A run that ended before its hub was back would leave the rest to this.
    place.ok(&["track", "told", "--runs", "elsewhere"]);
    let there = place.path().join("runs/told");
    for file in ["metrics.jsonl", "experiment.yaml", "summary.json"] {
        let read = |folder: &Path| fs::read_to_string(folder.join(file)).expect("read");
        assert!(read(&here) == read(&there), "{file}");
    }
    assert_eq!(names(&here.join("logs")), names(&there.join("logs")));
    while run(&hub)["state"] != "interrupted" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let summary = fs::read_to_string(here.join("summary.json")).expect("read");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    // Each step once: not more, and not fewer as soon as all is read.
    let points = |hub: &Hub| {
        let metrics = hub.get("/api/v1/runs/1.1/metrics");
        let loss = metrics.as_array().and_then(|all| all.iter().find(|one| one["name"] == "loss"));
        loss.map_or(0, |loss| loss["points"].as_u64().unwrap_or(0))
    };
    let trained = summary["steps"].as_u64().expect("a number");
    while points(&hub) < trained {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(points(&hub), trained);
    // A hub that sees the folder is told nothing twice.
    place.train(&["single.yaml", "--set", SHORT, "--id", "seen", "--hub", &url]);
    while hub.get("/api/v1/experiments")["total"] != 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(names(&place.path().join("runs")).len(), 3, ".hub, told, seen");
    // A search is told with its trials.
    let search = [
        "train",
        "search.yaml",
        "--id",
        "wide",
        "--out",
        "elsewhere",
        "--hub",
        &url,
        "--slots",
        "2",
    ];
    place.ok(&search);
    while hub.get("/api/v1/experiments/3")["state"] != "completed" {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(hub.get("/api/v1/experiments/3")["trials"], json!(5));
    let summary = |place: &Workplace, folder: &str| {
        fs::read_to_string(place.path().join(folder).join("trials/00001/metrics.jsonl"))
            .expect("read")
    };
    assert_eq!(summary(&place, "elsewhere/wide"), summary(&place, "runs/wide"));
    hub.kill();
}
