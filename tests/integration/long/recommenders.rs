//! Every recommender learns, in one process and on parameter servers of which one is killed.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use salamander_data::generate::{Census, Criteo, MovieLens};
use serde_json::Value;
use tests::chaos::processes_of;

use crate::asynchronous::clean;
use crate::interrupted::start;
use crate::recommenders::check;
use crate::support::Workplace;
use crate::tables::validation;

#[test]
fn the_deep_half_learns_incomes() {
    let hp = "hyperparameters: {global_batch_size: 128}\nsearcher: {max_length: {epochs: 1}}\n";
    check("census_dnn", &Census::new(1), 40_000, hp, 0.9);
}

#[test]
fn deepfm_learns_clicks() {
    let hp = "hyperparameters: {global_batch_size: 128}\nsearcher: {max_length: {epochs: 1}}\n";
    check("deepfm", &Criteo::new(1, 1000), 40_000, hp, 0.65);
}

#[test]
fn dcn_learns_clicks() {
    let hp = "hyperparameters: {global_batch_size: 128}\nsearcher: {max_length: {epochs: 1}}\n";
    check("dcn", &Criteo::new(1, 1000), 40_000, hp, 0.65);
}

#[test]
fn xdeepfm_learns_clicks() {
    let hp = "hyperparameters: {global_batch_size: 128, interactions: [8, 8]}\n\
              searcher: {max_length: {epochs: 1}}\n";
    check("xdeepfm", &Criteo::new(1, 1000), 40_000, hp, 0.7);
}

#[test]
fn ncf_learns_tastes() {
    let hp = "hyperparameters: {global_batch_size: 128}\nsearcher: {max_length: {epochs: 3}}\n";
    check("ncf", &MovieLens::new(1, 200, 100), 40_000, hp, 0.8);
}

/// DeepFM on data like Criteo's, without dropout, whose draws would depend on the slices of a batch.
fn clicks(place: &Workplace, records: &str) -> String {
    for (name, skip, records) in [("train.txt", "0", records), ("valid.txt", "100000", "6000")] {
        let args = ["data", "generate", "criteo", "--values", "500", "--skip", skip];
        place.ok(&[args.as_slice(), &["--records", records, "--out", name]].concat());
    }
    let text = "entrypoint: deepfm\n\
                data: {training: train.txt, validation: valid.txt, format: criteo}\n\
                hyperparameters: {global_batch_size: 128, dropout: 0.0}\n\
                min_checkpoint_period: {batches: 20}\n\
                searcher: {metric: auc, smaller_is_better: false, max_length: {epochs: 1}}\n\
                reproducibility: {experiment_seed: 3}\n";
    place.write("deepfm.yaml", text).display().to_string()
}

#[test]
fn deepfm_on_servers_reaches_the_local_auc_also_when_one_is_killed() {
    let place = Workplace::new();
    let file = clicks(&place, "16000");
    let (_, expected) = validation(&place.train(&[&file, "--out", "local"]));
    assert!(expected > 0.6, "nothing was learnt: {expected}");
    let sync = ["--strategy", "ps", "--set", "ps.mode=sync", "--workers", "4", "--ps", "2"];
    let summary = train_without_a_server(&place, &file, &sync);
    let (_, found) = validation(&summary);
    assert!((found - expected).abs() < 0.002, "{found} and {expected}");
}

/// Trains, and kills a parameter server on the way.
fn train_without_a_server(place: &Workplace, file: &str, extra: &[&str]) -> Value {
    let command = place.command(&[&["train", file], extra].concat());
    let (mut child, run) = start(command, place, 30, Duration::ZERO);
    let servers = processes_of(child.id(), "ps");
    let victim = Pid::from_raw(servers[0] as i32).expect("a process");
    kill_process(victim, Signal::KILL).expect("it was there");
    assert!(child.wait().expect("ended").success());
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(summary["restarts"]["ps"], 1, "{summary}");
    summary
}

/// A push of a whole batch of 128, as locally: what differs is how old the parameters are that gradients are of. With
/// nothing to bound it that depends on the machine, and now and then a run ends lower. (What they reach on a quiet
/// machine is in docs/benchmarks.md; the limits here are those of a busy one.)
#[test]
fn deepfm_on_servers_without_waiting_reaches_the_local_auc_also_when_one_is_killed() {
    let place = Workplace::new();
    let file = clicks(&place, "48000");
    let auc = |summary: &Value| validation(summary).1;
    let local = auc(&place.train(&[&file, "--out", "local"]));
    let ps = ["--strategy", "ps", "--ps", "2", "--workers", "4", "--set", "micro_batches=1"];
    let bounded = ["--set", "ps={mode: bounded, staleness: 3}"];
    let summary = train_without_a_server(&place, &file, &[&ps[..], &bounded].concat());
    clean(&summary, 1, 48_000);
    assert!(auc(&summary) > local - 0.005, "bounded: {} and {local}", auc(&summary));
    let summary = place.train(&[&[file.as_str()], &ps[..]].concat());
    clean(&summary, 1, 48_000);
    assert!(auc(&summary) > local - 0.01, "async: {} and {local}", auc(&summary));
}
