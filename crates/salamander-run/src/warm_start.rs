//! Warm starts: the weights that a new run begins with, by the run or the checkpoint that they are of. What the
//! optimizer knew stays behind.

use std::fs;
use std::path::{Path, PathBuf};

use salamander_core::experiment::Experiment;
use salamander_core::layout::{MANIFEST, MODEL, RunLayout};
use salamander_train::checkpoint::{CheckpointStore, Which};
use serde_json::Value as Json;

use crate::folder::find;

/// The weights that `searcher.source_trial_id` and `source_checkpoint_uuid` stand for; `None`: there is neither, or a
/// hub has found them already. What is wrong begins with the field.
pub(crate) fn resolve(experiment: &Experiment, runs: &Path) -> Result<Option<PathBuf>, String> {
    let searcher = &experiment.searcher;
    let trial = searcher.source_trial_id.as_ref().map(|source| source.0.as_str());
    let checkpoint = searcher.source_checkpoint_uuid.as_deref();
    if experiment.start_from.is_some() {
        return Ok(None);
    }
    let folder = match (trial, checkpoint) {
        (None, None) => return Ok(None),
        (Some(trial), name) => of_trial(trial, name, runs)?,
        (None, Some(place)) => by_place(place, runs)?,
    };
    with_weights(&folder).map(Some)
}

fn of_trial(trial: &str, name: Option<&str>, runs: &Path) -> Result<PathBuf, String> {
    let found = find(trial, runs).map_err(|error| {
        format!(
            "searcher.source_trial_id: {error} (numbers of a hub are known to it: \
             `salamander experiment create` takes them)"
        )
    })?;
    let run = RunLayout::new(found);
    if let Some(name) = name {
        return Ok(run.checkpoints().join(name));
    }
    let all = CheckpointStore::list(&run.checkpoints());
    let all = all.map_err(|error| format!("searcher.source_trial_id: {error}"))?;
    let absent = || format!("searcher.source_trial_id: {trial} has no checkpoint");
    Ok(run.checkpoints().join(&all.last().ok_or_else(absent)?.id))
}

/// A checkpoint by its folder, or as `RUN/NAME`.
fn by_place(place: &str, runs: &Path) -> Result<PathBuf, String> {
    let folder = PathBuf::from(place);
    if folder.is_dir() {
        return Ok(folder);
    }
    let named = place.rsplit_once('/').and_then(|(run, name)| {
        let found = RunLayout::new(find(run, runs).ok()?).checkpoints().join(name);
        found.is_dir().then_some(found)
    });
    named.ok_or_else(|| {
        format!(
            "searcher.source_checkpoint_uuid: there is no checkpoint {place:?}: write its folder, or RUN/NAME \
             (numbers of a hub, and its models, are known to it: `salamander experiment create` takes them)"
        )
    })
}

/// The weights of a checkpoint that is whole.
fn with_weights(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    let wrong = |reason: String| format!("searcher: the source {shown}: {reason}");
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let all = folder.parent().unwrap_or(Path::new(""));
    CheckpointStore::find(all, &Which::Id(name)).map_err(|error| wrong(error.to_string()))?;
    let manifest = fs::read(folder.join(MANIFEST)).unwrap_or_default();
    let manifest: Json = serde_json::from_slice(&manifest).unwrap_or_default();
    if manifest["tables"].as_object().is_some_and(|tables| !tables.is_empty()) {
        let reason = "it has tables, whose rows are on parameter servers and do not come along";
        return Err(wrong(reason.to_string()));
    }
    let weights = folder.join(MODEL);
    fs::canonicalize(&weights).map_err(|error| wrong(format!("{MODEL}: {error}")))
}
