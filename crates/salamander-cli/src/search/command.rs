//! `salamander search table` and `salamander search importance`: what a search has found, from its folder alone.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use salamander_core::words::count;
use salamander_run::{SearchEnd, SearchTable, find, read_search};
use salamander_search::importance;
use serde_json::{Value as Json, json};

use super::ranked;
use crate::args::RunsFolder;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List all trials of a search, the best first, or write them to a file
    Table(TableArgs),
    /// Say which hyperparameters mattered: the share of the metric's variance that each explains by itself
    Importance(ImportanceArgs),
}

#[derive(clap::Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    search: SearchFolder,
    /// Write a .parquet, .csv or .sqlite with a row for each trial instead, in the order in which they were made
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object instead, as `train --json` ends with
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ImportanceArgs {
    #[command(flatten)]
    search: SearchFolder,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct SearchFolder {
    /// The search, by its folder or id
    run: String,
    #[command(flatten)]
    folder: RunsFolder,
}

impl SearchFolder {
    fn read(&self) -> Result<SearchEnd> {
        Ok(read_search(&find(&self.run, &self.folder.runs)?)?)
    }
}

pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Table(args) => table(args),
        Command::Importance(args) => show_importance(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn table(args: &TableArgs) -> Result<()> {
    let end = args.search.read()?;
    if let Some(path) = &args.out {
        end.write_trials(path)?;
        let trials = end.search().trials().len() as u64;
        outln!("{} in {}", count(trials, "trial"), path.display())?;
        return Ok(());
    }
    if args.json {
        outln!("{}", end.to_json())?;
        return Ok(());
    }
    let all = SearchTable::new(&end);
    // Without the folders, which a terminal has no room for.
    let columns = all.columns.len() - 1;
    let best_first = ranked(end.search().trials(), end.search().method());
    let rows = best_first.iter().map(|trial| {
        let row = &all.rows[trial.id.0 as usize - 1];
        row.iter().take(columns).map(shown).collect()
    });
    let header = all.columns.iter().take(columns).cloned().collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        outln!("{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn shown(value: &Json) -> String {
    match value {
        Json::Null => "-".to_string(),
        Json::String(text) => text.clone(),
        Json::Number(number) if number.is_f64() => {
            number.as_f64().map_or(String::new(), |value| format!("{value:.6}"))
        }
        other => other.to_string(),
    }
}

fn show_importance(args: &ImportanceArgs) -> Result<()> {
    let end = args.search.read()?;
    let found = importance(end.search())
        .with_context(|| format!("search {}", end.layout.folder().display()))?;
    if args.json {
        let shares: serde_json::Map<String, Json> = found
            .hyperparameters
            .iter()
            .map(|(name, share)| (name.clone(), json!(share)))
            .collect();
        outln!(
            "{}",
            json!({"metric": found.metric, "length": found.length, "trials": found.trials,
                "importance": shares, "together": found.together})
        )?;
        return Ok(());
    }
    let trials = count(found.trials as u64, "trial");
    outln!("share of the variance of {} over {trials} at length {}", found.metric, found.length)?;
    for (name, share) in &found.hyperparameters {
        outln!("{:>6.1}%  {name}", 100.0 * share)?;
    }
    outln!("{:>6.1}%  several together", 100.0 * found.together)?;
    Ok(())
}
