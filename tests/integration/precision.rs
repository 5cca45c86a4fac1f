//! Mixed precision: small types follow f32, steps that overflow are skipped by all alike, and the loss scale survives
//! whatever a run survives.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::chaos::processes_of;
use tests::factors::ratings_csv;

use crate::elastic::losses;
use crate::interrupted::{in_time, kill, start};
use crate::support::{Workplace, points_csv, weights_of};

/// A scale that f16 cannot hold at first, and that grows again and again into what it cannot hold.
const SCALED: &str =
    "optimizations: {mixed_precision: f16, loss_scale: {initial: 16777216, growth_interval: 4}}\n";

fn experiment(place: &Workplace, rest: &str) -> String {
    place.write("points.csv", &points_csv(210));
    let text = format!(
        "entrypoint: points\n\
         data: {{training: points.csv, validation: points.csv}}\n\
         micro_batches: 2\n\
         hyperparameters: {{global_batch_size: 21, learning_rate: 0.01}}\n\
         min_checkpoint_period: {{batches: 3}}\n\
         searcher: {{metric: loss, max_length: {{epochs: 6}}}}\n\
         reproducibility: {{experiment_seed: 5}}\n{rest}"
    );
    place.write("x.yaml", &text).display().to_string()
}

/// Whether each step was skipped, and the scale that it was computed with.
fn scales(summary: &Value) -> Vec<(bool, f64)> {
    let path = Path::new(summary["dir"].as_str().expect("a folder")).join("metrics.jsonl");
    let text = std::fs::read_to_string(path).expect("metrics");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let steps = lines.filter(|line| line["kind"] == "step");
    let of = |line: Value| {
        (
            line["skipped"].as_bool().expect("yes or no"),
            line["loss_scale"].as_f64().expect("a scale"),
        )
    };
    steps.map(of).collect()
}

/// Every record is in the books once: applied, or in a step that overflowed.
fn check_books(summary: &Value) -> u64 {
    let mut overflowed = 0;
    for line in summary["ledger"].as_array().expect("a list") {
        let of = |name: &str| line[name].as_u64().expect("a number");
        assert_eq!((of("missing"), of("duplicated")), (0, 0), "{line}");
        assert_eq!(of("applied") + of("overflowed"), of("records"), "{line}");
        assert_eq!(line["intact"], true, "{line}");
        overflowed += of("overflowed");
    }
    let steps = scales(summary);
    let skipped = steps.iter().filter(|(skipped, _)| *skipped).count() as u64;
    assert_eq!(summary["skipped_steps"], skipped, "{summary}");
    assert_eq!(overflowed, skipped * 21, "a step has 21 records");
    let epochs = summary["ledger"].as_array().expect("a list").len() as u64;
    assert_eq!(summary["records"].as_u64(), Some(210 * epochs - overflowed));
    skipped
}

#[test]
fn f16_follows_f32_from_afar() {
    let place = Workplace::new();
    let full = place.train(&[&experiment(&place, "")]);
    assert_eq!((&full["skipped_steps"], &full["loss_scale"]), (&0.into(), &Value::Null));
    let half = place.train(&[&experiment(&place, "optimizations: {mixed_precision: f16}\n")]);
    assert_eq!((&half["skipped_steps"], &half["loss_scale"]), (&0.into(), &1024.0.into()));
    let (full, half) = (losses(&full), losses(&half));
    assert_ne!(full, half);
    for (step, (full, half)) in full.iter().zip(&half).enumerate() {
        assert!((full - half).abs() < 0.02, "step {step}: {full} and {half}");
    }
}

#[test]
fn a_scaled_bf16_is_an_unscaled_one() {
    let place = Workplace::new();
    let run = |scale: &str| {
        let rest = format!("optimizations: {{mixed_precision: bf16{scale}}}\n");
        place.train(&[&experiment(&place, &rest)])
    };
    let (plain, scaled) = (run(""), run(", loss_scale: {initial: 4096}"));
    assert_eq!(scaled["loss_scale"], 4096.0);
    // A power of two moves only the exponents, and bf16 has those of f32.
    assert_eq!(weights_of(&plain), weights_of(&scaled));
}

