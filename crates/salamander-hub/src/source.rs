//! Warm starts: the checkpoint that a new experiment begins with, by a trial, a checkpoint or a model of this hub.

use std::fs;
use std::path::PathBuf;

use salamander_core::experiment::Experiment;
use salamander_core::layout::{MANIFEST, MODEL};
use serde_json::Value as Json;

use crate::Error;
use crate::hub::Hub;
use crate::ids::RunId;
use crate::store::collected::Place;

/// What an experiment starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WarmStart {
    /// The checkpoint, where it is of one of the hub's runs.
    pub(crate) place: Option<Place>,
    /// Its weights.
    pub(crate) weights: PathBuf,
}

const TRIAL: &str = "searcher.source_trial_id";
const CHECKPOINT: &str = "searcher.source_checkpoint_uuid";

impl Hub {
    /// What `searcher.source_trial_id` and `source_checkpoint_uuid` stand for; `None`: there is neither.
    pub(crate) fn warm_start(&self, experiment: &Experiment) -> Result<Option<WarmStart>, Error> {
        let searcher = &experiment.searcher;
        let trial = searcher.source_trial_id.as_ref().map(|source| source.0.as_str());
        let checkpoint = searcher.source_checkpoint_uuid.as_deref();
        if trial.is_none() && checkpoint.is_none() {
            return Ok(None);
        }
        if experiment.start_from.is_some() {
            let field = if trial.is_some() { TRIAL } else { CHECKPOINT };
            return Err(Error::Invalid(format!("start_from and {field} exclude each other")));
        }
        let (run, name) = match (trial, checkpoint) {
            (Some(trial), name) => {
                let run = self.run_named(TRIAL, trial)?;
                (run, name.map_or_else(|| self.latest(run), |name| Ok(name.to_string()))?)
            }
            (None, Some(place)) => match self.place_named(place)? {
                Some(found) => found,
                // A folder that is no run's of this hub.
                None => return with_weights(PathBuf::from(place), None).map(Some),
            },
            (None, None) => return Ok(None),
        };
        if self.store().is_garbage(run, &name)? {
            let reason = format!("{CHECKPOINT}: checkpoint {name} of run {run} is being deleted");
            return Err(Error::Conflict(reason));
        }
        let folder = self.checkpoint_folder(run, &name)?;
        with_weights(folder, Some((run, name))).map(Some)
    }

    /// A run by its number, or by its folder below the runs.
    fn run_named(&self, field: &str, text: &str) -> Result<RunId, Error> {
        if let Ok(run) = text.parse::<RunId>() {
            return self.store().run(run).map(|run| run.id);
        }
        let below = text.strip_prefix(&*self.runs().to_string_lossy()).unwrap_or(text);
        let found = self.store().run_of(below.trim_matches('/'))?;
        found.ok_or_else(|| {
            Error::NotFound(format!("{field}: there is no run {text:?}: write EXPERIMENT.TRIAL"))
        })
    }

    fn latest(&self, run: RunId) -> Result<String, Error> {
        let all = self.store().checkpoints(run)?;
        let last = all.into_iter().rfind(|one| one.state == "completed");
        let absent = || Error::Conflict(format!("{TRIAL}: run {run} has no checkpoint"));
        last.map(|one| one.name).ok_or_else(absent)
    }

    /// `RUN/NAME`, `model:NAME@ALIAS`, or the folder of a checkpoint.
    fn place_named(&self, text: &str) -> Result<Option<Place>, Error> {
        if let Some(model) = text.strip_prefix("model:") {
            let version = self.store().model_version(model)?;
            return Ok(Some((version.run, version.checkpoint)));
        }
        let path = PathBuf::from(text);
        if path.is_absolute() {
            return Ok(self.place_of(&path.join(MODEL)));
        }
        let parts = text.rsplit_once('/').ok_or_else(|| {
            let advice = "write RUN/NAME, as in 12.3/step-00000100, or model:NAME@ALIAS";
            Error::Invalid(format!("{CHECKPOINT}: {text:?} is no checkpoint: {advice}"))
        })?;
        let run = parts.0.strip_suffix("/checkpoints").unwrap_or(parts.0);
        Ok(Some((self.run_named(CHECKPOINT, run)?, parts.1.to_string())))
    }
}

fn with_weights(folder: PathBuf, place: Option<Place>) -> Result<WarmStart, Error> {
    let path = folder.join(MANIFEST);
    let manifest = fs::read(&path).map_err(Error::io(&path))?;
    let manifest: Json = serde_json::from_slice(&manifest)
        .map_err(|error| Error::Conflict(format!("{}: {error}", path.display())))?;
    if manifest["tables"].as_object().is_some_and(|tables| !tables.is_empty()) {
        return Err(Error::Conflict(format!(
            "{}: it has tables, whose rows are on parameter servers and do not come along",
            folder.display()
        )));
    }
    let weights = folder.join(MODEL);
    match weights.is_file() {
        true => Ok(WarmStart { place, weights }),
        false => Err(Error::NotFound(format!("there is no {}", weights.display()))),
    }
}
