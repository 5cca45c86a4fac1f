//! What `salamander new --tabular` writes: a crate for the columns of a file, with its data divided, statistics and
//! vocabularies.

mod columns;
mod source;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use salamander_core::experiment::{CsvHeader, CsvSettings};
use salamander_core::words::{count, count_is};
use salamander_data::sink::{Sink, create_csv};
use salamander_data::split::{split, stratified_split};
use salamander_data::stats::Stats;
use salamander_data::{Dataset, Format, MISSING_WORDS, OpenOptions, Row, Value, open_indexed};
use salamander_files::{Durability, PendingFolder};

use crate::data::{CsvArgs, format_parser, in_blocks};
use columns::InputColumn;

/// Shares of training and validation.
const SHARES: [f64; 2] = [0.8, 0.2];
const SEED: u64 = 1;
/// More different whole numbers than this are a quantity, not classes.
const MOST_NUMBERED: usize = 20;
/// More different texts than this are no classes.
const MOST_CLASSES: usize = 1000;

/// The table to write a crate for.
#[derive(clap::Args)]
pub(crate) struct TabularArgs {
    /// Write a model for the columns of this file (CSV, Parquet or another format) instead of an example: numbers
    /// are normalised, words become embeddings, a fifth of the records is for validation
    #[arg(long, value_name = "FILE", requires = "label")]
    tabular: Option<PathBuf>,
    /// The column of that file to predict: classes, or a quantity
    #[arg(long, value_name = "COLUMN", requires = "tabular")]
    label: Option<String>,
    /// The file's format, where its name does not tell it
    #[arg(long, value_name = "FORMAT", requires = "tabular", value_parser = format_parser(|_| true))]
    format: Option<Format>,
    #[command(flatten)]
    csv: CsvArgs,
}

impl TabularArgs {
    /// Writes the crate, if there is a table.
    pub(super) fn write(&self, name: Option<&str>) -> Option<Result<()>> {
        let (file, label) = (self.tabular.as_ref()?, self.label.as_ref()?);
        let csv = self.csv.settings();
        Some(open(file, self.format, csv.clone()).and_then(|dataset| {
            let name = name.map_or_else(|| name_of(file), str::to_string);
            let table = SourceTable { file, dataset, csv };
            write(&name, &table, label)
        }))
    }

    /// Refuses what is said of a table that is not there.
    pub(super) fn check(&self) -> Result<()> {
        let told = self.tabular.is_some() || self.csv.settings().is_default();
        ensure!(
            told,
            "--header, --separator, --trim and --missing are about a table: name it by --tabular FILE"
        );
        Ok(())
    }
}

/// The table, and how its file is written down.
struct SourceTable<'a> {
    file: &'a Path,
    dataset: Dataset,
    csv: CsvSettings,
}

/// Writes the crate into a new folder of its name.
fn write(name: &str, table: &SourceTable<'_>, label: &str) -> Result<()> {
    let SourceTable { file, dataset, csv } = table;
    let folder = super::free_folder(name)?;
    ensure!(!dataset.is_empty(), "{}: there are no records in it", file.display());
    let whole = Stats::of(dataset, |_| {})?;
    let columns = usable(&whole);
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    ensure!(
        names.contains(&label),
        "{}: there is no column \"{label}\" of numbers or text (there are: {})",
        file.display(),
        names.join(", ")
    );
    let target = LabelColumn::read(dataset, label)?;
    // It appears when all of it is there.
    let beside = folder.with_file_name(format!(".new-{}", std::process::id()));
    let pending = PendingFolder::create(&beside).with_context(|| beside.display().to_string())?;
    let data = pending.path().join("data");
    fs::create_dir_all(&data)?;
    let parts = target.divide()?;
    let mut emptied = 0;
    for (part, records) in ["train.csv", "valid.csv"].iter().zip(&parts) {
        // As the file itself, so that what reads the one reads the other.
        let sink = create_csv(&data.join(part), csv.separator)?;
        emptied += target.write(dataset, &columns, records, sink)?;
    }
    // Of what is trained on: nothing of the validation may be known before.
    let stats = Stats::of(&open(&data.join("train.csv"), None, own_csv(csv))?, |_| {})?;
    fs::write(pending.path().join("stats.json"), serde_json::to_string(&stats)?)?;
    let found = columns::find(&stats, label, columns::unfit(&whole));
    ensure!(!found.fields.is_empty(), "{}: no column tells anything", file.display());
    vocabularies(pending.path(), &stats, &found.fields)?;
    let source = source::program(file, &target, &found.fields);
    super::write_files(
        pending.path(),
        &[
            ("Cargo.toml", super::manifest(name)),
            ("src/main.rs", source),
            (
                "experiment.yaml",
                source::experiment(name, &target, &columns, &to_read(csv, emptied)),
            ),
            (".gitignore", super::GITIGNORE.to_string()),
        ],
    )?;
    super::share_build(pending.path())?;
    let written = pending.commit(&folder, Durability::Unsynced);
    written.with_context(|| folder.display().to_string())?;
    tell(&target, &found, &parts)?;
    columns::unread_numbers(&whole).iter().for_each(|warning| errln!("{warning}"));
    if emptied > 0 {
        let (cells, words) = (count_is(emptied, "cell"), MISSING_WORDS.join(", "));
        outln!("{cells} empty in data/ where the file has a word for a missing value ({words})")?;
    }
    Ok(super::ready(name)?)
}

