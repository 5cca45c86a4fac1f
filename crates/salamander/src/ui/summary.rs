//! The end of a run: a summary for people and one line of JSON for programs.

use std::collections::BTreeMap;
use std::path::Path;

use salamander_core::metrics::{Metric, Metrics};
use salamander_train::trainer::{Outcome, Timings};
use serde_json::{Value, json};

use super::{Facts, Out, clock};
use crate::report::{ClassReport, confusion_png};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Completed,
    Interrupted,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Completed => "completed",
            State::Interrupted => "interrupted",
            State::Failed => "failed",
        }
    }
}

/// A run that has ended.
pub(crate) struct Finished<'a> {
    pub(crate) id: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) state: State,
    pub(crate) outcome: Option<&'a Outcome>,
    pub(crate) class_names: Vec<String>,
    pub(crate) error: Option<String>,
    pub(crate) facts: Facts,
}

/// The object that the command line's contract describes.
pub(crate) fn json_line(finished: &Finished<'_>) -> Value {
    let (outcome, facts) = (finished.outcome, finished.facts);
    let progress = outcome.map(|outcome| &outcome.progress);
    let validation = progress.and_then(|progress| progress.validation.as_ref());
    json!({
        "run": finished.id,
        "dir": finished.folder,
        "state": finished.state.name(),
        "error": finished.error,
        "steps": progress.map_or(0, |progress| progress.steps),
        "records": progress.map_or(0, |progress| progress.records),
        "epochs": progress.map_or(0, |progress| progress.epoch),
        "skipped_steps": progress.and_then(|progress| progress.scaler).map_or(0, |s| s.skipped),
        "loss_scale": progress.and_then(|progress| progress.scaler).map(|scaler| scaler.scale),
        "metrics": {
            "training": finite(progress.map(|p| p.last_training.clone()).unwrap_or_default()),
            "validation": finite(validation.map(Metrics::values).unwrap_or_default()),
        },
        "checkpoint": outcome.and_then(|outcome| outcome.checkpoint.as_ref()),
        "workers": facts.workers,
        "generations": facts.generations,
        "restarts": {
            "worker": facts.worker_restarts,
            "ps": facts.server_restarts,
            "master": facts.master_restarts,
        },
        "ledger": progress.map(|progress| progress.ledger.lines()).unwrap_or_default(),
        "timings": outcome.map(|outcome| outcome.timings.to_json()),
        "ranks": outcome.map(|o| o.ranks.iter().map(Timings::to_json).collect::<Vec<_>>()),
    })
}

/// JSON has no NaN: such a value is shown as null.
fn finite(values: BTreeMap<String, f64>) -> BTreeMap<String, Option<f64>> {
    values.into_iter().map(|(name, value)| (name, Some(value).filter(|v| v.is_finite()))).collect()
}

/// The summary for people; writes the classifier's report into the run's folder.
pub(crate) fn print_summary(finished: &Finished<'_>, out: Out) {
    let Some(outcome) = finished.outcome else { return };
    let progress = &outcome.progress;
    if let Some(validation) = &progress.validation
        && let Some((names, counts)) = confusion(validation, &finished.class_names)
    {
        let report = ClassReport::from_confusion(&names, counts);
        out.line(&format!("\n{report}"));
        if let Err(error) = write_report(finished.folder, &names, counts, &report) {
            out.line(&format!("the report could not be written: {error}"));
        }
    }
    let values = progress.validation.as_ref().map(Metrics::values).unwrap_or_default();
    let shown: Vec<String> = values.iter().map(|(name, v)| format!("{name} {v:.4}")).collect();
    let timings = &outcome.timings;
    out.line(&format!("\nrun        {} ({})", finished.folder.display(), finished.state.name()));
    out.line(&format!("trained    {} steps, {} records", progress.steps, progress.records));
    if !shown.is_empty() {
        out.line(&format!("validation {}", shown.join(", ")));
    }
    if let Some(checkpoint) = &outcome.checkpoint {
        out.line(&format!("checkpoint {}", checkpoint.display()));
    }
    let skipped: u64 = progress.ledger.lines().iter().map(|line| line.skipped).sum();
    if skipped > 0 {
        out.line(&format!("skipped    {skipped} records that could not be decoded"));
    }
    if let Some(scaler) = progress.scaler {
        let overflowed: u64 = progress.ledger.lines().iter().map(|line| line.overflowed).sum();
        out.line(&format!(
            "loss scale {}; {} steps were skipped because their gradients overflowed ({overflowed} records)",
            scaler.scale, scaler.skipped
        ));
    }
    let facts = finished.facts;
    if facts.workers > 1 || facts.generations > 1 {
        out.line(&format!(
            "workers    {} at most, {} generations; started again: {} workers, {} masters",
            facts.workers, facts.generations, facts.worker_restarts, facts.master_restarts,
        ));
    }
    out.line(&format!(
        "time       {} (compute {}, exchange {}, data {}, test {})",
        clock(timings.wall.as_secs_f64()),
        clock(timings.compute.as_secs_f64()),
        clock(timings.exchange.as_secs_f64()),
        clock(timings.data.as_secs_f64()),
        clock(timings.test.as_secs_f64()),
    ));
    for (rank, timings) in outcome.ranks.iter().enumerate() {
        out.line(&format!(
            "rank {rank:<5} compute {:.1} s, exchange {:.1} s, data {:.1} s, test {:.1} s",
            timings.compute.as_secs_f64(),
            timings.exchange.as_secs_f64(),
            timings.data.as_secs_f64(),
            timings.test.as_secs_f64(),
        ));
    }
}

/// The confusion matrix among the metrics, with names for its classes.
pub(crate) fn confusion<'a>(
    metrics: &'a Metrics,
    names: &[String],
) -> Option<(Vec<String>, &'a [u64])> {
    metrics.iter().find_map(|(_, metric)| match metric {
        Metric::Confusion { classes, counts } if *classes >= 2 => {
            let named = names.len() == *classes;
            let numbers = || (0..*classes).map(|class| class.to_string()).collect();
            Some((if named { names.to_vec() } else { numbers() }, counts.as_slice()))
        }
        _ => None,
    })
}

fn write_report(
    folder: &Path,
    names: &[String],
    counts: &[u64],
    report: &ClassReport,
) -> anyhow::Result<()> {
    let mut picture = Vec::new();
    confusion_png(names, counts, &mut picture)?;
    std::fs::write(folder.join("confusion.png"), picture)?;
    std::fs::write(folder.join("report.json"), serde_json::to_vec_pretty(report)?)?;
    Ok(())
}
