//! `salamander data verify`: every record is read, every fault is told, none ends the search.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use salamander_core::words::count;
use salamander_data::{Dataset, OpenOptions, files, open_indexed};
use serde_json::json;

use super::{DataInput, in_blocks, records_bar};

/// Faults shown; more of them are only counted.
const SHOWN: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: DataInput,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Findings {
    records: u64,
    bad_records: u64,
    faults: BTreeSet<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut found = Findings::default();
    for place in &args.input.data {
        // File by file, so that one that cannot be opened does not hide the others.
        match files(std::slice::from_ref(place), args.input.format) {
            Ok(files) => files.iter().try_for_each(|file| check_file(file, args, &mut found))?,
            Err(error) => {
                found.faults.insert(error.to_string());
            }
        }
    }
    let healthy = found.faults.is_empty();
    if args.json {
        let object = json!({
            "records": found.records, "bad_records": found.bad_records, "faults": found.faults,
        });
        outln!("{object}")?;
    } else {
        found.faults.iter().take(SHOWN).try_for_each(|fault| outln!("{fault}"))?;
        let more = found.faults.len().saturating_sub(SHOWN);
        if more > 0 {
            outln!("and {more} more")?;
        }
        outln!("{}, {} of them bad", count(found.records, "record"), found.bad_records)?;
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_file(file: &Path, args: &Args, found: &mut Findings) -> Result<()> {
    let options = OpenOptions { csv: args.input.csv.settings(), ..OpenOptions::default() };
    let opened = open_indexed(&[file.to_owned()], args.input.format, &options)
        .and_then(|reader| Dataset::new(Arc::from(reader)));
    match opened {
        Ok(dataset) => check(&dataset, found),
        Err(error) => {
            found.faults.insert(error.to_string());
            Ok(())
        }
    }
}

fn check(dataset: &Dataset, found: &mut Findings) -> Result<()> {
    let bar = records_bar(dataset.len());
    found.records += dataset.len();
    in_blocks(dataset, |block| {
        if dataset.read(block, &mut |_, _| Ok(())).is_err() {
            // One by one, so that good records between bad ones count as good.
            for record in block {
                if let Err(error) = dataset.read(&[*record], &mut |_, _| Ok(())) {
                    found.bad_records += 1;
                    found.faults.insert(error.to_string());
                }
            }
        }
        bar.inc(block.len() as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(())
}
