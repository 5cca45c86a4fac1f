//! Reading an experiment file from disk, and what is changed in it for a run.

use std::fs;
use std::path::Path;

use salamander_core::experiment::{Experiment, Strategy, Workers};
use serde_json::json;

use crate::Error;

/// Changes to an experiment file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Fields by path: `hyperparameters.learning_rate=0.1`.
    pub sets: Vec<String>,
    /// Where gradients meet.
    pub strategy: Option<Strategy>,
    /// The fewest and the most workers.
    pub workers: Option<Workers>,
    /// Parameter servers.
    pub servers: Option<u32>,
    /// Where to compute.
    pub device: Option<String>,
    /// Threads of each worker.
    pub threads: Option<u32>,
    /// Where checkpoints are put as well.
    pub store: Option<String>,
    /// The id of a new run, instead of one made from its name and the time.
    pub id: Option<String>,
    /// Write event files for TensorBoard.
    pub tensorboard: bool,
    /// The address of an MLflow server that hears of the run.
    pub mlflow: Option<String>,
    /// The address of a hub that hears of the run.
    pub hub: Option<String>,
}

impl Overrides {
    /// All changes as fields by path, with what follows from them for a file that says something else.
    pub fn to_sets(&self, file: &Path) -> Result<Vec<String>, Error> {
        let sets = self.own_sets();
        let implied = self.implied(strategy(file, &sets)?);
        Ok(sets.into_iter().chain(implied.map(set_strategy)).collect())
    }

    /// The same for a file whose strategy is known.
    pub(crate) fn sets_for(&self, strategy: Strategy) -> Vec<String> {
        let strategy = self.strategy.unwrap_or(strategy);
        let implied = self.implied(strategy).map(set_strategy);
        self.own_sets().into_iter().chain(implied).collect()
    }

    fn own_sets(&self) -> Vec<String> {
        let mut sets = self.sets.clone();
        sets.extend(self.device.iter().map(|device| format!("device={device}")));
        sets.extend(self.threads.iter().map(|threads| format!("threads={threads}")));
        if let Some(Workers { min, max }) = self.workers {
            sets.push(format!("workers={{min: {min}, max: {max}}}"));
        }
        sets.extend(self.strategy.map(set_strategy));
        sets.extend(self.servers.iter().map(|servers| format!("ps.servers={servers}")));
        sets.extend(self.store.iter().map(|url| format!("checkpoint_storage.store={url}")));
        sets.extend(self.tensorboard.then(|| "tracking.tensorboard=true".to_string()));
        sets.extend(self.hub.iter().map(|url| format!("tracking.hub={}", json!(url))));
        sets.extend(self.mlflow.iter().map(|uri| format!("tracking.mlflow.uri={uri}")));
        sets
    }

    /// What follows from the numbers of workers and servers.
    fn implied(&self, strategy: Strategy) -> Option<Strategy> {
        match strategy {
            _ if self.strategy.is_some() => None,
            Strategy::Local | Strategy::Allreduce if self.servers.is_some() => {
                Some(Strategy::Hybrid)
            }
            Strategy::Local if self.workers.is_some() => Some(Strategy::Allreduce),
            _ => None,
        }
    }
}

fn set_strategy(strategy: Strategy) -> String {
    format!("strategy={}", json!(strategy))
}

/// Reads and checks a file; its paths become independent of the working directory.
pub fn load(path: &Path, sets: &[String]) -> Result<Experiment, Error> {
    let mut experiment = parse(path, sets)?;
    let file = fs::canonicalize(path).map_err(Error::io(path))?;
    experiment.resolve_paths(file.parent().unwrap_or(Path::new("/")));
    if experiment.strategy == Strategy::Local && experiment.workers.max > 1 {
        let advice =
            "strategy local trains in one process: write `strategy: allreduce`, or `workers: 1`";
        return Err(wrong(path, advice));
    }
    Ok(experiment)
}

/// The strategy that a file asks for, before anything else about it is checked.
pub(crate) fn strategy(path: &Path, sets: &[String]) -> Result<Strategy, Error> {
    parse(path, sets).map(|experiment| experiment.strategy)
}

fn parse(path: &Path, sets: &[String]) -> Result<Experiment, Error> {
    let text = fs::read_to_string(path).map_err(|error| wrong(path, error))?;
    Experiment::parse(&text, sets).map_err(|error| wrong(path, error))
}

/// An error of an experiment file.
pub fn wrong(path: &Path, reason: impl ToString) -> Error {
    Error::Experiment { file: path.to_path_buf(), reason: reason.to_string() }
}

/// Puts the file's name in front of what is wrong in it.
pub fn in_file(path: &Path, error: salamander_train::Error) -> Error {
    match error {
        salamander_train::Error::Experiment(error) => wrong(path, error),
        salamander_train::Error::Invalid(reason) => wrong(path, reason),
        other => other.into(),
    }
}
