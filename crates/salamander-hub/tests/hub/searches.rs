//! Searches that somebody else than the hub conducts: their trials, and what they start from.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use salamander_hub::api::Access;
use salamander_hub::gc::CollectRequest;
use salamander_hub::ingest::Ingester;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::{Error, RunId};
use serde_json::json;

use crate::folders::{Serving, write_metrics, write_run};
use crate::place::open;
use crate::upkeep::write_checkpoint;

/// Writes the folder of a search, and holds it as if it were conducted now.
fn conducted(runs: &Path, more: &str) -> (PathBuf, File) {
    let search = runs.join("search");
    fs::create_dir_all(&search).expect("made");
    let file = format!(
        "name: tuning\nentrypoint: net\nsearcher: {{name: random, metric: accuracy, \
         smaller_is_better: false, max_trials: 2, max_length: {{batches: 30}}}}\n\
         hyperparameters: {{learning_rate: {{type: double, minval: 0, maxval: 1}}}}\n{more}"
    );
    let kept = json!({"base": "/", "seed": 1, "slots": 1, "file": file});
    fs::write(search.join("search.json"), kept.to_string()).expect("written");
    let lock = File::create(search.join("run.lock")).expect("made");
    flock(&lock, FlockOperation::LockExclusive).expect("held");
    (search, lock)
}

#[test]
fn a_trial_that_is_over_is_looked_at_no_more_but_for_late_lines() {
    let runs = tempfile::tempdir().expect("a folder");
    let (search, lock) = conducted(runs.path(), "");
    let metric = 0.75f64;
    let report = json!({"trial": 1, "length": 30, "metric": metric, "bits": metric.to_bits()});
    let event = json!({"report": report, "seconds": 1.0});
    fs::write(search.join("search.jsonl"), format!("{event}\n")).expect("written");
    let trial = write_run(&search.join("trials"), "00001", 30);
    let hub = open(runs.path()).expect("opened");
    let mut ingester = Ingester::new(hub.clone());
    let run: RunId = "1.1".parse().expect("a run");
    let mut steps = || {
        ingester.look_at_all().expect("read");
        hub.store().run(run).expect("there").steps
    };
    // Once to read it, and once to see that nothing has changed since.
    assert_eq!((steps(), steps()), (30, 30));
    assert_eq!(hub.store().run(run).expect("there").state, "completed");
    write_metrics(&trial, 40);
    assert_eq!(steps(), 30, "nobody writes there, and nobody looks");
    let log = OpenOptions::new().append(true).open(trial.join("logs/worker-0.log"));
    writeln!(log.expect("open"), "one more").expect("written");
    let lines = || hub.store().run_logs(run, &LogQuery::default()).expect("read").lines.len();
    while lines() < 3 {
        steps();
    }
    // When the search is over all of it is read once more. What another test has just started may hold the lock, too,
    // for a moment.
    drop(lock);
    while steps() != 40 {}
}

#[test]
fn what_a_search_of_somebody_else_starts_from_stays() {
    let runs = tempfile::tempdir().expect("a folder");
    let run = write_run(runs.path(), "a", 10);
    let name = write_checkpoint(&run, 5, Some(0.5));
    let weights = run.join("checkpoints").join(&name).join("model.safetensors");
    let more = format!("start_from: \"{}\"\n", weights.display());
    let (_search, lock) = conducted(runs.path(), &more);
    let serving = Serving::start(runs.path(), Access::Open);
    let (store, client) = (serving.hub.store(), serving.client());
    let id = store.experiment_of("a").expect("known").expect("one");
    let request = CollectRequest {
        dry_run: true,
        save_trial_best: Some(0),
        save_trial_latest: Some(0),
        ..CollectRequest::default()
    };
    let removed = || -> Vec<String> {
        let told = client.collect(id, &request).expect("told").removed;
        let mut names: Vec<String> = told.into_iter().map(|one| one.checkpoint).collect();
        names.sort();
        names
    };
    assert_eq!(removed(), ["step-00000010"]);
    let run = RunId::new(id.0, 1).expect("a run");
    let error = client.delete_checkpoint(run, &name).expect_err("needed");
    assert!(matches!(&error, Error::Conflict(_)), "{error}");
    drop(lock);
    while removed().len() < 2 {
        Ingester::new(serving.hub.clone()).look_at_all().expect("read");
    }
    client.delete_checkpoint(run, &name).expect("deleted");
}
