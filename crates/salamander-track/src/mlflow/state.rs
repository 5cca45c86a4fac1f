//! What an MLflow server has been told of a run, kept in its folder: whoever sends next goes on from there.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

use super::batch::{MetricPoint, SentUpTo};
use crate::about::{Error, read_json};

/// What was told, and what is being told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderState {
    /// The server; for another one everything begins again.
    pub uri: String,
    /// The experiment's name there.
    pub experiment: String,
    /// A random name that only this run has: it is looked for before a run is made.
    pub uid: String,
    /// How far it was told, what is being sent included.
    pub told: SentUpTo,
    /// What is being sent. It is written down before, so that it is the same when it is sent again.
    pub sending: Vec<MetricPoint>,
    /// The best trial of a search and its number, as it was told.
    pub best: Option<(f64, u64)>,
    /// The parameters that the server has.
    pub params: Vec<(String, String)>,
    /// The status that the server has, and since when, in milliseconds.
    pub status: Option<(String, i64)>,
    /// The artifacts that the server has, by their checksums.
    pub artifacts: Vec<(String, u32)>,
}

impl SenderState {
    /// Reads it, or begins for this server.
    pub fn open(run: &RunLayout, uri: &str, experiment: &str) -> Result<Self, Error> {
        let path = run.mlflow();
        let kept: Option<Self> = path.is_file().then(|| read_json(&path)).transpose()?;
        if let Some(kept) = kept.filter(|kept| kept.uri == uri && kept.experiment == experiment) {
            return Ok(kept);
        }
        let (uri, experiment) = (uri.to_string(), experiment.to_string());
        let state = Self { uri, experiment, uid: random_name(&path)?, ..Self::default() };
        // Before anybody hears of it.
        state.keep(run)?;
        Ok(state)
    }

    /// Writes it.
    pub fn keep(&self, run: &RunLayout) -> Result<(), Error> {
        let path = run.mlflow();
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        replace(&path, &bytes, Durability::Synced).map_err(Error::file(&path))
    }
}

/// A random name, for what a file will keep.
pub(crate) fn random_name(path: &Path) -> Result<String, Error> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(Error::file(path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_gone_on_with_and_another_one_begun_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        let mut first = SenderState::open(&run, "http://a", "x").expect("made");
        first.told.steps = 7;
        first.keep(&run).expect("written");
        assert_eq!(SenderState::open(&run, "http://a", "x").expect("read"), first);
        let other = SenderState::open(&run, "http://b", "x").expect("made");
        assert_eq!(other.told.steps, 0);
        assert_ne!(other.uid, first.uid);
        std::fs::write(run.mlflow(), "{").expect("written");
        let error = SenderState::open(&run, "http://a", "x").expect_err("broken").to_string();
        assert!(error.contains("mlflow.json"), "{error}");
    }
}
