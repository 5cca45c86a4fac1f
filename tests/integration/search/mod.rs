//! Searches: what a preview shows, and what becomes of trials when the search is killed.
//!
//! # Layout
//! - `killed`: searches that are killed, and what must not have changed; `refused`: what cannot be searched

pub(crate) mod killed;
mod refused;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Workplace, points_csv};
use killed::{
    SearchKills, decisions, is_not_changed_by_kills, journaled, killed_and_resumed, nobody_is_left,
    only_search, summary, trials_are_what_they_are_alone, wait_for,
};

const FILE: &str = "\
entrypoint: points
data: {training: points.csv}
hyperparameters:
  learning_rate: {type: log, base: 10, minval: -3, maxval: -1}
  hidden: {choice: {categories: [4, 8]}}
searcher: {name: adaptive_asha, metric: loss, max_trials: 100, max_time: 64, time_metric: batches}
reproducibility: {experiment_seed: 7}
";

#[test]
fn a_preview_shows_the_plan_and_replays_known_results() {
    let place = Workplace::new();
    let file = place.write("x.yaml", FILE).display().to_string();
    let whole: Value = place.ok(&["preview-search", &file, "--json"]).json();
    let trials = whole["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 100);
    assert_eq!(trials[0]["id"], 1);
    assert_eq!(whole["brackets"][0]["rungs"], serde_json::json!([1, 4, 16, 64]));
    let at = |length: u64| trials.iter().filter(|trial| trial["length"] == length).count();
    assert_eq!((at(1), at(4), at(16), at(64)), (53, 30, 13, 4));
    let rate = trials[0]["hparams"]["learning_rate"].as_f64().expect("a number");
    assert!((0.001..=0.1).contains(&rate), "{rate}");
    let text = place.ok(&["preview-search", &file]).out();
    assert!(text.starts_with("bracket 1: 70 trials, rungs at 1, 4, 16, 64\n"), "{text}");

    let sets = ["searcher.name=async_halving", "searcher.num_rungs=2", "searcher.max_trials=3"];
    let mut args = vec!["preview-search", &file, "--json"];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let curves = place.write("curves.jsonl", "0.5\n[[16, 0.1], [64, 0.2]]\nNaN\n");
    let curves = curves.display().to_string();
    args.extend(["--curves", &curves]);
    let whole: Value = place.ok(&args).json();
    let lengths: Vec<&Value> =
        whole["trials"].as_array().expect("a list").iter().map(|trial| &trial["length"]).collect();
    assert_eq!(lengths, [64, 64, 16]);
    let reason = &whole["trials"][2]["reason"];
    assert_eq!(reason, "stopped at rung 1 of 2 at 16: place 3 of 3, the best 1 go on");
}

#[test]
fn a_preview_refuses_what_the_model_cannot_take() {
    let place = Workplace::new();
    let file = place.write("x.yaml", FILE).display().to_string();
    let check = |set: &str, expected: &str| {
        let ended = place.run(&["preview-search", &file, "--set", set]);
        assert_eq!(ended.code(), Some(1), "{set}");
        assert!(ended.err().contains(expected), "{}", ended.err());
    };
    check("hyperparameters.hiden=3", "unknown field \"hiden\" in hyperparameters");
    check("searcher.name=asha", "searcher.name: \"asha\" is not known here");
    let curves = place.write("c.jsonl", "1\n").display().to_string();
    let ended = place.run(&["preview-search", &file, "--curves", &curves]);
    assert!(
        ended.err().contains("the search makes trial 2, and the file has 1 line"),
        "{}",
        ended.err()
    );
}

/// A search of small runs that halve.
const RUNNING: &str = "\
entrypoint: points
data: {training: points.csv, validation: points.csv}
hyperparameters:
  global_batch_size: 8
  learning_rate: {type: log, base: 10, minval: -3, maxval: -1}
  hidden: {choice: {categories: [4, 8]}}
searcher:
  name: async_halving
  metric: loss
  max_length: {batches: 16}
  num_rungs: 3
  divisor: 2
  max_trials: 5
  max_concurrent_trials: 2
  order: fixed
strategy: local
micro_batches: 2
reproducibility: {experiment_seed: 7}
";

/// The search of [`RUNNING`] with its searcher's lines replaced.
pub(crate) fn running(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(RUNNING.to_string(), |text, (before, after)| {
        assert!(text.contains(before), "{before}");
        text.replace(before, after)
    })
}

#[test]
fn a_search_trains_its_trials_and_goes_on_after_kills() {
    let place = Workplace::new();
    is_not_changed_by_kills(&place, RUNNING, &[SearchKills::quick(3, 1)]);
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json"]).json();
    let trials = end["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 5);
    assert!(trials.iter().any(|trial| trial["length"] == 16), "{end:#}");
    assert!(trials.iter().any(|trial| trial["length"] == 4), "{end:#}");
    // The best trial is an ordinary run.
    let best = end["best"]["dir"].as_str().expect("a folder");
    place.ok(&["evaluate", best, "--data", "points.csv"]);
    // A search that is over stays as it is.
    let folder = end["dir"].as_str().expect("a folder");
    let over: Value = place.ok(&["train", "--resume", folder, "--json"]).json();
    assert_eq!(decisions(&over), decisions(&end));
    // What it has found is told from its folder.
    let told: Value = place.ok(&["search", "table", folder, "--json"]).json();
    assert_eq!(told["trials"], end["trials"]);
    let table = place.ok(&["search", "table", folder]).out();
    assert_eq!(table.lines().count(), 6, "{table}");
    place.ok(&["search", "table", folder, "--out", "trials.parquet"]);
    let rows = place.ok(&["data", "inspect", "trials.parquet"]).out();
    assert!(rows.starts_with("parquet, 5 records") && rows.contains("hparams.hidden"), "{rows}");
    place.ok(&["search", "table", folder, "--out", "trials.sqlite"]);
    for store in [place.path().join("trials.sqlite"), Path::new(folder).join("search.sqlite")] {
        let file = std::fs::read(&store).expect("a store");
        assert!(file.starts_with(b"SQLite format 3\0"), "{}", store.display());
    }
    let shares: Value = place.ok(&["search", "importance", folder, "--json"]).json();
    let shares = shares["importance"].as_object().expect("shares");
    assert_eq!(shares.keys().collect::<Vec<_>>(), ["learning_rate", "hidden"]);
}

/// Bytes of the curves of a search's trials: they grow while it trains.
fn curves(search: &Path) -> u64 {
    let trials = std::fs::read_dir(search.join("trials")).into_iter().flatten().flatten();
    let curve = |path: PathBuf| std::fs::metadata(path.join("metrics.jsonl"));
    trials.filter_map(|trial| curve(trial.path()).ok()).map(|curve| curve.len()).sum()
}

/// Starts a command that trains a search, waits until its curves are longer than before, and gives its folder.
fn begun(place: &Workplace, args: &[&str], before: u64) -> (Child, PathBuf) {
    let mut command = place.command(args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let is_longer = |search: &PathBuf| curves(search) > before;
    let folder = wait_for(&mut child, || only_search(place, "runs").filter(is_longer));
    (child, folder.expect("it trains for longer than this test"))
}

#[test]
fn a_search_is_seen_and_stopped_as_runs_are() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = running(&[("max_length: {batches: 16}", "max_length: {batches: 100000000}")]);
    let file = place.write("long.yaml", &text).display().to_string();
    let (mut training, folder) = begun(&place, &["train", &file], 0);
    let shown = folder.display().to_string();
    let listed = || -> Value { place.ok(&["runs", "list", "--json"]).json() };
    let first = listed()[0].clone();
    assert_eq!((&first["state"], &first["model"]), (&"running".into(), &"points".into()));
    assert!(first["search"]["trials"].as_u64().is_some_and(|trials| trials > 0), "{first}");
    for args in [
        &["evaluate", "latest"][..],
        &["scale", "latest", "--workers", "2"],
        &["ledger", "latest"],
        &["logs", "latest"],
    ] {
        let refused = place.run(args).err();
        assert!(refused.contains("is a search: `salamander search table "), "{args:?}: {refused}");
    }
    let asked = place.ok(&["stop", "latest"]).out();
    assert!(asked.contains("train --resume"), "{asked}");
    assert_eq!(training.wait().expect("it ends").code(), Some(130));
    nobody_is_left(&folder);
    assert_eq!(listed()[0]["state"], "interrupted");
    let status = place.ok(&["status", &shown]).out();
    assert!(status.contains("state       interrupted"), "{status}");
    assert!(status.contains("table       salamander search table "), "{status}");
    let again = place.run(&["stop", &shown]).err();
    assert!(again.contains("does not run now"), "{again}");

    // The wish of before is not that of now.
    let (mut training, _) = begun(&place, &["train", "--resume", "latest"], curves(&folder));
    place.ok(&["stop", "latest"]);
    assert_eq!(training.wait().expect("it ends").code(), Some(130));
    nobody_is_left(&folder);

    let file = place.write("short.yaml", RUNNING).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json", "--out", "short"]).json();
    let of_short = |command: &str| place.run(&[command, "latest", "--runs", "short"]);
    let status = of_short("status").out();
    assert!(status.contains("state       completed") && status.contains("trials  "), "{status}");
    let best = Path::new(end["best"]["dir"].as_str().expect("a best trial"));
    let best = format!("/trials/{}", best.file_name().expect("a name").display());
    assert!(status.contains(&best), "{best} in {status}");
    let refused = of_short("evaluate").err();
    assert!(refused.contains("its best trial is the run ") && refused.contains(&best), "{refused}");
}

#[test]
fn in_order_of_arrival_a_trial_has_the_curve_that_it_has_alone() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = running(&[("order: fixed", "order: arrival"), ("max_concurrent_trials: 2", "")]);
    let file = place.write("x.yaml", &text).display().to_string();
    let end = killed_and_resumed(&place, &file, SearchKills::quick(2, 5));
    trials_are_what_they_are_alone(&place, &end);
}

#[test]
fn copies_of_a_population_equal_their_source_bit_for_bit() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    // What is searched for changes nothing, so that a copy goes on exactly as its source does.
    let text = "\
entrypoint: points
data: {training: points.csv, validation: points.csv}
hyperparameters:
  global_batch_size: 8
  hidden: 4
  learning_rate: 0.05
  hidden_multiple_of: {choice: [1, 2, 4]}
searcher: {name: pbt, metric: loss, max_length: {batches: 12}, interval: 4, max_trials: 4, order: fixed}
reproducibility: {experiment_seed: 3}
";
    let file = place.write("x.yaml", text).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json", "--slots", "2", "--out", "one"]).json();
    let mut copies = 0;
    for trial in end["trials"].as_array().expect("a list") {
        let folder = Path::new(trial["dir"].as_str().expect("a folder"));
        let copied = std::fs::read_to_string(folder.join("copied")).unwrap_or_default();
        let Some(last) = copied.lines().last() else { continue };
        let (from, until) = last.split_once(' ').expect("whose, and until when");
        // One that was copied at the last meeting but one ends as its source does, which went on as itself.
        let source = &end["trials"][from.parse::<usize>().expect("a number") - 1]["dir"];
        let source = source.as_str().expect("a folder");
        if until == "12" {
            let hash = |folder: &str| summary(folder)["weights_hash"].clone();
            assert_eq!(hash(&folder.display().to_string()), hash(source), "{copied}");
            copies += 1;
        }
    }
    assert!(copies > 0, "{end:#}");
    let again = killed_and_resumed(&place, &file, SearchKills::quick(2, 9));
    assert_eq!(decisions(&again), decisions(&end));
}