/// Says what was made of the columns.
fn tell(target: &LabelColumn, found: &columns::FoundColumns, parts: &[Vec<u64>]) -> Result<()> {
    let [train, valid] = [0, 1].map(|part| parts.get(part).map_or(0, Vec::len));
    outln!("{train} records to train on, {valid} to validate; {} inputs", found.fields.len())?;
    match &target.classes {
        Some(classes) => outln!("{}: classes {}", target.column, classes.join(", "))?,
        None => outln!("{}: a number to predict", target.column)?,
    }
    if target.missing > 0 {
        let records = count(target.missing, "record");
        outln!("{records} without {}: left out", target.column)?;
    }
    for (column, reason) in &found.left_out {
        outln!("column {column:?} is left out: {reason}")?;
    }
    Ok(())
}

fn open(file: &Path, format: Option<Format>, csv: CsvSettings) -> Result<Dataset> {
    let options = OpenOptions { csv, ..OpenOptions::default() };
    let reader = open_indexed(&[file.to_path_buf()], format, &options)?;
    Ok(Dataset::new(Arc::from(reader))?)
}

/// How the files of the crate are written: their first row is the header, whatever the names look like.
fn own_csv(table: &CsvSettings) -> CsvSettings {
    let separator = table.separator;
    CsvSettings { header: Some(CsvHeader::Yes), separator, ..CsvSettings::default() }
}

/// How the experiment reads its files, so that it reads the table itself and others like it as well: there the words
/// still stand that are empty cells in the crate's.
fn to_read(table: &CsvSettings, emptied: u64) -> CsvSettings {
    let mut csv = table.clone();
    let words = MISSING_WORDS.iter().map(ToString::to_string).filter(|_| emptied > 0);
    for word in words {
        if !csv.missing.contains(&word) {
            csv.missing.push(word);
        }
    }
    csv
}

/// The file's name without its ending, as a crate can have it.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    columns::identifier(&stem)
}

/// Columns of one number or text each.
fn usable(stats: &Stats) -> Vec<String> {
    let single = stats.columns().iter().filter(|column| column.lengths.is_none());
    let single = single.filter(|column| column.values <= column.count);
    single.map(|column| column.name.clone()).collect()
}

