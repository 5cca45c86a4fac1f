//! `salamander data generate`: data like public files, with a truth that is known.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use salamander_core::words::count;
use salamander_data::generate::{Census, Criteo, MovieLens, Pictures, Reachable, Sequences, World};
use salamander_data::{Format, sink};
use serde_json::json;

use super::{BLOCK, format_parser, records_bar};
use crate::out;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the data are like
    like: Like,
    /// The file to write: `.csv` and `.tsv` have a header row, all others are written as the public file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How many records to write
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// Leave out so many records of the same world first: to validate on others than those trained on
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Another seed, another world
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Different values of a column, at most (criteo)
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    values: u64,
    /// Users (movielens)
    #[arg(long, value_name = "N", default_value_t = 6_040)]
    users: u64,
    /// Films (movielens)
    #[arg(long, value_name = "N", default_value_t = 3_706)]
    films: u64,
    /// The format to write, where the ending does not tell it
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(Format::is_written))]
    to: Option<Format>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// The worlds there are.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Like {
    /// Incomes, as in UCI's adult.data
    Census,
    /// Clicks, as in Criteo's train.txt
    Criteo,
    /// Ratings, as in MovieLens' ratings.dat
    Movielens,
    /// Sequences of 32 tokens in two classes, for encoders
    Sequences,
    /// Pictures of ten classes, as in CIFAR-10's binary files
    Cifar,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let Some(world) = world(args) else { return pictures(args) };
    let format = args.to.or_else(|| Format::of_name(&args.out)).unwrap_or(world.format());
    ensure!(
        format.is_text(),
        "{}: generated data are text: write a .csv file, and `salamander data convert` it to {format}",
        args.out.display()
    );
    let mut reachable = Reachable::default();
    write(args, format, |file, record| {
        let drawn = world.draw(record);
        file.write(&drawn.row(&*world))?;
        reachable.observe(&drawn);
        Ok(())
    })?;
    Ok(show(args, &reachable)?)
}

/// Pictures, in the format of CIFAR-10 or in any other that holds bytes.
fn pictures(args: &Args) -> Result<()> {
    let world = Pictures::new(args.seed);
    let format = args.to.or_else(|| Format::of_name(&args.out)).unwrap_or(Format::Cifar);
    write(args, format, |file, record| Ok(file.write(&world.draw(record).row())?))?;
    let (records, out) = (args.records, args.out.display().to_string());
    match args.json {
        true => outln!("{}", json!({ "records": records, "file": out }))?,
        false => outln!("{records} pictures of ten classes: {out}")?,
    }
    Ok(())
}

/// Writes the records that the arguments ask for.
fn write(
    args: &Args,
    format: Format,
    mut each: impl FnMut(&mut dyn sink::Sink, u64) -> Result<()>,
) -> Result<()> {
    let last = args.skip.checked_add(args.records).context("--skip: there are no such records")?;
    if let Some(folder) = args.out.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut file = sink::create(&args.out, format)?;
    let bar = records_bar(args.records);
    for record in args.skip..last {
        each(&mut *file, record)?;
        if record % BLOCK == 0 {
            bar.set_position(record - args.skip);
        }
    }
    file.finish()?;
    bar.finish_and_clear();
    Ok(())
}

/// The world that text is drawn from; pictures have one of their own.
fn world(args: &Args) -> Option<Box<dyn World>> {
    match args.like {
        Like::Census => Some(Box::new(Census::new(args.seed))),
        Like::Criteo => Some(Box::new(Criteo::new(args.seed, args.values))),
        Like::Movielens => Some(Box::new(MovieLens::new(args.seed, args.users, args.films))),
        Like::Sequences => Some(Box::new(Sequences::new(args.seed))),
        Like::Cifar => None,
    }
}

fn show(args: &Args, reachable: &Reachable) -> Result<(), out::Error> {
    let (auc, log_loss) = (reachable.auc(), reachable.log_loss());
    let (records, out, positives) = (args.records, args.out.display(), reachable.positives());
    if args.json {
        let object = json!({
            "records": records, "file": out.to_string(), "positives": positives, "auc": auc,
            "log_loss": log_loss,
        });
        return outln!("{object}");
    }
    let records = count(records, "record");
    outln!("{records}, {:.1} % of them positive: {out}", 100.0 * positives)?;
    outln!("the truth reaches AUC {auc:.4} and log-loss {log_loss:.4}: no model does better")
}
