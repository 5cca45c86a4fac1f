//! Reading an experiment file from disk, for the subcommands that take one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use salamander_core::experiment::{Experiment, Strategy};

/// Reads and checks a file; its paths become independent of the working directory.
pub(super) fn load(path: &Path, sets: &[String]) -> Result<Experiment> {
    load_implying(path, sets, |_| None)
}

/// The same, with a strategy that may follow from other flags and the file's own.
pub(super) fn load_implying(
    path: &Path,
    sets: &[String],
    implied: impl FnOnce(Strategy) -> Option<&'static str>,
) -> Result<Experiment> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("experiment {shown}"))?;
    let parse = |sets: &[String]| {
        Experiment::parse(&text, sets).map_err(|error| anyhow!("experiment {shown}: {error}"))
    };
    let mut experiment = parse(sets)?;
    if let Some(strategy) = implied(experiment.strategy) {
        let strategy = format!("strategy={strategy}");
        experiment = parse(&[sets, &[strategy]].concat())?;
    }
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
