//! What cannot be searched, or not now: each is told, and nothing is lost.

use serde_json::Value;

use super::RUNNING;
use super::killed::{decisions, nobody_is_left, only_search, wait_for};
use crate::faults::SmallDisk;
use crate::support::{Workplace, may_change_host, points_csv, skip};

#[test]
fn a_full_disk_ends_a_search_and_loses_nothing() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let small = place.path().join("small");
    std::fs::create_dir(&small).expect("a folder");
    if !may_change_host("a_full_disk_ends_a_search") {
        return;
    }
    let Some(_disk) = SmallDisk::mount(&small) else {
        return skip("a_full_disk_ends_a_search", "tmpfs cannot be mounted here (needs root)");
    };
    // Room for the beginning of the search only.
    let disk = rustix::fs::statvfs(&small).expect("known");
    let free = (disk.f_bavail * disk.f_frsize) as usize;
    std::fs::write(small.join("filler"), vec![1; free - 180_000]).expect("written");
    let ended = place.run(&["train", &file, "--out", "small/runs"]);
    assert_eq!(ended.code(), Some(74), "{}", ended.err());
    assert!(ended.err().contains("No space left on device"), "{}", ended.err());
    std::fs::remove_file(small.join("filler")).expect("removed");
    let again = match only_search(&place, "small/runs") {
        Some(folder) => {
            let folder = folder.display().to_string();
            place.ok(&["train", "--resume", &folder, "--json"]).json()
        }
        None => place.ok(&["train", &file, "--out", "small/runs", "--json"]).json(),
    };
    let end: Value = place.ok(&["train", &file, "--json", "--out", "one"]).json();
    assert_eq!(decisions(&again), decisions(&end));
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
        assert!(!place.path().join("runs").exists(), "nothing is written for a mistake");
    };
    check(&["data.validation=[]"], "data.validation: a search compares trials");
    check(&["searcher.scheduler=pbt"], "searcher.name: async_halving with the scheduler pbt");
    check(&["searcher.metric=accurracy"], "validation reports no \"accurracy\"");
    check(&["searcher.name=asha"], "searcher.name: \"asha\" is not known here");
    check(&["searcher.scheduler=hyperband"], "searcher.scheduler: \"hyperband\" is not known here");
    check(&["hyperparameters.hidden={choice: []}"], "hyperparameters.hidden");
    check(&["hyperparameters.learning_rate={loguniform: [0, 1]}"], "hyperparameters.learning_rate");
    check(&["data.training=nowhere.csv"], "nowhere.csv");
    check(
        &["hyperparameters.learning_rate={uniform: [-1, 1]}"],
        "-1 to 1 is not within what the model takes, 0 to any",
    );
    check(
        &["hyperparameters.hidden={uniform: [4, 8]}"],
        "it may be 4.0, and the model takes usize",
    );
    check(
        &["searcher.elastic_trials=true", "strategy=ps"],
        "searcher.elastic_trials: workers of strategy hybrid or ps are not widened",
    );
    let ended = place.run(&["search", "table", "."]);
    assert!(ended.err().contains("no search, for it has no search.json"), "{}", ended.err());
}

#[test]
fn a_search_that_goes_on_is_not_conducted_twice() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    // It would go on for hours.
    let long = RUNNING.replace("max_length: {batches: 16}", "max_length: {batches: 100000000}");
    let file = place.write("x.yaml", &long).display().to_string();
    let mut first = place.command(&["train", &file, "--id", "mine"]).spawn().expect("started");
    let lock = place.path().join("runs/mine/run.lock");
    let is_held = || std::fs::read_to_string(&lock).is_ok_and(|text| !text.trim().is_empty());
    let held = wait_for(&mut first, || is_held().then_some(()));
    assert!(held.is_some(), "it ended at once");
    for args in [&["train", "--resume", "mine"][..], &["train", &file, "--id", "mine"]] {
        let ended = place.run(args);
        assert_eq!(ended.code(), Some(1));
        let said = "another process is training in this folder";
        assert!(ended.err().contains(said), "{}", ended.err());
    }
    first.kill().expect("killed");
    first.wait().expect("gone");
    nobody_is_left(&place.path().join("runs/mine"));
}

#[test]
fn two_searches_do_not_share_a_folder() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", RUNNING).display().to_string();
    let args = ["train", &file, "--id", "mine", "--json"];
    let end: Value = place.ok(&args).json();
    // Who has its id gets that one, and is told where his own differs; nothing of it is lost.
    let again = |args: &[&str], expected: &str| {
        let ended = place.ok(args);
        assert!(ended.err().contains(expected), "{}", ended.err());
        assert_eq!(decisions(&ended.json()), decisions(&end));
    };
    again(
        &[&args[..], &["--set", "searcher.max_trials=6"]].concat(),
        "runs/mine has this id and is gone on with, as it was begun: searcher.max_trials is 5 there \
         and 6 here",
    );
    let one = place.write("one.yaml", "entrypoint: points\ndata: {training: points.csv}\n");
    let one = one.display().to_string();
    again(&["train", &one, "--id", "mine", "--json"], "the file is that of one trial");
    // The same one goes on, here with nothing to do, whatever its slots are.
    let same = place.ok(&[&args[..], &["--slots", "3"]].concat());
    assert_eq!(decisions(&same.json()), decisions(&end));
    assert!(!same.err().contains("has this id"), "{}", same.err());
}
