//! Reading an experiment file from disk, for the subcommands that take one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use salamander_core::experiment::{Experiment, Strategy};

/// Reads and checks a file; its paths become independent of the working directory.
pub(super) fn load(path: &Path, sets: &[String]) -> Result<Experiment> {
    let shown = path.display();
    let mut experiment = parse(path, sets)?;
    let file = fs::canonicalize(path).with_context(|| format!("experiment {shown}"))?;
    experiment.resolve_paths(file.parent().unwrap_or(Path::new("/")));
    match experiment.strategy {
        Strategy::Local if experiment.workers.max > 1 => bail!(
            "experiment {shown}: strategy local trains in one process: write `strategy: allreduce`, \
             or `workers: 1`"
        ),
        Strategy::Local | Strategy::Allreduce | Strategy::Hybrid | Strategy::Ps => {}
    }
    Ok(experiment)
}

/// The strategy that a file asks for, before anything else about it is checked.
pub(super) fn strategy(path: &Path, sets: &[String]) -> Result<Strategy> {
    parse(path, sets).map(|experiment| experiment.strategy)
}

fn parse(path: &Path, sets: &[String]) -> Result<Experiment> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("experiment {shown}"))?;
    Experiment::parse(&text, sets).map_err(|error| anyhow!("experiment {shown}: {error}"))
}

/// Puts the file's name in front of what is wrong in it.
pub(super) fn in_file(path: &Path, error: salamander_train::Error) -> anyhow::Error {
    match error {
        salamander_train::Error::Experiment(error) => {
            anyhow!("experiment {}: {error}", path.display())
        }
        salamander_train::Error::Invalid(reason) => {
            anyhow!("experiment {}: {reason}", path.display())
        }
        other => other.into(),
    }
}
