//! `salamander data split`: training, validation and test files, each class divided alike if wanted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use salamander_core::words::count;
use salamander_data::split::{oversample, split, stratified_split};
use salamander_data::types::Types;
use salamander_data::{Dataset, Format, Value, add_columns_of};

use super::convert::Shards;
use super::{BLOCK, DataInput, format_parser, in_blocks, records_bar};

const NAMES: [&str; 3] = ["train", "validation", "test"];

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: DataInput,
    /// The folder to write train, validation and test files to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Shares of train, validation and test, with commas or spaces between them; DATA comes before this option or
    /// after another one
    #[arg(long, num_args = 1..=3, default_value = "0.8,0.1,0.1")]
    shares: Vec<String>,
    /// Divide each value of this column alike
    #[arg(long, value_name = "COLUMN")]
    stratify: Option<String>,
    /// Repeat records of the rarer values of that column in the training part, until all are as frequent
    #[arg(long, requires = "stratify")]
    oversample: bool,
    /// Another seed, another division
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The format to write
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "recordio",
        value_parser = format_parser(Format::is_written)
    )]
    to: Format,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let shares = shares(&args.shares)?;
    refuse_left(&args.out, shares.len(), args.to)?;
    let dataset = args.input.open()?;
    let parts = match &args.stratify {
        Some(column) => {
            let classes = classes(&dataset, column)?;
            let mut parts = stratified_split(&classes, &shares, args.seed)?;
            if args.oversample {
                // Only what is trained on: a repeated record in another part would be counted twice.
                parts[0] = evened(&parts[0], &classes, args.seed);
            }
            parts
        }
        None => split(dataset.len(), &shares, args.seed)?,
    };
    let types = Types::infer(&dataset, args.to)?;
    std::fs::create_dir_all(&args.out)?;
    let bar = records_bar(parts.iter().map(|part| part.len() as u64).sum());
    for (name, mut part) in NAMES.into_iter().zip(parts) {
        // In the order of the source, which reads fastest; training shuffles anyway.
        part.sort_unstable();
        let path = args.out.join(format!("{name}.{}", args.to));
        let mut file = Shards::new(&path, Some(args.to), None, None)?;
        file.expect(types.columns());
        for block in part.chunks(BLOCK as usize) {
            dataset.read(block, &mut |_, row| file.write(&types.apply(&row)))?;
            bar.inc(block.len() as u64);
        }
        file.finish()?;
        outln!("{}: {}", path.display(), count(part.len() as u64, "record"))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Refuses a folder with a part of an earlier division that this one does not replace: records of it would be in two
/// parts.
fn refuse_left(out: &Path, parts: usize, to: Format) -> Result<()> {
    let left = NAMES[parts..].iter().map(|name| out.join(format!("{name}.{to}")));
    for path in left {
        ensure!(
            !path.exists(),
            "{}: it is of another division, and its records would be in the new parts as well: remove it, or name \
             another folder by --out",
            path.display()
        );
    }
    Ok(())
}

/// The shares as they were typed, with commas or spaces between them.
fn shares(typed: &[String]) -> Result<Vec<f64>> {
    let parts =
        typed.iter().flat_map(|text| text.split([',', ' '])).filter(|part| !part.is_empty());
    let shares: Option<Vec<f64>> = parts.map(|part| part.parse().ok()).collect();
    let fits = |shares: &Vec<f64>| {
        (1..=NAMES.len()).contains(&shares.len()) && shares.iter().all(|share| *share >= 0.0)
    };
    shares.filter(fits).with_context(|| {
        let typed = typed.join(" ");
        format!(
            "--shares {typed}: write one to three shares, none below 0, as in --shares 0.8 0.1 0.1"
        )
    })
}

/// The records with repetitions, so that every class occurs as often.
fn evened(records: &[u64], classes: &[u64], seed: u64) -> Vec<u64> {
    let labels: Vec<u64> = records.iter().map(|&record| classes[record as usize]).collect();
    oversample(&labels, seed).into_iter().map(|place| records[place as usize]).collect()
}

/// The class of every record: equal values of the column are one class, and so are records without one.
fn classes(dataset: &Dataset, column: &str) -> Result<Vec<u64>> {
    let mut numbers = BTreeMap::<Option<String>, u64>::new();
    let (mut classes, mut columns) = (Vec::new(), Vec::new());
    in_blocks(dataset, |block| {
        Ok(dataset.read(block, &mut |_, row| {
            let value = match row.get(column) {
                Some(Value::Text(text)) => Some(text.to_string()),
                Some(other) => Some(format!("{other:?}")),
                None => None,
            };
            add_columns_of(&mut columns, &row);
            let next = numbers.len() as u64;
            classes.push(*numbers.entry(value).or_insert(next));
            Ok(())
        })?)
    })?;
    if numbers.keys().all(Option::is_none) && !dataset.is_empty() {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        bail!("--stratify {column}: no record has it (there are: {})", names.join(", "));
    }
    if numbers.len() as u64 == dataset.len() && dataset.len() > 1 {
        bail!("--stratify {column}: every record has a value of its own");
    }
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct SplitLine {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn records_without_the_value_are_a_class_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let lines = "{\"x\": 1, \"y\": null}\n{\"y\": \"a\"}\n{\"y\": \"a\"}\n{\"x\": 2}\n";
        std::fs::write(&path, lines).expect("written");
        let reader = salamander_data::open(&[path], None).expect("opens");
        let dataset = Dataset::new(std::sync::Arc::from(reader)).expect("counted");
        assert_eq!(classes(&dataset, "y").expect("classes"), [0, 1, 1, 0]);
        let error = classes(&dataset, "z").expect_err("no such column").to_string();
        assert_eq!(error, "--stratify z: no record has it (there are: x, y)");
    }

    #[test]
    fn a_part_of_another_division_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |parts: usize, refused: bool| {
            let found = refuse_left(folder.path(), parts, Format::Csv);
            assert_eq!(found.is_err(), refused, "{parts} parts: {found:?}");
        };
        for name in ["train.csv", "validation.csv", "test.recordio"] {
            std::fs::write(folder.path().join(name), "x\n").expect("written");
        }
        check(2, false);
        check(1, true);
        std::fs::write(folder.path().join("test.csv"), "x\n").expect("written");
        check(3, false);
        check(2, true);
        let elsewhere = folder.path().join("nothing");
        refuse_left(&elsewhere, 1, Format::Csv).expect("a folder that is not there yet");
    }

    #[test]
    fn shares_are_separated_by_commas_or_spaces() {
        let check = |typed: &[&str], expected: &[f64]| {
            let line = ["split", "a.csv", "--out", "parts"].iter().chain(typed);
            let line = SplitLine::try_parse_from(line).expect("arguments");
            assert_eq!(shares(&line.args.shares).expect("shares"), expected, "{typed:?}");
        };
        check(&[], &[0.8, 0.1, 0.1]);
        check(&["--shares", "0.9,0.1,0"], &[0.9, 0.1, 0.0]);
        check(&["--shares", "0.9", "0.1", "0"], &[0.9, 0.1, 0.0]);
        check(&["--shares", "0.9,", "0.1", "--seed", "1"], &[0.9, 0.1]);
        for wrong in ["", "-1", "half", "1,1,1,1"] {
            let error = shares(&[wrong.to_string()]).expect_err(wrong).to_string();
            assert!(error.contains("write one to three shares"), "{error}");
        }
    }
}
