//! What a run's folder tells besides its metrics: what it is, what it was trained with, and how it ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use salamander_core::experiment::Experiment;
use salamander_core::layout::RunLayout;
use salamander_core::yaml;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a folder cannot be told of.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }

    fn broken(path: &Path) -> impl FnOnce(String) -> Self + use<> {
        let path = path.to_path_buf();
        move |reason| Self::Broken { path, reason }
    }
}

/// What a run is.
#[derive(Clone, Debug)]
pub struct About {
    /// The run's id; of a trial, with that of its search in front.
    pub id: String,
    /// The folder of the search that it is a trial of.
    pub search: Option<RunLayout>,
    /// Whether it is a search itself.
    pub is_search: bool,
    /// The experiment in force.
    pub experiment: Experiment,
    /// The model's hyperparameters by their path: `optimizer.momentum`.
    pub hyperparameters: Vec<(String, Value)>,
    /// When it was made, in seconds since 1970.
    pub begun: f64,
}

impl About {
    /// Reads a folder of a run or a search.
    pub fn read(run: &RunLayout) -> Result<Self, Error> {
        let is_search = run.search().is_file();
        let (path, text) = if is_search {
            let path = run.search();
            let kept: Value = read_json(&path)?;
            let text = kept["file"].as_str().unwrap_or_default().to_string();
            (path, text)
        } else {
            let path = run.experiment();
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            (path, text)
        };
        let broken = |error: yaml::Error| Error::broken(&path)(error.to_string());
        let experiment = yaml::parse(&text).and_then(Experiment::from_root).map_err(broken)?;
        let tree: Value = yaml::from_node(&experiment.hyperparameters).map_err(broken)?;
        let mut hyperparameters = Vec::new();
        flatten("", &tree, &mut hyperparameters);
        let search = search_of(run);
        let id = match &search {
            Some(search) => format!("{}/{}", search.id(), run.id()),
            None => run.id(),
        };
        let begun = modified(&path).unwrap_or(0.0);
        Ok(Self { id, search, is_search, experiment, hyperparameters, begun })
    }

    /// The name of what is tried: the experiment's, else the model's.
    pub fn title(&self) -> &str {
        let name = self.experiment.name.as_deref();
        name.or(self.experiment.model()).unwrap_or("salamander")
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedEnd {
    /// `completed`, `failed` or `interrupted`.
    pub state: String,
    /// When, in seconds since 1970.
    pub time: f64,
    /// The best value of a search, and its trial.
    pub best: Option<(f64, u64)>,
}

impl TrackedEnd {
    /// Reads a run's summary, if it has ended.
    pub fn read(run: &RunLayout) -> Option<Self> {
        let summary: Value = read_json(&run.summary()).ok()?;
        let best = &summary["best"];
        let best = best["metric"].as_f64().zip(best["id"].as_u64());
        let state = summary["state"].as_str()?.to_string();
        Some(Self { state, time: modified(&run.summary())?, best })
    }
}

/// Which classes are taken for which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confusion {
    /// The classes' names.
    pub names: Vec<String>,
    /// Records by truth and prediction.
    pub counts: Vec<Vec<u64>>,
}

impl Confusion {
    /// Reads it from a run's report, if that has one.
    pub fn read(run: &RunLayout) -> Option<Self> {
        let report: Value = read_json(&run.report()).ok()?;
        let confusion: Self = serde_json::from_value(report.get("confusion")?.clone()).ok()?;
        let classes = confusion.names.len();
        let is_square = confusion.counts.len() == classes
            && confusion.counts.iter().all(|row| row.len() == classes);
        (is_square && classes > 0).then_some(confusion)
    }
}

/// The search that a folder is a trial of: `SEARCH/trials/00001`.
fn search_of(run: &RunLayout) -> Option<RunLayout> {
    let search = RunLayout::new(run.folder().parent()?.parent()?);
    (search.search().is_file() && Some(search.trials().as_path()) == run.folder().parent())
        .then_some(search)
}

fn flatten(path: &str, value: &Value, all: &mut Vec<(String, Value)>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() || path.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, all);
            }
        }
        _ => all.push((path.to_string(), value.clone())),
    }
}

pub(crate) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, Error> {
    let bytes = fs::read(path).map_err(Error::file(path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::broken(path)(error.to_string()))
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn modified(path: &Path) -> Option<f64> {
    fs::metadata(path).and_then(|file| file.modified()).ok().map(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_knows_its_search_and_hyperparameters_have_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let search = RunLayout::new(folder.path().join("net-1"));
        let trial = RunLayout::new(search.trials().join("00003"));
        fs::create_dir_all(trial.folder()).expect("made");
        let file = "name: digits\nsearcher: {name: random, max_trials: 2}\n\
                    hyperparameters: {rate: {type: double, minval: 0, maxval: 1}}\n";
        let kept = serde_json::json!({"file": file, "seed": 1, "base": "/"});
        fs::write(search.search(), kept.to_string()).expect("written");
        fs::write(trial.experiment(), "hyperparameters: {rate: 0.5, optimizer: {momentum: 0.9}}\n")
            .expect("written");
        let about = About::read(&trial).expect("read");
        assert_eq!((about.id.as_str(), about.title()), ("net-1/00003", "salamander"));
        assert_eq!(about.search, Some(search.clone()));
        let names: Vec<&str> =
            about.hyperparameters.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["rate", "optimizer.momentum"]);
        let about = About::read(&search).expect("read");
        assert!(about.is_search && about.search.is_none() && about.title() == "digits");
    }

    #[test]
    fn what_is_broken_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        let error = About::read(&run).expect_err("absent").to_string();
        assert!(error.contains("experiment.yaml"), "{error}");
        fs::write(run.experiment(), "workers: many\n").expect("written");
        let error = About::read(&run).expect_err("broken").to_string();
        assert!(error.contains("experiment.yaml") && error.contains("workers"), "{error}");
        fs::write(run.report(), r#"{"confusion": {"names": ["a"], "counts": [[1, 2]]}}"#)
            .expect("ok");
        assert_eq!(Confusion::read(&run), None);
    }
}
