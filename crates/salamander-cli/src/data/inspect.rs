//! `salamander data inspect`: what a file holds.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::HumanBytes;
use salamander_core::words::count;
use salamander_data::stats::Stats;
use salamander_data::{Blob, Dataset, Format, Shard};
use serde_json::json;

use super::{Input, records_bar, show};
use crate::out;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,
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
    let mut columns: Vec<(String, &'static str)> = Vec::new();
    let mut sample = Vec::new();
    let first: Vec<u64> = (0..args.sample.min(records)).collect();
    dataset.read(&first, &mut |_, row| {
        if columns.is_empty() {
            columns = row.columns().map(|(name, v)| (name.to_string(), v.kind())).collect();
        }
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
        let columns: Vec<_> = columns.iter().map(|(n, k)| json!({"name": n, "kind": k})).collect();
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
    for (name, kind) in &columns {
        outln!("  {name}: {kind}")?;
    }
    for row in &sample {
        outln!("{row}")?;
    }
    if let Some(stats) = stats {
        outln!()?;
        print_statistics(&stats)?;
    }
    Ok(())
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
fn print_statistics(stats: &Stats) -> Result<(), out::Error> {
    for column in stats.columns() {
        let missing = stats.missing(&column.name);
        let values = count(column.values, "value");
        let mut line = format!("{}: {values}, {missing} missing", column.name);
        if let Some(numbers) = column.numbers.as_ref().filter(|numbers| numbers.count > 0) {
            let (mean, std) = (numbers.mean, numbers.std());
            let median = numbers.quantile(0.5).unwrap_or(f64::NAN);
            line.push_str(&format!(
                ", {} to {}, mean {mean:.6}, std {std:.6}, median {median}",
                numbers.min, numbers.max
            ));
        }
        if let Some(words) = &column.words {
            let about = if words.exact() { "" } else { "about " };
            let top: Vec<String> =
                words.top(3).iter().map(|(word, count)| format!("{word} ({count})")).collect();
            line.push_str(&format!(", {about}{} distinct: {}", words.distinct(), top.join(", ")));
        }
        if let Some(lengths) = column.lengths {
            line.push_str(&format!(", {} to {} bytes", lengths.min, lengths.max));
        }
        outln!("{line}")?;
    }
    Ok(())
}
