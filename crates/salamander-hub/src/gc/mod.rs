//! Checkpoints that nobody needs any more: decided by Determined's policy, journaled, and then removed.
//!
//! The decision comes first and is final: a checkpoint that is to go cannot be registered or started from. Removing it
//! can be repeated, so that a kill at any moment leaves no half of it.
//!
//! # Layout
//! - `policy`: which ones stay, a pure function
//! - [`CollectRequest`], [`Collection`]: what is asked for, and what came of it

mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use salamander_core::experiment::{CheckpointStorage, Experiment};
use salamander_core::layout::RunLayout;
use salamander_search::SearchFile;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::hub::{Hub, Speaker};
use crate::ids::{ExperimentId, RunId};
use crate::operation::Operation;
use crate::store::collected::Place;
use crate::store::page::ListQuery;
use policy::{Keep, TrialStanding};

/// Which checkpoints of an experiment are to stay, where that is not what its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectRequest {
    /// Only tell what would go.
    pub dry_run: bool,
    /// The best of all trials that stay.
    pub save_experiment_best: Option<u64>,
    /// The best of each trial that stay.
    pub save_trial_best: Option<u64>,
    /// The latest of each trial that stay.
    pub save_trial_latest: Option<u64>,
}

/// What was removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// The experiment.
    pub experiment: ExperimentId,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// How many checkpoints stay.
    pub kept: usize,
    /// The room of those that go.
    pub bytes: i64,
    /// Those that go.
    pub removed: Vec<Removed>,
}

/// A checkpoint that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Its run.
    pub run: RunId,
    /// Its name.
    pub checkpoint: String,
    /// Its size.
    pub bytes: i64,
}

impl Hub {
    /// Removes the checkpoints of an experiment that its policy does not keep. Of one that goes on, only trials that
    /// are over are looked at.
    pub fn collect(
        &self,
        by: &Speaker,
        id: ExperimentId,
        request: &CollectRequest,
    ) -> Result<Collection, Error> {
        let mut collection = None;
        self.say_after(by, |store| {
            let experiment = store.experiment(id)?;
            let storage = self.storage(&experiment.folder)?;
            let keep = Keep {
                experiment_best: request
                    .save_experiment_best
                    .unwrap_or(storage.save_experiment_best),
                trial_best: request.save_trial_best.unwrap_or(storage.save_trial_best),
                trial_latest: request.save_trial_latest.unwrap_or(storage.save_trial_latest),
            };
            let mut needed: BTreeSet<Place> = store.registered()?.into_iter().collect();
            needed.extend(store.needed_sources()?);
            needed.extend(self.sources_of_plain_runs()?);
            let all = store.experiment_checkpoints(id)?;
            let standings = self.standings(id, &experiment.state)?;
            let there: Vec<_> = all.iter().filter(|one| one.state == "completed").collect();
            let standing = |run: RunId| standings.get(&run).copied().unwrap_or(TrialStanding::Live);
            let is_needed = |run: RunId, name: &str| needed.contains(&(run, name.to_string()));
            let superfluous = policy::superfluous(&there, keep, standing, is_needed);
            let removed: Vec<Removed> = superfluous
                .iter()
                .map(|one| Removed { run: one.run, checkpoint: one.name.clone(), bytes: one.bytes })
                .collect();
            let checkpoints: Vec<Place> =
                removed.iter().map(|one| (one.run, one.checkpoint.clone())).collect();
            let known = superfluous.iter().map(|one| (*one).clone()).collect();
            collection = Some(Collection {
                experiment: id,
                dry_run: request.dry_run,
                kept: there.len() - removed.len(),
                bytes: removed.iter().map(|one| one.bytes).sum(),
                removed,
            });
            // That nothing goes is a decision as well, where one is due.
            let is_due = || Ok::<_, Error>(store.uncollected()?.iter().any(|(due, _)| *due == id));
            match request.dry_run || (checkpoints.is_empty() && !is_due()?) {
                true => Ok(Vec::new()),
                false => Ok(vec![Operation::Collect { experiment: id, checkpoints, known }]),
            }
        })?;
        if !request.dry_run {
            self.sweep()?;
        }
        collection.ok_or(Error::Closed)
    }