#[test]
fn steps_that_overflow_are_skipped_and_counted() {
    let place = Workplace::new();
    let file = experiment(&place, SCALED);
    let alone = place.train(&[&file]);
    let steps = scales(&alone);
    assert!(steps[..8].iter().all(|(skipped, _)| *skipped), "{steps:?}");
    assert_eq!(steps[1].1, 8_388_608.0, "halved");
    assert!(steps.iter().filter(|(skipped, _)| *skipped).count() > 9, "it grows back: {steps:?}");
    assert!(steps.iter().filter(|(skipped, _)| !*skipped).count() > 30, "{steps:?}");
    check_books(&alone);
    let losses = losses(&alone);
    assert!(losses[59] < losses[0] - 0.05, "nothing was learnt: {losses:?}");
    // What is shown to people says so too.
    let out = place.ok(&["ledger", alone["dir"].as_str().expect("a folder")]).out();
    assert!(out.contains("overflowed"), "{out}");
    // Two workers skip the same steps.
    let both = place.train(&[&file, "--workers", "2"]);
    assert_eq!(scales(&both), steps);
    assert_eq!(both["ledger"], alone["ledger"]);
}

#[test]
fn killed_and_resumed_it_ends_with_the_same_weights_and_scale() {
    let place = Workplace::new();
    let whole = place.train(&[&experiment(&place, SCALED)]);
    // While it still skips, and in the midst of growing.
    for lines in [5, 17, 31, 48] {
        let (place, run) = in_time(|| {
            let place = Workplace::new();
            let file = experiment(&place, SCALED);
            let (mut child, run) =
                start(place.command(&["train", &file]), &place, lines, Duration::from_millis(1));
            kill(&mut child).then_some((place, run))
        });
        let summary = place.train(&["--resume", &run.display().to_string()]);
        assert_eq!(weights_of(&summary), weights_of(&whole), "killed after {lines} lines");
        assert_eq!(scales(&summary), scales(&whole), "killed after {lines} lines");
        for field in ["skipped_steps", "loss_scale", "ledger", "metrics"] {
            assert_eq!(summary[field], whole[field], "{field}, killed after {lines} lines");
        }
    }
}

#[test]
fn a_worker_that_joins_has_the_scale_of_the_others() {
    // Long enough that it is not over when the worker is killed, and another one joins.
    let long = ["--workers", "2", "--set", "searcher.max_length={epochs: 60}"];
    let undisturbed = Workplace::new();
    let file = experiment(&undisturbed, SCALED);
    let whole = undisturbed.train(&[&[file.as_str()], &long[..]].concat());
    let place = Workplace::new();
    let file = experiment(&place, SCALED);
    let command = place.command(&[&["train", &file], &long[..]].concat());
    let (mut child, run) = start(command, &place, 12, Duration::ZERO);
    let worker = processes_of(child.id(), "worker")[0];
    let pid = Pid::from_raw(worker as i32).expect("a process id");
    kill_process(pid, Signal::KILL).expect("it trains");
    assert!(child.wait().expect("it ends").success());
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(summary["restarts"]["worker"], 1, "{summary}");
    assert!(summary["generations"].as_u64() >= Some(2), "another one joined: {summary}");
    check_books(&summary);
    assert_eq!(scales(&summary), scales(&whole));
    assert_eq!(summary["loss_scale"], whole["loss_scale"]);
}

#[test]
fn rows_of_a_skipped_step_do_not_move() {
    let place = Workplace::new();
    place.write("ratings.csv", &ratings_csv(401));
    let text = "entrypoint: factors\n\
                data: {training: ratings.csv, validation: ratings.csv}\n\
                micro_batches: 2\n\
                hyperparameters: {global_batch_size: 37}\n\
                searcher: {metric: auc, smaller_is_better: false, max_length: {batches: 40}}\n\
                reproducibility: {experiment_seed: 5}\n";
    let file = place.write("factors.yaml", &format!("{text}{SCALED}")).display().to_string();
    let local = place.train(&[&file]);
    assert!(local["skipped_steps"].as_u64().expect("a number") > 8, "{local}");
    let auc = local["metrics"]["validation"]["auc"].as_f64().expect("a number");
    assert!(auc > 0.5, "an infinite row would end it: {auc}");
    let servers = place.train(&[&file, "--workers", "2", "--ps", "2"]);
    assert_eq!(scales(&servers), scales(&local));
    for (step, (a, b)) in losses(&servers).iter().zip(&losses(&local)).enumerate() {
        assert!((a - b).abs() < 1e-2, "step {step}: {a} and {b}");
    }
}
