//! Training on parameter servers without waiting: each record counts once whoever dies, and the model learns as well.

use std::time::Duration;

use rustix::process::Signal;
use salamander_train::checkpoint::{CheckpointStore, Which};
use serde_json::Value;
use tests::chaos::{self, Fire};
use tests::factors::ratings_csv;

use crate::elastic::{fire, under_fire};
use crate::interrupted::{signal, start};
use crate::support::{Workplace, points_csv};
use crate::tables::scaled;

#[test]
fn every_record_counts_once_on_servers_without_waiting() {
    let story = under_fire(&Fire { servers: 2, asynchronous: true, ..fire(2, 3, 4) });
    assert_eq!(story.faults.len(), 4, "{:?}", story.faults);
}

fn validation(summary: &Value, name: &str) -> f64 {
    summary["metrics"]["validation"][name].as_f64().expect("a number")
}

pub(crate) fn clean(summary: &Value, epochs: usize, records: u64) {
    let lines = summary["ledger"].as_array().expect("a ledger");
    assert_eq!(lines.len(), epochs, "{summary}");
    for line in lines {
        let clean = line["applied"] == records && line["missing"] == 0 && line["duplicated"] == 0;
        assert!(clean && line["intact"] == true, "{line}");
    }
}

#[test]
fn dense_parameters_on_servers_reach_the_local_run() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(803));
    let text = "entrypoint: points\n\
                data: {training: points.csv, validation: points.csv, shuffle: full}\n\
                micro_batches: 2\n\
                hyperparameters: {global_batch_size: 37, learning_rate: 0.01}\n\
                searcher: {metric: loss, max_length: {epochs: 8}}\n\
                reproducibility: {experiment_seed: 5}\n";
    let file = place.write("points.yaml", text).display().to_string();
    let local = place.train(&[&file]);
    for extra in [["--set", "ps.mode=async"], ["--set", "ps={mode: bounded, staleness: 1}"]] {
        let ps = ["--strategy", "ps", "--ps", "2", "--workers", "2"];
        let summary = place.train(&[&[file.as_str()], extra.as_slice(), ps.as_slice()].concat());
        clean(&summary, 8, 803);
        assert_eq!(summary["steps"], local["steps"]);
        let (found, expected) = (validation(&summary, "loss"), validation(&local, "loss"));
        assert!(found < expected + 0.02, "{extra:?}: {found} and {expected}");
        let run = summary["dir"].as_str().expect("a folder");
        let json = place.ok(&["evaluate", run, "--checkpoint", "latest", "--json"]).json();
        let again = json["metrics"]["loss"].as_f64().expect("a loss");
        assert!(
            (again - found).abs() < 1e-5,
            "the checkpoint has another loss: {again} and {found}"
        );
    }
}

/// What other strategies do is done here too: a validation before training, others within epochs (22 steps each), and a
/// callback of the model that ends training.
#[test]
fn validations_within_epochs_and_callbacks_work_without_waiting() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(803));
    let text = "entrypoint: points\n\
                data: {training: points.csv, validation: points.csv, shuffle: full}\n\
                micro_batches: 2\n\
                hyperparameters: {global_batch_size: 37, learning_rate: 0.01, stop_after: 30}\n\
                perform_initial_validation: true\n\
                min_validation_period: {batches: 9}\n\
                searcher: {metric: loss, max_length: {epochs: 8}}\n";
    let file = place.write("points.yaml", text).display().to_string();
    let summary = place.train(&[&file, "--strategy", "ps", "--ps", "2", "--workers", "2"]);
    assert_eq!(summary["state"], "completed");
    let steps = summary["steps"].as_u64().expect("a number");
    assert!((30..44).contains(&steps), "the callback ended it: {steps}");
    let run = std::path::Path::new(summary["dir"].as_str().expect("a folder"));
    let log = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    let epochs: Vec<Value> = lines.filter(|line| line["kind"] == "epoch").collect();
    let within = |line: &&Value| line["complete"] == false && !line["validation"].is_null();
    assert!(epochs.iter().filter(within).count() >= 2, "{epochs:?}");
    assert_eq!(epochs.last().map(|line| &line["steps"]), Some(&steps.into()));
}

#[test]
fn tables_and_parameters_on_servers_reach_the_local_run() {
    let place = Workplace::new();
    place.write("ratings.csv", &ratings_csv(803));
    let text = "entrypoint: factors\n\
                data: {training: ratings.csv, validation: ratings.csv, shuffle: full}\n\
                micro_batches: 2\n\
                hyperparameters: {global_batch_size: 37}\n\
                searcher: {metric: auc, smaller_is_better: false, max_length: {epochs: 6}}\n\
                reproducibility: {experiment_seed: 5}\n";
    let file = place.write("factors.yaml", text).display().to_string();
    let local = place.train(&[&file]);
    let summary = place.train(&[&file, "--strategy", "ps", "--ps", "2", "--workers", "3"]);
    clean(&summary, 6, 803);
    let (found, expected) = (validation(&summary, "auc"), validation(&local, "auc"));
    assert!(found > expected - 0.02, "{found} and {expected}");
    let run = summary["dir"].as_str().expect("a folder");
    place.ok(&["predict", run, "--data", "ratings.csv", "--out", "predicted.csv"]);
    place.ok(&["export", run, "--out", "exported"]);
    assert!(place.path().join("exported/tables/user-00000.safetensors").exists());
}

