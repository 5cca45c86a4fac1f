//! `salamander data inspect`: what a file holds.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::HumanBytes;
use salamander_core::words::count;
use salamander_data::stats::{Stats, Words};
use salamander_data::{
    Blob, ColumnInfo, ColumnKind, Dataset, Format, MISSING_WORDS, Shard, add_columns_of,
};
use serde_json::json;

use super::{DataInput, records_bar, show};
use crate::out;

/// Records whose columns are shown where the source does not know them.
const LOOK_AT: u64 = 1000;
/// Words among which one for a missing value is looked for.
const FREQUENT: usize = 50;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: DataInput,
    /// Records to show
    #[arg(long, default_value_t = 3)]
    sample: u64,
    /// Read everything and show statistics of each column
    #[arg(long)]
    stats: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let dataset = args.input.open()?;
    let records = dataset.len();
    let first = dataset.shards().first().map(|shard| PathBuf::from(&shard.name));
    let format = args.input.format.or_else(|| Format::guess(&first?).ok());
    let format = format.map_or("several".to_string(), |format| format.to_string());
    let columns = columns(&dataset)?;
    let mut sample = Vec::new();
    let first: Vec<u64> = (0..args.sample.min(records)).collect();
    dataset.read(&first, &mut |_, row| {
        sample.push(show(&row));
        Ok(())
    })?;
    let stats = if args.stats { Some(statistics(&dataset)?) } else { None };
    if args.json {
        let shards: Vec<_> = dataset
            .shards()
            .iter()
            .map(|shard| {
                json!({"name": shard.name, "records": shard.records, "bytes": bytes(shard)})
            })
            .collect();
        let column = |column: &ColumnInfo| json!({"name": column.name, "kind": kind(column)});
        let columns: Vec<_> = columns.iter().map(column).collect();
        let object = json!({
            "format": format, "records": records, "shards": shards, "columns": columns,
            "sample": sample, "stats": stats,
        });
        outln!("{object}")?;
        return Ok(());
    }
    let shards = dataset.shards();
    let size: u64 = shards.iter().filter_map(bytes).sum();
    let (records, files) = (count(records, "record"), count(shards.len() as u64, "shard"));
    outln!("{format}, {records}, {files}, {}", HumanBytes(size))?;
    for column in &columns {
        outln!("  {}: {}", column.name, kind(column))?;
    }
    for row in &sample {
        outln!("{row}")?;
    }
    if let Some(stats) = stats {
        outln!()?;
        print_statistics(&stats, format == Format::Csv.name())?;
    }
    Ok(())
}

/// The columns that the source knows, or those of its first records: one alone may lack some.
fn columns(dataset: &Dataset) -> Result<Vec<ColumnInfo>> {
    if let Some(columns) = dataset.columns() {
        return Ok(columns);
    }
    let (mut columns, first) = (Vec::new(), (0..dataset.len().min(LOOK_AT)).collect::<Vec<u64>>());
    dataset.read(&first, &mut |_, row| {
        add_columns_of(&mut columns, &row);
        Ok(())
    })?;
    Ok(columns)
}

fn kind(column: &ColumnInfo) -> &'static str {
    match (column.kind, column.list) {
        (ColumnKind::Bytes, true) => "a list of bytes",
        (ColumnKind::Text, true) => "a list of text",
        (kind, _) => kind.name(),
    }
}

/// The size of a shard, where it is one file.
fn bytes(shard: &Shard) -> Option<u64> {
    Blob::open(Path::new(&shard.name)).ok().map(|blob| blob.size())
}

fn statistics(dataset: &Dataset) -> Result<Stats> {
    let bar = records_bar(dataset.len());
    let stats = Stats::of(dataset, |records| bar.inc(records))?;
    bar.finish_and_clear();
    Ok(stats)
}

/// One line per column: what the numbers are, or which words are frequent.
fn print_statistics(stats: &Stats, is_csv: bool) -> Result<(), out::Error> {
    for column in stats.columns() {
        let missing = stats.missing(&column.name);
        let values = count(column.values, "value");
        let mut line = format!("{}: {values}, {missing} missing", column.name);
        if let Some(numbers) = column.numbers.as_ref().filter(|numbers| numbers.count > 0) {
            let (mean, std) = (numbers.mean, numbers.std());
            let median = numbers.quantile(0.5).unwrap_or(f64::NAN);
            let about = if numbers.quantiles_are_exact() { "" } else { "about " };
            line.push_str(&format!(
                ", {} to {}, mean {mean:.6}, std {std:.6}, median {about}{median}",
                numbers.min, numbers.max
            ));
            if numbers.not_finite > 0 {
                line.push_str(&format!(", {} not a number or infinite", numbers.not_finite));
            }
        }
        if let Some(words) = &column.words {
            let about = if words.exact() { "" } else { "about " };
            let top: Vec<String> =
                words.top(3).iter().map(|(word, count)| format!("{word} ({count})")).collect();
            line.push_str(&format!(", {about}{} distinct: {}", words.distinct(), top.join(", ")));
            if let Some(advice) = missing_advice(words).filter(|_| is_csv) {
                line.push_str(&advice);
            }
        }
        if let Some(lengths) = column.lengths {
            line.push_str(&format!(", {} to {} bytes", lengths.min, lengths.max));
        }
        outln!("{line}")?;
    }
    Ok(())
}

/// What to say where frequent words stand for missing values in most files.
fn missing_advice(words: &Words) -> Option<String> {
    let frequent = words.top(FREQUENT);
    let mut frequent = frequent.iter().map(|(word, _)| *word);
    let word = frequent.find(|word| MISSING_WORDS.contains(word))?;
    Some(format!(" (if {word} stands for a missing value: --missing '{word}')"))
}

#[cfg(test)]
mod tests {
    use salamander_data::{Row, Value};

    use super::*;

    #[test]
    fn words_for_missing_values_are_noticed() {
        let check = |words: &[&'static str], expected: Option<&str>| {
            let row = |word: &'static str| Row::new(vec![("x".into(), Value::Text(word))]);
            let stats: Stats = words.iter().copied().map(row).collect();
            let words = stats.columns()[0].words.as_ref().expect("words");
            assert_eq!(missing_advice(words).as_deref(), expected);
        };
        check(&["1", "2", "NA"], Some(" (if NA stands for a missing value: --missing 'NA')"));
        check(&["1", "?", "?"], Some(" (if ? stands for a missing value: --missing '?')"));
        check(&["1", "2", "NAM"], None);
    }
}
