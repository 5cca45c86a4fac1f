//! `salamander ledger`: which records were applied, from the run's newest checkpoint.

use std::process::ExitCode;

use anyhow::Result;
use salamander_core::ledger::LedgerLine;
use salamander_train::checkpoint::{CheckpointStore, Which};

use crate::args::RunArg;
use crate::out;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArg,
    /// Print a JSON list instead
    #[arg(long)]
    json: bool,
}

/// Prints the ledger; fails when a record was repeated or the hash of a complete epoch is wrong.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let checkpoint = CheckpointStore::find(&args.run.find_single()?.checkpoints(), &Which::Latest)?;
    let lines = checkpoint.state.progress.ledger.lines();
    if args.json {
        outln!("{}", serde_json::to_string(&lines)?)?;
    } else {
        print(&lines)?;
    }
    let clean = lines.iter().all(|line| line.intact && line.duplicated == 0);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The ledger for people.
pub(crate) fn print(lines: &[LedgerLine]) -> Result<(), out::Error> {
    outln!(
        "{:>6} {:>10} {:>10} {:>10} {:>11} {:>8} {:>10}  ids",
        "epoch",
        "records",
        "applied",
        "missing",
        "duplicated",
        "skipped",
        "overflowed"
    )?;
    for line in lines {
        let ids = if line.intact { "intact" } else { "WRONG" };
        outln!(
            "{:>6} {:>10} {:>10} {:>10} {:>11} {:>8} {:>10}  {ids}",
            // From 1, as in the table of epochs; JSON counts from 0, as ever.
            line.epoch + 1,
            line.records,
            line.applied,
            line.missing,
            line.duplicated,
            line.skipped,
            line.overflowed
        )?;
    }
    Ok(())
}