#[test]
fn rates_by_age_and_steps_without_pulls_learn_as_well() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(803));
    let text = "entrypoint: points\n\
                data: {training: points.csv, validation: points.csv, shuffle: full}\n\
                hyperparameters: {global_batch_size: 37, learning_rate: 0.01}\n\
                searcher: {metric: loss, max_length: {epochs: 8}}\n\
                reproducibility: {experiment_seed: 5}\n";
    let file = place.write("points.yaml", text).display().to_string();
    let train = |ps: &str| {
        let ps = format!("ps={{{ps}}}");
        let extra = ["--strategy", "ps", "--ps", "2", "--workers", "1", "--set", "micro_batches=1"];
        let args = [&[file.as_str()], &extra[..], &["--set", &ps]].concat();
        let summary = place.train(&args);
        clean(&summary, 8, 803);
        validation(&summary, "loss")
    };
    let plain = train("mode: async");
    // A worker alone has always seen everything, so that its gradients are never old,
    assert!((train("scale_by_staleness: true") - plain).abs() < 1e-6);
    // unless it goes on with the parameters that it has: then they are, and the rate is less.
    let local = train("local_steps: 3");
    assert!((local - plain).abs() > 1e-6 && local < plain + 0.05, "{local} and {plain}");
    let slower = train("local_steps: 3, scale_by_staleness: true");
    assert!(slower > local, "{slower} and {local}");
}

#[test]
fn an_interrupted_run_goes_on_with_another_number_of_servers() {
    let place = Workplace::new();
    let fire = Fire { servers: 2, asynchronous: true, delay_ms: 5, ..fire(1, 2, 6) };
    chaos::prepare(place.path(), &fire);
    let command = place.command(&["train", "tally.yaml", "--json"]);
    let (mut child, run) = start(command, &place, 30, Duration::from_millis(100));
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    let run = run.display().to_string();
    let summary = place.train(&["--resume", &run, "--ps", "3"]);
    assert_eq!(summary["state"], "completed");
    chaos::count(&summary, &fire).expect("every record exactly once per epoch");
}

#[test]
fn another_number_of_servers_takes_its_partitions_from_the_one_before() {
    let fire = Fire { servers: 2, asynchronous: true, delay_ms: 5, ..fire(1, 2, 12) };
    let notes = scaled(&fire, "partitions move to");
    assert!(!notes.contains("partitions are read from a checkpoint"), "{notes}");
}

/// Each of the four micro-batches of the only step has its part of the bound. Their gradients are on different weights,
/// and 0.05 of norm together, so that a quarter of that for each comes to half of it.
#[test]
fn a_bound_on_gradients_is_one_for_a_whole_step() {
    let place = Workplace::new();
    let ids: String = (0..40).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let text = "entrypoint: tally\n\
                data: {training: ids.csv}\n\
                strategy: ps\n\
                micro_batches: 4\n\
                clip: {norm: 0.05}\n\
                hyperparameters: {global_batch_size: 40, records: 40}\n\
                searcher: {metric: loss, max_length: {epochs: 1}}\n";
    let experiment = place.write("bounded.yaml", text).display().to_string();
    let summary = place.train(&[&experiment]);
    let run = std::path::Path::new(summary["dir"].as_str().expect("a folder"));
    let checkpoint = CheckpointStore::find(&run.join("checkpoints"), &Which::Latest);
    let model = checkpoint.expect("a checkpoint").state.model;
    let weights = model.values().flat_map(|weights| weights.iter::<f32>());
    let moved = weights.map(|weight| f64::from(weight).powi(2)).sum::<f64>().sqrt();
    assert!((moved - 0.025).abs() < 1e-3, "the step moved the weights by {moved}");
    // Of the mean over ten records, each of which has a weight of its own.
    let log = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    let norms: Vec<f64> = lines.filter_map(|line| line["gradient_norm"].as_f64()).collect();
    assert!(norms.len() == 1 && (norms[0] - 0.1_f64.sqrt()).abs() < 1e-3, "{norms:?}");
}

/// The epoch ends with what it holds, so that the other one waits for it.
#[test]
fn a_worker_that_hangs_with_a_lease_is_replaced() {
    let place = Workplace::new();
    let ids: String = (0..400).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let hang = place.write("hang", "whoever removes this hangs");
    let text = format!(
        "entrypoint: tally\n\
         data: {{training: ids.csv, shuffle: full}}\n\
         strategy: ps\n\
         workers: 2\n\
         micro_batches: 2\n\
         hyperparameters: {{global_batch_size: 40, records: 400, hang_file: {}}}\n\
         searcher: {{metric: loss, max_length: {{epochs: 2}}}}\n\
         elastic: {{silence: 1, hang: 2}}\n",
        hang.display()
    );
    let experiment = place.write("hanging.yaml", &text).display().to_string();
    let summary = place.train(&[&experiment]);
    assert_eq!(summary["state"], "completed");
    assert!(!hang.exists(), "nobody hung");
    // The other one may be done with all that is left before a new one has begun, which is then no restart.
    let notes = place.ok(&["logs", summary["dir"].as_str().expect("a folder")]).out();
    assert!(notes.contains("replaced: it hangs"), "{notes}");
    clean(&summary, 2, 400);
}

#[test]
fn what_asynchronous_training_cannot_do_is_said() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(103));
    let text = "entrypoint: points\n\
                data: {training: points.csv}\n\
                strategy: ps\n\
                hyperparameters: {global_batch_size: 10}\n\
                searcher: {metric: loss, max_length: {batches: 15}}\n";
    let file = place.write("points.yaml", text).display().to_string();
    let ended = place.run(&["train", &file]);
    assert_ne!(ended.code(), Some(0));
    assert!(ended.err().contains("strategy ps trains whole epochs"), "{}", ended.err());
}