#[test]
fn elastic_trials_widen_and_come_to_the_same_bits() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = running(&[("strategy: local", "strategy: allreduce")]);
    let file = place.write("x.yaml", &text).display().to_string();
    let fixed: Value = place.ok(&["train", &file, "--json", "--out", "fixed"]).json();
    let sets =
        ["--set", "searcher.elastic_trials=true", "--set", "searcher.max_concurrent_trials=1"];
    let mut args = vec!["train", &file, "--json", "--out", "elastic", "--slots", "2"];
    args.extend(sets);
    let ended = place.ok(&args);
    assert!(ended.err().contains("trial 1: 2 of 2 slots"), "{}", ended.err());
    let elastic: Value = ended.json();
    let mut args = vec!["train", &file, "--json", "--out", "narrow"];
    args.extend(&sets[2..]);
    let narrow: Value = place.ok(&args).json();
    assert_eq!(decisions(&elastic), decisions(&narrow));
    assert_eq!(
        elastic["trials"].as_array().map(Vec::len),
        fixed["trials"].as_array().map(Vec::len)
    );
}

#[test]
fn a_model_searches_its_own_ranges_and_refuses_what_does_not_fit() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = "\
entrypoint: points
data: {training: points.csv, validation: points.csv}
hyperparameters: {global_batch_size: 8, learning_rate: 0.1}
searcher: {metric: loss, max_length: {batches: 8}}
reproducibility: {experiment_seed: 7}
";
    let file = place.write("x.yaml", text).display().to_string();
    let set = ["--set", "hyperparameters.hidden_multiple_of=3"];
    let mut args = vec!["train", &file, "--search", "4", "--json"];
    args.extend(set);
    let end: Value = place.ok(&args).json();
    let trials = end["trials"].as_array().expect("a list");
    let (invalid, valid): (Vec<&Value>, Vec<&Value>) =
        trials.iter().partition(|trial| trial["state"] == "invalid");
    assert_eq!(valid.len(), 4, "{end:#}");
    assert!(!invalid.is_empty(), "{end:#}");
    for trial in &valid {
        assert_eq!(trial["hparams"]["hidden"].as_u64().map(|hidden| hidden % 3), Some(0));
    }
    let rates: std::collections::BTreeSet<String> =
        valid.iter().map(|trial| trial["hparams"]["learning_rate"].to_string()).collect();
    assert_eq!(rates.len(), 4, "each has its own");
    let plan: Value = place.ok(&["preview-search", &file, "--search", "4", "--json"]).json();
    assert_eq!(plan["trials"][0]["hparams"]["hidden"], trials[0]["hparams"]["hidden"]);
    // One that refuses everything is given up.
    let ended = place.run(&[
        "train",
        &file,
        "--search",
        "2",
        "--set",
        "hyperparameters.hidden_multiple_of=99",
    ]);
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.err().contains("the model refuses the hyperparameters of 100 of"),
        "{}",
        ended.err()
    );
    let ended = place.run(&[
        "train",
        &file,
        "--search",
        "2",
        "--set",
        "hyperparameters.hidden=4",
        "--set",
        "hyperparameters.learning_rate=1",
    ]);
    assert!(ended.err().contains("--search 2: there is nothing to search for"), "{}", ended.err());
}

