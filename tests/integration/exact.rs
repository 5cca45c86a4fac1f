//! The same mathematics however the work is cut.

use serde_json::Value;

use crate::support::{Workplace, points_csv};

fn experiment(rest: &str) -> (Workplace, String) {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(210));
    let text = format!(
        "entrypoint: points\n\
         data: {{training: points.csv, validation: points.csv}}\n\
         reproducibility: {{experiment_seed: 5}}\n{rest}"
    );
    let file = place.write("x.yaml", &text).display().to_string();
    (place, file)
}

/// Losses of every step.
fn losses(place: &Workplace, file: &str, sets: &[&str]) -> Vec<f64> {
    let mut args = vec![file];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let summary = place.train(&args);
    let log =
        std::path::Path::new(summary["dir"].as_str().expect("a folder")).join("metrics.jsonl");
    let text = std::fs::read_to_string(log).expect("metrics");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line"))
        .filter(|line| line["kind"] == "step")
        .map(|line| line["loss"].as_f64().expect("a number"))
        .collect()
}

fn agree(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (step, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 1e-5, "step {step}: {a} and {b}");
    }
}

#[test]
fn slices_and_aggregation_do_not_change_the_trajectory() {
    let (place, file) = experiment("searcher: {max_length: {epochs: 4}}\n");
    let batch = "hyperparameters.global_batch_size=32";
    let whole = losses(&place, &file, &[batch]);
    assert_eq!(whole.len(), 28, "six full steps and a short one, four times");
    agree(&whole, &losses(&place, &file, &[batch, "micro_batches=5"]));
    let halves = ["hyperparameters.global_batch_size=16", "optimizations.aggregation_frequency=2"];
    agree(&whole, &losses(&place, &file, &halves));
}

#[test]
fn sums_of_aggregated_gradients_differ_from_means() {
    let (place, file) = experiment("searcher: {max_length: {epochs: 2}}\nclip: {norm: 0.01}\n");
    let halves = ["hyperparameters.global_batch_size=16", "optimizations.aggregation_frequency=2"];
    let mean = losses(&place, &file, &halves);
    let mut sets = halves.to_vec();
    sets.push("optimizations.average_aggregated_gradients=false");
    // Adam does not see the size of a gradient, and clipping cuts both to the same norm.
    agree(&mean, &losses(&place, &file, &sets));
    sets.push("clip=");
    let sum = losses(&place, &file, &sets);
    assert_ne!(mean, sum);
}

#[test]
fn bf16_follows_f32_from_afar() {
    let (place, file) = experiment("searcher: {max_length: {epochs: 8}}\n");
    let full = losses(&place, &file, &[]);
    let half = losses(&place, &file, &["optimizations.mixed_precision=bf16"]);
    assert_ne!(full, half);
    let (full, half) = (full[full.len() - 1], half[half.len() - 1]);
    assert!((full - half).abs() < 0.1, "{full} and {half}");
}

#[test]
fn lengths_periods_and_early_stop_are_kept() {
    let (place, file) = experiment("hyperparameters: {global_batch_size: 21}\n");
    let steps = |sets: &[&str]| {
        let mut args = vec![file.as_str()];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        place.train(&args)["steps"].as_u64().expect("a number")
    };
    assert_eq!(steps(&["searcher.max_length={batches: 7}"]), 7);
    assert_eq!(steps(&["searcher.max_length={records: 100}"]), 5);
    assert_eq!(steps(&["searcher.max_steps=1", "scheduling_unit=12"]), 12);
    assert_eq!(steps(&["searcher.max_time=2", "searcher.time_metric=epochs"]), 20);
    // A learning rate of zero never improves: one validation more than patience bears.
    let stopped = steps(&[
        "searcher.max_length={epochs: 50}",
        "early_stop={patience: 2}",
        "hyperparameters.learning_rate=0",
    ]);
    assert_eq!(stopped, 40, "the first validation, two tolerated, one too many");
}

#[test]
fn checkpoint_policies_keep_what_they_say() {
    let kept = |policy: &str| {
        let (place, file) = experiment("searcher: {max_length: {epochs: 6}}\n");
        let set = format!("checkpoint_policy={policy}");
        let summary = place.train(&[&file, "--set", &set]);
        let folder = std::path::Path::new(summary["dir"].as_str().expect("a folder"));
        std::fs::read_dir(folder.join("checkpoints")).expect("checkpoints").count()
    };
    assert_eq!(kept("all"), 6);
    assert!((2..=3).contains(&kept("best")), "the best and the last two");
    assert_eq!(kept("none"), 1, "only the end");
}
