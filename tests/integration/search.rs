//! Searches: what a preview shows.

use serde_json::Value;

use crate::support::Workplace;

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
