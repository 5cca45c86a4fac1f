//! `salamander runs list`: which runs there are, and how each of them stands.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use salamander_core::words::{count, program_name};
use salamander_run::{BestValidation, FolderStatus, runs};
use serde_json::json;

use crate::args::RunsFolder;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List all runs and searches of a folder, the newest first: state, steps or trials, and best validation of each
    List(ListArgs),
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    folder: RunsFolder,
    /// Print a JSON list instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let Command::List(args) = command;
    let found = runs(&args.folder.runs);
    if args.json {
        outln!("{}", json!(found))?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        let folder = args.folder.runs.display();
        outln!("there are no runs in {folder}; `{} train EXPERIMENT` makes one", program_name())?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in table(&found) {
        outln!("{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A header and a line for each run, in columns as wide as what is in them.
fn table(runs: &[FolderStatus]) -> Vec<String> {
    let header = ["run", "model", "state", "steps", "best", "started (UTC)"].map(str::to_string);
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(runs.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

fn row(run: &FolderStatus) -> [String; 6] {
    let unknown = || "-".to_string();
    let steps = match (&run.search, run.total_steps) {
        (Some(search), _) => count(search.trials, "trial"),
        (None, Some(total)) => format!("{}/{total}", run.steps),
        (None, None) => run.steps.to_string(),
    };
    [
        run.run.clone(),
        run.model.clone().unwrap_or_else(unknown),
        run.state.as_str().to_string(),
        steps,
        run.best.as_ref().map_or_else(unknown, best),
        run.started.clone().unwrap_or_else(unknown),
    ]
}

/// `accuracy 0.9312`.
pub(crate) fn best(best: &BestValidation) -> String {
    let value = best.value.map_or_else(|| "-".to_string(), |value| format!("{value:.4}"));
    format!("{} {value}", best.metric)
}

#[cfg(test)]
mod tests {
    use salamander_core::progress::StepCount;
    use salamander_run::{SearchStatus, State};

    use super::*;

    #[test]
    fn columns_line_up() {
        let best = BestValidation { metric: "auc".into(), value: Some(0.95), steps: StepCount(20) };
        let first = FolderStatus {
            run: "mnist-20260101-000000".into(),
            dir: "runs/mnist-20260101-000000".into(),
            model: Some("mnist_mlp".into()),
            state: State::Completed,
            error: None,
            pid: None,
            started: Some("2026-01-01 00:00:00".into()),
            steps: StepCount(40),
            total_steps: Some(StepCount(40)),
            epoch: 1,
            epochs: Some(2),
            loss: Some(0.1),
            validation: Default::default(),
            best: Some(best),
            checkpoint: None,
            weights_hash: None,
            seconds_left: None,
            search: None,
        };
        let second = FolderStatus {
            run: "x".into(),
            model: None,
            state: State::Running,
            steps: StepCount(0),
            total_steps: None,
            best: None,
            ..first.clone()
        };
        let search = Some(SearchStatus { trials: 12, best: None });
        let third = FolderStatus { run: "y".into(), search, ..second.clone() };
        assert_eq!(
            table(&[first, second, third]),
            [
                "run                    model      state      steps      best        started (UTC)",
                "mnist-20260101-000000  mnist_mlp  completed  40/40      auc 0.9500  2026-01-01 00:00:00",
                "x                      -          running    0          -           2026-01-01 00:00:00",
                "y                      -          running    12 trials  -           2026-01-01 00:00:00",
            ]
        );
    }
}
