//! The end of a run, for people.

use salamander_core::metrics::Metrics;
use salamander_run::Summary;

use super::clock;
use crate::out::Out;

/// Prints the summary.
pub(crate) fn print_summary(finished: &Summary<'_>, out: Out) {
    let Some(outcome) = finished.outcome else { return };
    let progress = &outcome.progress;
    if let Some(report) = finished.class_report() {
        out.line(&format!("\n{report}"));
    }
    let values = progress.validation.as_ref().map(Metrics::values).unwrap_or_default();
    let shown: Vec<String> = values.iter().map(|(name, v)| format!("{name} {v:.4}")).collect();
    let timings = &outcome.timings;
    out.line(&format!(
        "\nrun        {} ({})",
        finished.run.folder().display(),
        finished.state.as_str()
    ));
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
    let [wall, compute, exchange, data, test] =
        [timings.wall, timings.compute, timings.exchange, timings.data, timings.test]
            .map(|time| clock(time.as_secs_f64()));
    out.line(&format!(
        "time       {wall} (compute {compute}, exchange {exchange}, data {data}, test {test})"
    ));
    for (rank, timings) in outcome.ranks.iter().enumerate() {
        let [compute, exchange, data, test] =
            [timings.compute, timings.exchange, timings.data, timings.test]
                .map(|time| time.as_secs_f64());
        out.line(&format!(
            "rank {rank:<5} compute {compute:.1} s, exchange {exchange:.1} s, data {data:.1} s, test {test:.1} s"
        ));
    }
}
