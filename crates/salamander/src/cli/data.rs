//! `salamander data`: getting data sets, and seeing which records a step takes.

use std::path::PathBuf;

use anyhow::{Result, bail};
use salamander_core::order::Order;
use salamander_core::plan::Plan;
use salamander_data::{Row, Value};
use salamander_train::trainer::open_data;

use super::experiment::load;

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
    /// Show exactly which records a step takes
    Peek {
        /// The experiment file
        experiment: PathBuf,
        /// The epoch, from 0
        #[arg(long, default_value_t = 0)]
        epoch: u64,
        /// The optimizer step within the epoch, from 0
        #[arg(long, default_value_t = 0)]
        step: u64,
        /// Change a field, as in `train`
        #[arg(long = "set", value_name = "A.B=V")]
        sets: Vec<String>,
    },
}

pub(super) fn run(command: Command) -> Result<()> {
    match command {
        Command::Fetch { name, from, to } if name == "mnist" => {
            let files = crate::fetch::mnist(from.as_deref(), &to, &mut |line| eprintln!("{line}"))?;
            files.iter().for_each(|file| println!("{}", file.display()));
            Ok(())
        }
        Command::Fetch { name, .. } => bail!("data set \"{name}\" is not known (known: mnist)"),
        Command::Peek { experiment, epoch, step, sets } => peek(&experiment, epoch, step, &sets),
    }
}

fn peek(path: &std::path::Path, epoch: u64, step: u64, sets: &[String]) -> Result<()> {
    let experiment = load(path, sets)?;
    let Some(seed) = experiment.reproducibility.experiment_seed else {
        bail!(
            "the experiment names no seed: use the experiment.yaml of a run, or --set \
               reproducibility.experiment_seed=N"
        );
    };
    let data = &experiment.data;
    let dataset = open_data("data.training", &data.training.0, data)?;
    let plan = Plan {
        records: dataset.len(),
        batch: experiment.global_batch,
        aggregation: experiment.optimizations.aggregation_frequency,
        slices: experiment.micro_batches.unwrap_or(1),
    };
    if step >= plan.steps() {
        bail!("an epoch has {} steps, numbered from 0", plan.steps());
    }
    let order = Order::new(dataset.len(), data.shuffle, u64::from(seed), epoch);
    for slice in plan.micro_batches(epoch, step, plan.aggregation) {
        println!("micro-batch {}", slice.name.k);
        for position in slice.positions {
            let record = order.record(position);
            let mut shown = String::new();
            dataset.read(&[record], &mut |_, row| {
                shown = show(&row);
                Ok(())
            })?;
            println!("  {} {shown}", dataset.describe(record));
        }
    }
    Ok(())
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