    /// Removes what it was decided to remove; what a kill left over is taken up again.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        let mut swept: BTreeMap<ExperimentId, Vec<Place>> = BTreeMap::new();
        for (experiment, (run, name)) in self.store().garbage()? {
            match self.store().run_folder(run) {
                Ok(folder) => {
                    remove(&RunLayout::new(self.runs().join(folder)).checkpoints(), &name)?;
                }
                // The run is gone, and its checkpoints with it.
                Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            swept.entry(experiment).or_default().push((run, name));
        }
        for (experiment, checkpoints) in swept {
            self.say(&Speaker::default(), Operation::Swept { experiment, checkpoints })?;
        }
        Ok(())
    }

    /// What the file of an experiment says of checkpoints.
    fn storage(&self, folder: &str) -> Result<CheckpointStorage, Error> {
        Ok(self.experiment_in_force(folder)?.checkpoint_storage.clone())
    }

    /// The experiment of a run's or a search's folder.
    fn experiment_in_force(&self, folder: &str) -> Result<Experiment, Error> {
        let layout = RunLayout::new(self.runs().join(folder));
        let wrong = |error: &dyn ToString| {
            Error::Conflict(format!("{folder}: its file cannot be read: {}", error.to_string()))
        };
        if layout.search().is_file() {
            let text = fs::read(layout.search()).map_err(Error::io(&layout.search()))?;
            let kept: serde_json::Value = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
            let file = SearchFile::parse(kept["file"].as_str().unwrap_or_default(), &[]);
            return Ok(file.map_err(|e| wrong(&e))?.experiment().clone());
        }
        Experiment::parse(&self.config_in_force(folder)?, &[]).map_err(|e| wrong(&e))
    }

    /// How the trials of an experiment stand.
    fn standings(
        &self,
        id: ExperimentId,
        state: &str,
    ) -> Result<BTreeMap<RunId, TrialStanding>, Error> {
        let is_over = matches!(state, "completed" | "failed" | "canceled" | "interrupted");
        let mut standings = BTreeMap::new();
        let mut query = ListQuery {
            experiment: Some(id.0),
            archived: Some(true),
            limit: Some(1000),
            ..ListQuery::default()
        };
        loop {
            let page = self.store().runs(&query)?;
            for run in page.items {
                let standing = match run.state.as_str() {
                    "completed" | "invalid" => TrialStanding::Over,
                    _ if state == "completed" => TrialStanding::Over,
                    // It can be activated, or resumed, and goes on from its latest.
                    _ if is_over && run.state != "running" => TrialStanding::MayGoOn,
                    "failed" => TrialStanding::MayGoOn,
                    _ => TrialStanding::Live,
                };
                standings.insert(run.id, standing);
            }
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(standings),
            }
        }
    }

    /// Checkpoints that runs start from which were not started by the hub and train now.
    pub(crate) fn sources_of_plain_runs(&self) -> Result<Vec<Place>, Error> {
        let mut query = ListQuery {
            state: Some("running".to_string()),
            archived: Some(true),
            limit: Some(1000),
            ..ListQuery::default()
        };
        let mut places = Vec::new();
        loop {
            let page = self.store().experiments(&query)?;
            for experiment in page.items {
                let Ok(file) = self.experiment_in_force(&experiment.folder) else { continue };
                places.extend(file.start_from.as_deref().and_then(|path| self.place_of(path)));
            }
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(places),
            }
        }
    }

    /// The checkpoint of a file below the runs: `RUN/checkpoints/NAME/model.safetensors`.
    pub(crate) fn place_of(&self, file: &Path) -> Option<Place> {
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
        let checkpoint = file.strip_prefix(self.runs()).ok()?.parent()?.to_path_buf();
        let name = checkpoint.file_name()?.to_str()?.to_string();
        let folder: PathBuf = checkpoint.parent()?.parent()?.to_path_buf();
        let run = self.store().run_of(folder.to_str()?).ok()??;
        Some((run, name))
    }
}

/// Removes a checkpoint: its name first, since half of a checkpoint is none.
fn remove(checkpoints: &Path, name: &str) -> Result<(), Error> {
    let (folder, beside) = (checkpoints.join(name), checkpoints.join(format!(".{name}.tmp")));
    let absent = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
    match fs::rename(&folder, &beside) {
        Err(error) if !absent(&error) => return Err(Error::io(&folder)(error)),
        _ => {}
    }
    match fs::remove_dir_all(&beside) {
        Err(error) if !absent(&error) => Err(Error::io(&beside)(error)),
        _ => Ok(()),
    }
}
