//! `salamander data peek`: exactly which records a step takes.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use salamander_core::order::Order;
use salamander_core::plan::Plan;
use salamander_core::words::count;
use salamander_train::trainer::open_data;

use super::show;
use salamander_run::experiment::load;

#[derive(clap::Args)]
pub(crate) struct Args {
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
}

pub(super) fn run(args: &Args) -> Result<()> {
    peek(&args.experiment, args.epoch, args.step, &args.sets)
}

fn peek(path: &Path, epoch: u64, step: u64, sets: &[String]) -> Result<()> {
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
        slices: experiment.slices(),
    };
    if step >= plan.steps() {
        bail!("an epoch has {}, numbered from 0", count(plan.steps(), "step"));
    }
    let order = Order::new(dataset.len(), data.shuffle, u64::from(seed), epoch);
    for slice in plan.micro_batches(epoch, step, plan.aggregation) {
        outln!("micro-batch {}", slice.name.k)?;
        for position in slice.positions {
            let record = order.record_of(position, |record| dataset.part_of(record));
            let mut shown = String::new();
            dataset.read(&[record], &mut |_, row| {
                shown = show(&row);
                Ok(())
            })?;
            outln!("  {} {shown}", dataset.describe(record))?;
        }
    }
    Ok(())
}
