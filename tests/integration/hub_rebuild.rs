//! A hub whose machine is lost: what it showed comes back from the object store that its runs were kept in.

use std::fs;

use serde_json::Value;

use crate::hub::place;
use crate::stored::{Bucket, STORE};
use crate::support::Workplace;

/// All that a hub shows of runs, but for when it first saw them.
fn shown(place: &Workplace) -> Vec<Value> {
    let ask = |args: &[&str]| -> Value { place.ok(args).json() };
    let mut list = ask(&["experiment", "list", "--json", "--sort", "id"]);
    let mut all = Vec::new();
    for experiment in list.as_array_mut().expect("a list") {
        for field in ["created", "change"] {
            experiment.as_object_mut().expect("an object").remove(field);
        }
        let id = experiment["id"].to_string();
        let trials = ask(&["experiment", "describe", &id, "--json"])["trial_list"].clone();
        for trial in trials.as_array().expect("a list") {
            let run = trial["run"].as_str().expect("a run");
            let mut about = ask(&["trial", "describe", run, "--json"]);
            about.as_object_mut().expect("an object").remove("change");
            all.push(about);
            // The store may have others besides the newest: it forgets none, and is not told of each.
            let checkpoints = ask(&["checkpoint", "list", run, "--json"]);
            let newest = checkpoints.as_array().and_then(|all| all.last()).cloned();
            all.extend(newest.map(|newest| newest["weights_hash"].clone()));
        }
        let lineage = ask(&["experiment", "describe", &id, "--json"])["lineage"].clone();
        all.extend([experiment.clone(), trials, lineage]);
    }
    all
}

#[test]
fn a_hub_that_is_lost_with_its_folders_comes_back_from_an_object_store() {
    let Some(bucket) = Bucket::start("a_hub_that_is_lost_comes_back") else { return };
    let place = place();
    let short = "searcher.max_length={batches: 40}";
    let keep = format!("checkpoint_storage={{store: \"{STORE}\", save_trial_latest: 9}}");
    for args in [
        &["train", "single.yaml", "--id", "alone", "--set", short][..],
        &["train", "single.yaml", "--id", "ring", "--workers", "2", "--set", short],
        &["train", "search.yaml", "--id", "wide", "--slots", "2"],
        &["train", "search.yaml", "--id", "other", "--set", "searcher.max_trials=2"],
    ] {
        let ended = bucket.run(&place, &[args, &["--set", &keep]].concat());
        assert!(ended.code() == Some(0), "{args:?}: {}{}", ended.out(), ended.err());
    }
    place.ok(&["hub", "rebuild"]);
    let before = shown(&place);
    assert_eq!(before.iter().filter(|one| one["origin"] == "folder").count(), 4);
    let data = |one: &Value| one["data"]["training"]["fingerprint"].as_str().map(str::to_string);
    let prints: Vec<String> = before.iter().filter_map(data).collect();
    assert!(prints.len() == 4 && prints.iter().all(|print| *print == prints[0]), "{prints:?}");
    fs::remove_dir_all(place.path().join("runs")).expect("lost");
    let ended = bucket.run(&place, &["hub", "rebuild", "--from", STORE]);
    assert!(ended.code() == Some(0), "{}{}", ended.out(), ended.err());
    assert!(ended.out().contains("4 runs brought from"), "{}", ended.out());
    let after = shown(&place);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    // Doing it again brings nothing, and a wrong place is told.
    let again = bucket.run(&place, &["hub", "rebuild", "--from", STORE]);
    assert!(again.out().contains("0 runs brought from"), "{}", again.out());
    let wrong = bucket.run(&place, &["hub", "rebuild", "--from", "s3:/nowhere"]);
    assert!(wrong.code() == Some(1) && wrong.err().starts_with("error: "), "{}", wrong.err());
}
