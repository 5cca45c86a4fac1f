//! The same bits for any number of workers, any transport, kill, resume and scale, proven by the hash of the weights.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::chaos::{self, Fire};

use crate::elastic::{assert_same_bits, fire};
use crate::interrupted::{signal, start, steps_logged};
use crate::support::{PROGRAM, Workplace, digits_experiment, points_csv};

/// Eight slices of 37 records are uneven, and the last batch of an epoch leaves some of them empty.
fn points(place: &Workplace, rest: &str) -> String {
    place.write("points.csv", &points_csv(150));
    let text = format!(
        "entrypoint: points\n\
         data: {{training: points.csv, validation: points.csv, shuffle: full}}\n\
         micro_batches: 8\n\
         hyperparameters: {{global_batch_size: 37, learning_rate: 0.01}}\n\
         reproducibility: {{experiment_seed: 5}}\n{rest}"
    );
    place.write("points.yaml", &text).display().to_string()
}

#[test]
fn eight_slices_have_one_hash_on_one_two_three_five_and_eight_workers() {
    let place = Workplace::new();
    let rest = "searcher: {metric: loss, max_length: {epochs: 3}}\n\
                optimizations: {aggregation_frequency: 2}\nclip: {norm: 0.5}\n";
    let file = points(&place, rest);
    let local = place.train(&[&file]);
    assert_eq!(local["micro_batches"], 8);
    let advice = "--set micro_batches=8 --set reproducibility.experiment_seed=5";
    assert_eq!(local["same_bits_with"], advice);
    for (workers, transport) in
        [("1", "auto"), ("2", "auto"), ("3", "tcp"), ("5", "auto"), ("5", "tcp"), ("8", "tcp")]
    {
        let set = format!("elastic.transport={transport}");
        let summary = place.train(&[&file, "--workers", workers, "--set", &set]);
        assert_same_bits(&summary, &local, &format!("{workers} workers, {transport}"));
    }
}

#[test]
fn other_slices_are_another_sum() {
    let place = Workplace::new();
    let file = points(&place, "searcher: {metric: loss, max_length: {epochs: 3}}\n");
    let hash = |slices: &str| place.train(&[&file, "--set", slices])["weights_hash"].clone();
    assert_ne!(hash("micro_batches=8"), hash("micro_batches=5"));
    assert_eq!(hash("micro_batches=5"), hash("micro_batches=5"));
}

/// A model with dropout and normalisation, which takes some seconds.
fn digits(place: &Workplace) -> String {
    let rest = "micro_batches: 4\n\
                hyperparameters: {global_batch_size: 48}\n\
                min_checkpoint_period: {batches: 15}\n\
                searcher: {metric: loss, max_length: {batches: 60}}\n";
    place.write("digits.yaml", &digits_experiment("resilient", rest)).display().to_string()
}

