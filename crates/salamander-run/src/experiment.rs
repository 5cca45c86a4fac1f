//! Reading an experiment file from disk, and what is changed in it for a run.

use std::fs;
use std::path::Path;

use salamander_core::experiment::{Experiment, Strategy, Workers};
use serde_json::json;

use crate::Error;
use crate::connect::Scale;

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

    /// The numbers of processes that are named here, of those in force: a run that goes on has these, whatever it was
    /// scaled to.
    pub(crate) fn asked(&self, in_force: &Experiment) -> Scale {
        let is_named = |field: &str, own: bool| own || self.sets.iter().any(|set| sets(set, field));
        let workers = is_named("workers", self.workers.is_some());
        let servers = is_named("ps.servers", self.servers.is_some());
        Scale {
            workers: workers.then_some(in_force.workers.max),
            servers: servers.then_some(in_force.ps.servers),
        }
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

/// Whether `PATH=VALUE` says the field, a part of it, or all that the field is part of.
fn sets(set: &str, field: &str) -> bool {
    let path = set.split_once('=').map_or(set, |(path, _)| path).trim();
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    within(path, field) || within(field, path)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_processes_that_are_set_are_asked_for() {
        let text = "strategy: hybrid\nworkers: 3\nps: {servers: 2}\n";
        let in_force = Experiment::parse(text, &[]).expect("valid");
        let check = |sets: &[&str], workers: Option<u32>, servers: Option<u32>| {
            let sets = sets.iter().map(|set| set.to_string()).collect();
            let overrides = Overrides { sets, ..Overrides::default() };
            assert_eq!(overrides.asked(&in_force), Scale { workers, servers });
        };
        check(&[], None, None);
        check(&["workers=3"], Some(3), None);
        check(&["workers.max=3"], Some(3), None);
        check(&["ps.servers=2"], None, Some(2));
        check(&["ps={servers: 2}", "name=workers=3"], None, Some(2));
        check(&["ps.push_buffer=8", "workersx=1"], None, None);
        let workers = Some(Workers { min: 1, max: 3 });
        let named = Overrides { workers, servers: Some(2), ..Overrides::default() };
        let both = Scale { workers: Some(3), servers: Some(2) };
        assert_eq!(named.asked(&in_force), both);
    }
}