#[test]
fn a_search_pauses_on_ctrl_c_and_is_alone_in_its_folder() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json", "--out", "one"]).json();
    let mut search = place.command(&["train", &file, "--out", "two"]).spawn().expect("started");
    let begun = || only_search(&place, "two").filter(|folder| journaled(folder) > 0);
    let folder = wait_for(&mut search, begun).expect("it hears something");
    let name = folder.display().to_string();
    if search.try_wait().expect("asked").is_none() {
        let second = place.run(&["train", "--resume", &name]);
        let is_over = search.try_wait().expect("asked").is_some();
        assert!(
            is_over || second.err().contains("another process is training in this folder"),
            "{}",
            second.err()
        );
        let pid = rustix::process::Pid::from_raw(search.id() as i32).expect("a process");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
    let ended = search.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() || ended.status.code() == Some(130), "{said}");
    nobody_is_left(&folder);
    let again: Value = place.ok(&["train", "--resume", &name, "--json"]).json();
    assert_eq!(decisions(&again), decisions(&end));
}

#[test]
fn a_search_ends_at_its_target_or_when_its_time_is_over() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let ended = |set: &str| -> Value { place.ok(&["train", &file, "--json", "--set", set]).json() };
    let end = ended("searcher.target=100");
    assert_eq!(end["state"], "completed");
    assert_eq!(end["trials"][0]["reason"], "trial 1 has reached the target 100");
    let end = ended("searcher.max_seconds=0.001");
    assert_eq!(end["trials"][0]["reason"], "the time for the search is over");
}

