//! Searches: what a preview shows, and what becomes of trials when the search is killed.

use serde_json::Value;

use crate::support::{Workplace, points_csv};

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
reproducibility: {experiment_seed: 7}
";

/// What must not depend on how a search was disturbed.
fn decisions(end: &Value) -> Vec<Value> {
    let trials = end["trials"].as_array().expect("a list");
    let fields = ["id", "state", "hparams", "length", "metric", "reason"];
    trials.iter().map(|trial| fields.iter().map(|field| trial[*field].clone()).collect()).collect()
}

#[test]
fn a_search_trains_its_trials_and_goes_on_after_a_kill() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json", "--out", "one"]).json();
    assert_eq!(end["state"], "completed");
    let trials = end["trials"].as_array().expect("a list");
    assert_eq!(trials.len(), 5);
    assert!(trials.iter().any(|trial| trial["length"] == 16), "{end:#}");
    assert!(trials.iter().any(|trial| trial["length"] == 4), "{end:#}");
    // The best trial is an ordinary run.
    let best = end["best"]["dir"].as_str().expect("a folder");
    place.ok(&["evaluate", best, "--data", "points.csv"]);

    // Killed as soon as the first report is on the disk, then with two trials at a time.
    let mut killed = place.command(&["train", &file, "--out", "two"]).spawn().expect("started");
    let journal = || {
        let search = std::fs::read_dir(place.path().join("two")).ok()?.flatten().next()?.path();
        let text = std::fs::read_to_string(search.join("search.jsonl")).ok()?;
        text.contains('\n').then_some(search)
    };
    let folder = loop {
        let over = killed.try_wait().expect("asked").is_some();
        if let Some(folder) = journal() {
            break folder;
        }
        assert!(!over, "it ended without a report");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    // On a slow machine it may be over by now, which is as good.
    let _ = killed.kill();
    killed.wait().expect("gone");
    let folder = folder.display().to_string();
    let args = ["train", "--resume", &folder, "--slots", "2", "--json"];
    let again: Value = place.ok(&args).json();
    assert_eq!(decisions(&again), decisions(&end));
    // A search that is over stays as it is.
    let over: Value = place.ok(&args).json();
    assert_eq!(decisions(&over), decisions(&end));
}

#[test]
fn a_search_says_what_it_cannot_do() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let check = |sets: &[&str], expected: &str| {
        let mut args = vec!["train", &file];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let ended = place.run(&args);
        assert_eq!(ended.code(), Some(1), "{sets:?}");
        let said = format!("{}{}", ended.out(), ended.err());
        assert!(said.contains(expected), "{said}");
    };
    check(&["data.validation=[]"], "data.validation: a search compares trials");
    check(&["searcher.scheduler=pbt"], "searcher.name: async_halving with the scheduler pbt");
    assert!(!place.path().join("runs").exists(), "nothing is written for a mistake");
    let metric = ["searcher.metric=accurracy", "searcher.max_trials=1", "max_restarts=0"];
    check(&metric, "validation reports no \"accurracy\"");
}