/// A word per line, the most frequent first.
fn vocabularies(folder: &Path, stats: &Stats, fields: &[InputColumn]) -> Result<()> {
    for field in fields {
        let columns::ColumnKind::Vocabulary { file, .. } = &field.kind else { continue };
        let column = stats.columns().iter().find(|column| column.name == field.column);
        let Some(words) = column.and_then(|column| column.words.as_ref()) else { continue };
        let words = words.top(columns::MOST_WORDS);
        let text: String = words.iter().map(|(word, _)| format!("{word}\n")).collect();
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// What is to be predicted.
pub(super) struct LabelColumn {
    pub(super) column: String,
    /// The values, each a class by its place; nothing where a number is predicted.
    pub(super) classes: Option<Vec<String>>,
    /// The records that have a value, and the class of each.
    records: Vec<(u64, u64)>,
    missing: u64,
}

impl LabelColumn {
    fn read(dataset: &Dataset, column: &str) -> Result<Self> {
        let mut values = Vec::new();
        let mut missing = 0;
        in_blocks(dataset, |block| {
            Ok(dataset.read(block, &mut |place, row| {
                match row.get(column).and_then(text) {
                    Some(value) => values.push((block[place], value.into_owned())),
                    None => missing += 1,
                }
                Ok(())
            })?)
        })?;
        let classes = classes(column, values.iter().map(|(_, value)| value.as_str()))?;
        let number = |value: &String| {
            let found = classes.iter().flatten().position(|class| class == value);
            found.unwrap_or(0) as u64
        };
        let records = values.iter().map(|(record, value)| (*record, number(value))).collect();
        Ok(Self { column: column.to_string(), classes, records, missing })
    }

    /// The records of training and of validation, each class divided alike.
    fn divide(&self) -> Result<Vec<Vec<u64>>> {
        let parts = match self.classes {
            Some(_) => {
                let labels: Vec<u64> = self.records.iter().map(|(_, class)| *class).collect();
                stratified_split(&labels, &SHARES, SEED)?
            }
            None => split(self.records.len() as u64, &SHARES, SEED)?,
        };
        let mut parts: Vec<Vec<u64>> = parts
            .into_iter()
            .map(|part| part.into_iter().map(|place| self.records[place as usize].0).collect())
            .collect();
        parts.iter_mut().for_each(|part: &mut Vec<u64>| part.sort_unstable());
        ensure!(
            parts.iter().all(|part| !part.is_empty()),
            "too few records to train on some and validate on others"
        );
        Ok(parts)
    }

    /// Whether its classes are 0, 1, 2 and so on already: a label of numbers. All others are text.
    pub(super) fn is_numbered(&self) -> bool {
        let mut classes = self.classes.iter().flatten().enumerate();
        classes.all(|(number, class)| *class == number.to_string())
    }

    /// Writes some records. Returns how many cells had a word for a missing value, and are empty now.
    fn write(
        &self,
        dataset: &Dataset,
        columns: &[String],
        records: &[u64],
        mut file: Box<dyn Sink>,
    ) -> Result<u64> {
        let mut emptied = 0;
        for block in records.chunks(1024) {
            dataset.read(block, &mut |_, row| {
                let words = columns.iter().filter_map(|name| row.get(name));
                emptied += words.filter(|value| is_missing(value)).count() as u64;
                let cells: Vec<Cow<'_, str>> = columns
                    .iter()
                    .map(|name| row.get(name).and_then(text).unwrap_or_default())
                    .collect();
                let row = columns.iter().zip(&cells);
                let row = row.map(|(name, cell)| (name.as_str().into(), Value::Text(cell)));
                file.write(&Row::new(row.collect()))
            })?;
        }
        file.finish()?;
        Ok(emptied)
    }
}

/// Whether a value is a word that stands for none, or no number.
fn is_missing(value: &Value<'_>) -> bool {
    match value {
        Value::Text(text) => MISSING_WORDS.contains(&text.trim()),
        Value::Floats(floats) => floats.len() == 1 && floats[0].is_nan(),
        _ => false,
    }
}

/// A value as text; nothing for what is missing or has several values.
fn text<'a>(value: &'a Value<'_>) -> Option<Cow<'a, str>> {
    match value {
        value if is_missing(value) => None,
        Value::Text(text) => Some(Cow::Borrowed(text.trim())).filter(|text| !text.is_empty()),
        Value::Ints(ints) if ints.len() == 1 => Some(Cow::Owned(ints[0].to_string())),
        Value::Floats(floats) if floats.len() == 1 => Some(Cow::Owned(floats[0].to_string())),
        _ => None,
    }
}

/// The classes among the values of a label; nothing where they are a quantity.
fn classes<'a>(column: &str, values: impl Iterator<Item = &'a str>) -> Result<Option<Vec<String>>> {
    let mut seen = BTreeSet::new();
    let (mut numbers, mut whole) = (true, true);
    for value in values {
        let number = finite(value);
        numbers &= number.is_some();
        // Also 1.0: so pandas writes whole numbers of a column that had a missing one.
        whole &= number.is_some_and(|number| number.fract() == 0.0);
        if numbers && seen.len() > MOST_CLASSES {
            continue;
        }
        seen.insert(value);
        ensure!(
            numbers || seen.len() <= MOST_CLASSES,
            "--label {column}: more than {MOST_CLASSES} different texts are no classes"
        );
    }
    let distinct: BTreeSet<u64> = seen
        .iter()
        .filter_map(|text| finite(text))
        .map(|number| (number + 0.0).to_bits())
        .collect();
    // One number that is written in two ways is no two classes.
    if numbers && (!whole || seen.len() > MOST_NUMBERED || distinct.len() < seen.len()) {
        return Ok(None);
    }
    if seen.len() < 2 {
        bail!("--label {column}: there are not two different values to tell apart");
    }
    let mut classes: Vec<String> = seen.into_iter().map(str::to_string).collect();
    if whole {
        classes.sort_by(|a, b| finite(a).unwrap_or(0.0).total_cmp(&finite(b).unwrap_or(0.0)));
    }
    Ok(Some(classes))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests;
