//! `salamander ledger`: which records were applied, from the run's newest checkpoint.

use std::process::ExitCode;

use anyhow::Result;
use salamander_core::ledger::Line;
use salamander_train::checkpoint::{Store, Which};

use crate::run::find;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run, by its folder or id
    run: String,
    /// Print a JSON list instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: super::RunsFolder,
}

/// Prints the ledger; fails when a record was repeated or the hash of a complete epoch is wrong.
pub(super) fn run(args: Args) -> Result<ExitCode> {
    let folder = find(&args.run, &args.folder.runs)?;
    let checkpoint = Store::find(&folder.join("checkpoints"), &Which::Latest)?;
    let lines = checkpoint.state.progress.ledger.lines();
    if args.json {
        println!("{}", serde_json::to_string(&lines)?);
    } else {
        print(&lines);
    }
    let clean = lines.iter().all(|line| line.intact && line.duplicated == 0);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The ledger for people.
pub(super) fn print(lines: &[Line]) {
    println!(
        "{:>6} {:>10} {:>10} {:>10} {:>11} {:>8} {:>10}  ids",
        "epoch", "records", "applied", "missing", "duplicated", "skipped", "overflowed"
    );
    for line in lines {
        let ids = if line.intact { "intact" } else { "WRONG" };
        println!(
            "{:>6} {:>10} {:>10} {:>10} {:>11} {:>8} {:>10}  {ids}",
            line.epoch,
            line.records,
            line.applied,
            line.missing,
            line.duplicated,
            line.skipped,
            line.overflowed
        );
    }
}