#[test]
fn a_trial_that_diverges_has_failed_at_once_and_the_others_go_on() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = running(&[
        ("name: async_halving", "name: grid\n  scheduler: async_halving"),
        ("{type: log, base: 10, minval: -3, maxval: -1}", "{choice: [0.05, 1.0e38]}"),
    ]);
    let file = place.write("x.yaml", &text).display().to_string();
    let ended = place.ok(&["train", &file, "--json"]);
    let end = ended.json();
    let trials = end["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 4);
    for trial in trials {
        let diverges = trial["hparams"]["learning_rate"].as_f64() > Some(1.0);
        assert_eq!(trial["state"] == "failed", diverges, "{trial}");
    }
    assert!(ended.err().contains("lower the learning rate"), "{}", ended.err());
    assert!(!ended.err().contains("started again"), "{}", ended.err());
}

#[test]
fn a_trial_that_fails_is_started_again_as_often_as_it_may() {
    let place = Workplace::new();
    // Beyond what is looked at before a search begins.
    place.write("points.csv", &format!("{}1,2,left\n", points_csv(40)));
    let text = running(&[
        ("max_trials: 5", "max_trials: 2"),
        ("strategy: local", "max_restarts: 2\nstrategy: local"),
    ]);
    let file = place.write("x.yaml", &text).display().to_string();
    let ended = place.run(&["train", &file]);
    assert_eq!(ended.code(), Some(1));
    let said = format!("{}{}", ended.out(), ended.err());
    assert_eq!(said.matches("; started again").count(), 4, "{said}");
    assert_eq!(said.matches("; given up").count(), 2, "{said}");
    assert!(said.contains("every trial failed"), "{said}");
}
