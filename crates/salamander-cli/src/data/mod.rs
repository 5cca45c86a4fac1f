//! `salamander data`: getting data sets, looking at files, checking and changing them.

mod convert;
mod generate;
mod inspect;
mod peek;
mod split;
mod tokenize;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use salamander_core::experiment::{CsvHeader, CsvSettings, Separator};
use salamander_data::{Dataset, Format, OpenOptions, Row, Value, open_indexed};
use salamander_run::{Program, fit_assets};

use crate::tables;
use crate::ui::{MANY_FILES, show_indexing};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Get a public data set, verify it and convert it
    Fetch {
        /// The data set: mnist, iris, heart, frappe; with --from also cifar, reviews of films (VADER's data) and
        /// passages of any text
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
    /// Write the statistics and vocabularies that an experiment's model needs, from its training data
    #[command(
        long_about = "Write the statistics (`normalise`) and vocabularies that the examples of an \
        experiment's model are read with, from its training data, beside the experiment file. The words of a \
        vocabulary come by how often they occur."
    )]
    Fit {
        /// The experiment
        experiment: PathBuf,
        /// Replace files that are there
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(command: Command, program: &Program) -> Result<ExitCode> {
    match command {
        Command::Fetch { name, from, to } => {
            let files = fetch(&name, from.as_deref(), &to)?;
            files.iter().try_for_each(|file| outln!("{}", file.display()))?;
        }
        Command::Generate(args) => generate::run(&args)?,
        Command::Inspect(args) => inspect::run(&args)?,
        Command::Verify(args) => return verify::run(&args),
        Command::Convert(args) => convert::run(&args)?,
        Command::Split(args) => split::run(&args)?,
        Command::Peek(args) => peek::run(&args)?,
        Command::Fit { experiment, force } => {
            let written = fit_assets(program, &experiment, force)?;
            if written.is_empty() {
                outln!("nothing to do: the model's examples need no statistics or vocabulary")?;
            }
            written.iter().try_for_each(|file| outln!("{}", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Gets one of the data sets; returns its files.
fn fetch(name: &str, from: Option<&str>, to: &Path) -> Result<Vec<PathBuf>> {
    let progress = &mut |line: &str| errln!("{line}");
    match name {
        "cifar" => crate::cifar::fetch(from, to, progress),
        "frappe" => tables::frappe(from, to, progress),
        "heart" => tables::fetch(&tables::HEART, from, to, progress),
        "iris" => tables::fetch(&tables::IRIS, from, to, progress),
        "mnist" => crate::fetch::mnist(from, to, progress),
        "passages" => crate::passages::fetch(from, to, progress),
        "reviews" => crate::reviews::fetch(from, to, progress),
        _ => bail!(
            "data set \"{name}\" is not known (known: cifar, frappe, heart, iris, mnist, passages, reviews)"
        ),
    }
}

/// Which records are meant.
#[derive(clap::Args)]
pub(crate) struct DataInput {
    /// Files, folders, globs or addresses (s3://, gs://, az://, https://)
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,
    /// The format, where the name does not tell it
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(|_| true))]
    format: Option<Format>,
    #[command(flatten)]
    csv: CsvArgs,
}

/// How CSV files are written down: what `data: {csv: ..}` says in an experiment.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "CSV files")]
pub(crate) struct CsvArgs {
    /// Whether the first row names the columns: `yes`, `no`, or the names of a file without such a row
    #[arg(long, value_name = "yes|no|A,B,..")]
    header: Option<CsvHeader>,
    /// What stands between two cells, such as `;` or `tab`; by default a comma, in .tsv and .tab files a tab
    #[arg(long, value_name = "SIGN")]
    separator: Option<Separator>,
    /// Leave out spaces around cells
    #[arg(long)]
    trim: bool,
    /// Words that stand for a missing value, as in `NA,nan`; an empty cell always does
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    missing: Vec<String>,
}

impl CsvArgs {
    /// As an experiment has them.
    pub(crate) fn settings(&self) -> CsvSettings {
        let CsvArgs { header, separator, trim, missing } = self.clone();
        CsvSettings { header, separator, trim, missing }
    }
}

impl DataInput {
    fn open(&self) -> Result<Dataset> {
        let bar = ProgressBar::no_length();
        let progress = |done: usize, total: usize| {
            if total as u64 >= MANY_FILES {
                show_indexing(&bar, done as u64, total as u64);
            }
        };
        let csv = self.csv.settings();
        let options = OpenOptions { csv, progress: Some(&progress), ..OpenOptions::default() };
        let reader = open_indexed(&self.data, self.format, &options)?;
        bar.finish_and_clear();
        Ok(Dataset::new(Arc::from(reader))?)
    }
}

/// Takes the names of the table of formats, or of those in it that are wanted; `--help` lists them.
pub(crate) fn format_parser(wanted: fn(Format) -> bool) -> impl TypedValueParser<Value = Format> {
    let wanted = Format::ALL.iter().copied().filter(|format| wanted(*format));
    let values = wanted.map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Format>())
}

/// Records read at a time by commands that read everything.
const BLOCK: u64 = 1024;

/// Calls `each` with the numbers of all records, block by block.
pub(crate) fn in_blocks(
    dataset: &Dataset,
    mut each: impl FnMut(&[u64]) -> Result<()>,
) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What `split` writes is read again without a word about its format.
    #[test]
    fn the_name_of_a_written_file_tells_its_format() {
        let written = Format::ALL.iter().copied().filter(|format| format.is_written());
        // Pictures are a folder, which is told by what is in it.
        for format in written.filter(|format| *format != Format::ImageFolder) {
            let name = format!("train.{format}");
            assert_eq!(Format::of_name(name.as_ref()), Some(format), "{name}");
        }
    }

    /// A format that is in the table can be named on the command line, and `--help` says what it is.
    #[test]
    fn options_take_the_formats_of_the_table() {
        let program =
            <Command as clap::Subcommand>::augment_subcommands(clap::Command::new("data"));
        let check = |command: &str, option: &str, expected: Vec<Format>| {
            let mut command = program.find_subcommand(command).expect("known").clone();
            let taken = command.get_arguments().find(|argument| argument.get_id() == option);
            let taken = taken.expect("known").get_possible_values();
            let names: Vec<&str> = taken.iter().map(|value| value.get_name()).collect();
            assert_eq!(names, expected.iter().map(|format| format.name()).collect::<Vec<_>>());
            // Lines are wrapped to the terminal.
            let help = command.render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            for format in expected {
                assert!(help.contains(&format!("- {format}:")), "{format} in {help}");
                assert!(help.contains(format.about()), "{format} in {help}");
            }
        };
        let written = || Format::ALL.iter().copied().filter(|format| format.is_written()).collect();
        for command in ["inspect", "verify", "convert", "split"] {
            check(command, "format", Format::ALL.to_vec());
        }
        for command in ["convert", "split", "generate"] {
            check(command, "to", written());
        }
    }
}
