//! `salamander demo chaos`: trains while it kills its own workers, then shows the curve and the books.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use salamander_train::model::Models;
use serde_json::Value;

use crate::scaffold;

// The model that `salamander new` writes is also the one that is shown: there is one to keep right.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a program's file, of which only the model is used"
)]
#[path = "scaffold/main.rs"]
mod model;

/// The rows of the curve.
const ROWS: usize = 12;
const COLUMNS: usize = 72;

/// The models of the demonstration.
pub(crate) fn models() -> Models {
    crate::models![model::Mlp]
}

/// Writes what the demonstration trains on; returns the experiment file.
pub(crate) fn prepare(folder: &Path, workers: u32) -> Result<std::path::PathBuf> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join("train.csv"), scaffold::rings(40_000, 1))?;
    fs::write(folder.join("valid.csv"), scaffold::rings(2_000, 2))?;
    let experiment = folder.join("experiment.yaml");
    let text = format!(
        "name: demo chaos\n\
         entrypoint: mlp\n\
         data: {{training: train.csv, validation: valid.csv}}\n\
         strategy: allreduce\n\
         workers: {workers}\n\
         micro_batches: 8\n\
         hyperparameters: {{global_batch_size: 64, learning_rate: 0.0005, hidden: 32}}\n\
         searcher: {{metric: accuracy, smaller_is_better: false, max_length: {{epochs: 6}}}}\n\
         min_checkpoint_period: {{batches: 200}}\n\
         elastic: {{silence: 2}}\n"
    );
    fs::write(&experiment, text)?;
    Ok(experiment)
}

/// The loss over all steps, as a picture of text.
pub(crate) fn curve(metrics: &Path) -> Result<String> {
    let text = fs::read_to_string(metrics).with_context(|| metrics.display().to_string())?;
    let losses: Vec<f64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|value| value["kind"] == "step")
        .filter_map(|value| value["loss"].as_f64())
        .collect();
    let width = losses.len().div_ceil(COLUMNS).max(1);
    let means: Vec<f64> =
        losses.chunks(width).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let highest = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut picture = String::new();
    for row in (0..ROWS).rev() {
        let line: String = means
            .iter()
            .map(|mean| if mean / highest * ROWS as f64 > row as f64 { '█' } else { ' ' })
            .collect();
        let label = highest * (row + 1) as f64 / ROWS as f64;
        picture.push_str(&format!("{label:8.4} |{}\n", line.trim_end()));
    }
    picture.push_str(&format!("{:8} +{}\n", "loss", "-".repeat(means.len())));
    picture.push_str(&format!("{:8}  0 .. {} steps\n", "", losses.len()));
    Ok(picture)
}