fn summary_of(run: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_run_that_is_stopped_goes_on_elsewhere_with_the_same_bits() {
    let place = Workplace::new();
    let file = digits(&place);
    let local = place.train(&[&file, "--out", "alone"]);
    let command = place.command(&["train", &file, "--workers", "3"]);
    let (mut child, run) = start(command, &place, 20, Duration::ZERO);
    signal(&child, Signal::INT);
    child.wait().expect("it ends");
    let folder = run.display().to_string();
    let stopped = summary_of(&run);
    assert_eq!(stopped["state"], "interrupted", "{stopped}");
    let whole = place.train(&["--resume", &folder, "--workers", "2"]);
    assert_same_bits(&whole, &local, "three workers, then two");
}

#[test]
fn the_number_of_slices_is_kept() {
    let place = Workplace::new();
    let file = points(&place, "searcher: {metric: loss, max_length: {batches: 6}}\n");
    let half = place.train(&[&file, "--workers", "2", "--set", "micro_batches="]);
    assert_eq!(half["micro_batches"], 2, "the most workers allowed: {half}");
    let run = half["dir"].as_str().expect("a folder");
    let length = "searcher.max_length={batches: 12}";
    let more = place.train(&["--resume", run, "--workers", "4", "--set", length]);
    assert_eq!(more["micro_batches"], 2, "{more}");
    let ended = place.run(&["train", "--resume", run, "--set", "micro_batches=4"]);
    assert_eq!(ended.code(), Some(1), "{}", ended.out());
    assert!(ended.err().contains("micro_batches: the run began with 2"), "{}", ended.err());
    let alone = ["--set", "micro_batches=2", "--set", length];
    let alone = place.train(&[&[file.as_str()], alone.as_slice()].concat());
    assert_eq!(more["weights_hash"], alone["weights_hash"]);
}

#[test]
fn workers_that_come_and_go_leave_the_same_bits() {
    let place = Workplace::new();
    let file = digits(&place);
    let local = place.train(&[&file, "--out", "alone"]);
    let command = place.command(&["train", &file, "--min-workers", "1", "--max-workers", "4"]);
    let (mut child, run) = start(command, &place, 5, Duration::ZERO);
    let folder = run.display().to_string();
    for workers in [1, 3] {
        place.ok(&["scale", &folder, "--workers", &workers.to_string()]);
        let (begun, deadline) = (steps_logged(&run), Instant::now() + Duration::from_secs(60));
        while steps_logged(&run) < (begun + 5).min(58) {
            assert!(Instant::now() < deadline, "it does not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(child.wait().expect("ended").success());
    assert_same_bits(&summary_of(&run), &local, "scaled");
}

#[test]
fn status_and_manifest_have_the_hash() {
    let place = Workplace::new();
    let file = points(&place, "searcher: {metric: loss, max_length: {batches: 6}}\n");
    let summary = place.train(&[&file, "--workers", "2"]);
    let checkpoint = summary["checkpoint"].as_str().expect("a checkpoint");
    let text = std::fs::read_to_string(format!("{checkpoint}/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(manifest["weights_hash"], summary["weights_hash"]);
    assert_eq!(manifest["micro_batches"], 8);
    let run = summary["dir"].as_str().expect("a folder");
    let status = place.ok(&["status", run, "--json"]).json();
    assert_eq!(status["weights_hash"], summary["weights_hash"]);
    let hash = summary["weights_hash"].as_str().expect("a hash");
    assert!(place.ok(&["status", run]).out().contains(hash));
}

/// What runs under fire are compared by can tell one order of sums from another: weights that belong to one record each
/// cannot, those that all records move can.
#[test]
fn weights_that_all_records_move_tell_one_order_of_sums_from_another() {
    let place = Workplace::new();
    chaos::prepare(place.path(), &Fire { records: 403, epochs: 1, ..fire(1, 1, 0) });
    let hash = |blend: &str, slices: &str| {
        let blend = format!("hyperparameters.blend={blend}");
        let slices = format!("micro_batches={slices}");
        let sets = ["strategy=local", "hyperparameters.delay_ms=0", &blend, &slices];
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["tally.yaml"].into_iter().chain(sets).collect();
        place.train(&args)["weights_hash"].clone()
    };
    assert_eq!(hash("false", "8"), hash("false", "3"));
    assert_eq!(hash("true", "8"), hash("true", "8"));
    assert_ne!(hash("true", "8"), hash("true", "3"));
}

/// Clocks differ, so that one member says for all that a checkpoint is due.
#[test]
fn a_checkpoint_by_time_is_one_step_of_all_workers() {
    let place = Workplace::new();
    let fire = Fire { records: 403, delay_ms: 25, ..fire(1, 2, 0) };
    chaos::prepare(place.path(), &fire);
    let sets =
        ["recovery_period=1", "checkpoint_policy=none", "min_checkpoint_period={batches: 0}"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let summary = place.train(&[&["tally.yaml"], sets.as_slice()].concat());
    let run = std::path::Path::new(summary["dir"].as_str().expect("a folder"));
    let folders = std::fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
    let names: Vec<_> = folders.map(|folder| folder.file_name()).collect();
    let kept = names.iter().filter(|name| name.to_string_lossy().starts_with("step-")).count();
    // Three seconds at least, since every micro-batch sleeps; without a clock there would be one, of the end.
    assert!(kept >= 2, "{names:?}");
    let proven = chaos::prove(std::path::Path::new(PROGRAM), place.path(), &fire, &summary);
    proven.expect("every record once, and the bits of an undisturbed run");
}
