//! `salamander data`: getting data sets, looking at files, checking and changing them.

mod convert;
mod generate;
mod inspect;
mod peek;
mod split;
mod types;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use salamander_data::{Dataset, Format, OpenOptions, Row, Value, open_indexed};

use crate::ui::{MANY_FILES, show_indexing};

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Get a public data set, verify it and convert it
    Fetch {
        /// The data set: mnist
        name: String,
        /// A folder with its original files, or an address that they are below
        #[arg(long, value_name = "DIR|URL")]
        from: Option<String>,
        /// The folder to write to
        #[arg(long, value_name = "DIR", default_value = "data")]
        to: PathBuf,
    },
    /// Write data like those of Census Income, Criteo or MovieLens, and say what a model can reach on them
    Generate(generate::Args),
    /// Show what a file holds: format, records, columns, a sample
    Inspect(inspect::Args),
    /// Check every record and every checksum; reports each fault and goes on
    Verify(verify::Args),
    /// Write records in another format, in one file or in shards
    Convert(convert::Args),
    /// Divide records into training, validation and test files
    Split(split::Args),
    /// Show exactly which records a step takes
    Peek(peek::Args),
}

pub(super) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Fetch { name, from, to } if name == "mnist" => {
            let files = crate::fetch::mnist(from.as_deref(), &to, &mut |line| eprintln!("{line}"))?;
            files.iter().for_each(|file| println!("{}", file.display()));
        }
        Command::Fetch { name, .. } => bail!("data set \"{name}\" is not known (known: mnist)"),
        Command::Generate(args) => generate::run(&args)?,
        Command::Inspect(args) => inspect::run(&args)?,
        Command::Verify(args) => return verify::run(&args),
        Command::Convert(args) => convert::run(&args)?,
        Command::Split(args) => split::run(&args)?,
        Command::Peek(args) => peek::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Which records are meant.
#[derive(clap::Args)]
pub(in crate::cli) struct Input {
    /// Files, folders, globs or addresses (s3://, gs://, az://, https://)
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,
    /// The format, where the name does not tell it
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

impl Input {
    fn open(&self) -> Result<Dataset> {
        let bar = ProgressBar::no_length();
        let progress = |done: usize, total: usize| {
            if total as u64 >= MANY_FILES {
                show_indexing(&bar, done as u64, total as u64);
            }
        };
        let options = OpenOptions { progress: Some(&progress), ..OpenOptions::default() };
        let reader = open_indexed(&self.data, self.format, &options)?;
        bar.finish_and_clear();
        Ok(Dataset::new(Arc::from(reader))?)
    }
}

/// Records read at a time by commands that read everything.
const BLOCK: u64 = 1024;

/// Calls `each` with the numbers of all records, block by block.
fn in_blocks(dataset: &Dataset, mut each: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
    for start in (0..dataset.len()).step_by(BLOCK as usize) {
        let block: Vec<u64> = (start..(start + BLOCK).min(dataset.len())).collect();
        each(&block)?;
    }
    Ok(())
}

/// A bar over records, on a terminal only.
fn records_bar(records: u64) -> ProgressBar {
    let bar = ProgressBar::new(records);
    let template = "{percent:>3}%|{bar:30}| {pos}/{len} records [{elapsed}<{eta}, {per_sec}]";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

/// A row in a line: long values are told by their size.
fn show(row: &Row<'_>) -> String {
    let cell = |(name, value): (&str, &Value<'_>)| match value {
        Value::Bytes(bytes) if bytes.len() > 16 => format!("{name}=<{} bytes>", bytes.len()),
        Value::Text(text) => format!("{name}={text}"),
        Value::Ints(ints) if ints.len() <= 8 => format!("{name}={ints:?}"),
        Value::Floats(floats) if floats.len() <= 8 => format!("{name}={floats:?}"),
        other => format!("{name}=<{} {}>", other.count(), other.kind()),
    };
    row.columns().map(cell).collect::<Vec<_>>().join(" ")
}
