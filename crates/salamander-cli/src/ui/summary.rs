//! The end of a run, for people.

use salamander_core::metrics::Metrics;
use salamander_core::words::{count, count_was};
use salamander_run::{Summary, TableSize};
use salamander_train::trainer::Outcome;

use super::clock;
use crate::out::Out;

/// Prints the summary.
pub(crate) fn print_summary(finished: &Summary<'_>, out: Out) {
    let Some(outcome) = finished.outcome else { return };
    let progress = &outcome.progress;
    if let Some(report) = finished.class_report() {
        // The report ends with a line end of its own.
        out.line(&format!("\n{}", report.to_string().trim_end()));
    }
    let values = progress.validation.as_ref().map(Metrics::values).unwrap_or_default();
    let shown: Vec<String> = values.iter().map(|(name, v)| format!("{name} {v:.4}")).collect();
    let timings = &outcome.timings;
    out.line(&format!(
        "\nrun        {} ({})",
        finished.run.folder().display(),
        finished.state.as_str()
    ));
    let (steps, records) = (count(progress.steps.0, "step"), count(progress.records, "record"));
    out.line(&format!("trained    {steps}, {records}"));
    if let Some(dense) = finished.parameters() {
        out.line(&format!("parameters {}", parameters(dense, &finished.tables())));
    }
    if !shown.is_empty() {
        out.line(&format!("validation {}", shown.join(", ")));
    }
    checkpoints(finished, outcome, out);
    weights(finished, out);
    let skipped: u64 = progress.ledger.lines().iter().map(|line| line.skipped).sum();
    if skipped > 0 {
        let skipped = count(skipped, "record");
        out.line(&format!("skipped    {skipped} that could not be decoded"));
    }
    if let Some(scaler) = progress.scaler {
        let overflowed: u64 = progress.ledger.lines().iter().map(|line| line.overflowed).sum();
        out.line(&format!(
            "loss scale {}; {} skipped because of overflowed gradients ({})",
            scaler.scale,
            count_was(scaler.skipped, "step"),
            count(overflowed, "record")
        ));
    }
    let facts = finished.facts;
    if facts.workers > 1 || facts.generations > 1 {
        out.line(&format!(
            "workers    {} at most, {}; started again: {}, {}",
            facts.workers,
            count(facts.generations, "generation"),
            count(facts.worker_restarts, "worker"),
            count(facts.master_restarts, "master"),
        ));
    }
    let [wall, compute, exchange, data, test] =
        [timings.wall, timings.compute, timings.exchange, timings.data, timings.test]
            .map(|time| took(time.as_secs_f64()));
    // Workers of strategy ps tell the master what each micro-batch took, and it adds up what all of them tell.
    let summed = facts.workers > 1 && (outcome.ranks.len() as u64) < facts.workers;
    let whose = if summed { ": all workers together " } else { " (" };
    let end = if summed { "" } else { ")" };
    out.line(&format!(
        "time       {wall}{whose}compute {compute}, exchange {exchange}, data {data}, test {test}{end}"
    ));
    if summed {
        return;
    }
    for (rank, timings) in outcome.ranks.iter().enumerate() {
        let [compute, exchange, data, test] =
            [timings.compute, timings.exchange, timings.data, timings.test]
                .map(|time| time.as_secs_f64());
        out.line(&format!(
            "rank {rank:<5} compute {compute:.1} s, exchange {exchange:.1} s, data {data:.1} s, test {test:.1} s"
        ));
    }
}

/// A time of a run: a short one to a tenth of a second, since those of a first model are all short.
fn took(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.1} s") } else { clock(seconds) }
}

/// What proves that another run came to the same weights, and how it does.
fn weights(finished: &Summary<'_>, out: Out) {
    let Some(last) = finished.last_manifest() else { return };
    let Some(hash) = last.weights_hash else { return };
    let same = last.micro_batches.and_then(|slices| finished.same_bits_with(slices));
    out.line(&format!("weights    {hash}"));
    if let Some(sets) = same {
        out.line(&format!("           the same on any number of workers with {sets}"));
    }
}

/// The checkpoint that is used from now on, the last one where that is another, and what else is in it.
fn checkpoints(finished: &Summary<'_>, outcome: &Outcome, out: Out) {
    let Some(last) = &outcome.checkpoint else { return };
    let best = finished.best_checkpoint();
    match &best {
        Some(best) => {
            let value = best.value.map(|value| format!(": {} {value:.4}", best.metric));
            let (value, steps) = (value.unwrap_or_default(), count(best.steps.0, "step"));
            let path = best.path.display();
            out.line(&format!("checkpoint {path} (the best{value}, after {steps})"));
        }
        None => out.line(&format!("checkpoint {} (the last)", last.display())),
    }
    if best.is_some_and(|best| best.path.file_name() != last.file_name()) {
        out.line(&format!("last       {}", last.display()));
    }
}

/// `12034, and 640000 in 40000 rows of 2 tables`.
fn parameters(dense: u64, tables: &[TableSize]) -> String {
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let inside: u64 = tables.iter().map(|table| table.rows * table.dim).sum();
    match tables {
        [] => dense.to_string(),
        tables => {
            let (rows, tables) = (count(rows, "row"), count(tables.len() as u64, "table"));
            format!("{dense}, and {inside} in {rows} of {tables}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_have_tenths() {
        assert_eq!([0.04, 0.36, 59.0, 61.0].map(took), ["0.0 s", "0.4 s", "59.0 s", "01:01"]);
    }

    #[test]
    fn parameters_in_tables_are_counted_apart() {
        let table = |rows, dim| TableSize { name: "t".into(), rows, dim };
        assert_eq!(parameters(162, &[]), "162");
        assert_eq!(
            parameters(12_034, &[table(30_000, 16), table(10_000, 1)]),
            "12034, and 490000 in 40000 rows of 2 tables"
        );
    }
}
