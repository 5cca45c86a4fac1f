//! A run's folder as training would fill it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use tempfile::TempDir;

pub(crate) const EXPERIMENT: &str = "entrypoint: net\nname: digits <b>\nlabels: [first]\n\
    reproducibility: {experiment_seed: 3}\n\
    hyperparameters: {learning_rate: 0.5, global_batch_size: 8, optimizer: {name: sgd, nesterov: true}}\n";

/// A folder with an experiment and no metrics.
pub(crate) fn run() -> (TempDir, RunLayout) {
    let parent = tempfile::tempdir().expect("a folder");
    let run = RunLayout::new(parent.path().join("digits-1"));
    fs::create_dir(run.folder()).expect("made");
    fs::write(run.experiment(), EXPERIMENT).expect("written");
    (parent, run)
}

/// The loss of a step in a life of the run.
pub(crate) fn loss(step: u64, life: u64) -> f64 {
    (1.0 / step as f64) + life as f64
}

/// A step's line; its time tells the life that wrote it.
pub(crate) fn step(step: u64, life: u64) -> String {
    let (time, loss) = (1_700_000_000.0 + life as f64 * 10_000.0 + step as f64, loss(step, life));
    format!(
        "{{\"kind\":\"step\",\"steps\":{step},\"epoch\":0,\"loss\":{loss},\"learning_rate\":0.5,\"time\":{time}}}\n"
    )
}

/// An epoch's line.
pub(crate) fn epoch(steps: u64) -> String {
    let time = 1_700_000_000.0 + steps as f64;
    format!(
        "{{\"kind\":\"epoch\",\"steps\":{steps},\"epoch\":0,\"complete\":true,\"training\":{{\"loss\":0.5}},\
         \"validation\":{{\"accuracy\":0.75,\"loss\":null}},\"time\":{time}}}\n"
    )
}

pub(crate) fn append(run: &RunLayout, steps: RangeInclusive<u64>, life: u64) {
    let file = OpenOptions::new().create(true).append(true).open(run.metrics());
    let text: String = steps.map(|number| step(number, life)).collect();
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
}

pub(crate) fn append_text(run: &RunLayout, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(run.metrics());
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
}

/// Leaves the first lines only, as a run does that goes on from a checkpoint.
pub(crate) fn cut(run: &RunLayout, lines: usize) {
    let text = fs::read_to_string(run.metrics()).expect("there");
    let kept: String = text.lines().take(lines).map(|line| format!("{line}\n")).collect();
    replace(&run.metrics(), kept.as_bytes(), Durability::Unsynced).expect("cut");
}

/// The end of a run, with a report.
pub(crate) fn end(run: &RunLayout) {
    let report = r#"{"accuracy":0.8,"confusion":{"names":["a","b"],"counts":[[8,2],[1,9]]}}"#;
    fs::write(run.report(), report).expect("written");
    fs::write(run.summary(), r#"{"state":"completed"}"#).expect("written");
}

/// Histograms of so many values at these steps.
pub(crate) fn histograms<const N: usize>(run: &RunLayout, steps: [u64; N], values: u64) {
    let mut file =
        OpenOptions::new().create(true).append(true).open(run.histograms()).expect("opened");
    for steps in steps {
        let kept = serde_json::json!({
            "count": values, "min": -1.0, "max": 1.0, "sum": 0.0, "squares": 2.0, "counts": [values - 1, 1],
        });
        let line = serde_json::json!({"steps": steps, "time": 1_700_000_000, "weights": {"layer.weight": kept}});
        writeln!(file, "{line}").expect("written");
    }
}

/// A checkpoint with one file.
pub(crate) fn checkpoint(run: &RunLayout, name: &str) {
    let folder = run.checkpoints().join(name);
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("model.safetensors"), "weights").expect("written");
    let manifest = serde_json::json!({"files": {"model.safetensors": {"bytes": 7}}});
    fs::write(folder.join("manifest.json"), manifest.to_string()).expect("written");
}
