//! The runs of a search's trials: each folder is that of an ordinary run.

use std::fs;
use std::path::Path;

use salamander_core::experiment::{Experiment, Strategy, Workers};
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use salamander_search::{Ending, Method, SearchEvent, Trial, TrialId};
use salamander_train::model::Model;

use super::KeptSearch;
use super::end::trial_layout;
use crate::experiment::{in_file, wrong};
use crate::program::find_assets;
use crate::provenance::Provenance;
use crate::{Error, Program};

/// So many trials are tried before a search begins, if the model refuses the hyperparameters of all but the last.
const MOST_TRIED: u64 = 8;

/// Puts the folders of trials in order.
pub(super) struct TrialFolders<'a> {
    model: &'a dyn Model,
    /// The file that is named where something is wrong in it.
    path: &'a Path,
    kept: &'a KeptSearch,
    method: Method,
    search: &'a RunLayout,
}

impl<'a> TrialFolders<'a> {
    pub(super) fn new(
        program: &'a Program,
        path: &'a Path,
        kept: &'a KeptSearch,
        search: &'a RunLayout,
    ) -> Result<Self, Error> {
        let model = program.models().find(kept.file.experiment().model())?;
        let method = kept.file.method(kept.seed).map_err(|error| wrong(path, error))?;
        Ok(Self { model, path, kept, method, search })
    }

    pub(super) fn layout(&self, trial: TrialId) -> RunLayout {
        trial_layout(self.search, trial)
    }

    /// Tries the first trials on two records until one is not refused: what every trial would stumble over is told
    /// before there is any. What may be the fault of their hyperparameters is not.
    pub(super) fn try_first(&self) -> Result<(), Error> {
        let search = self.kept.file.search(self.kept.seed);
        let mut search = search.map_err(|error| wrong(self.path, error))?;
        search.begin();
        for trial in (1..=MOST_TRIED).map(TrialId) {
            let Some(next) = search.trial(trial) else { break };
            match self.try_one(next) {
                Err(error) if error.refuses_hparams() => {}
                // The model itself has failed: another trial may do better.
                Err(Error::Train(salamander_train::Error::Model { .. })) => return Ok(()),
                other => return other,
            }
            // Another one takes its place, where there is one.
            search.step(SearchEvent::Ended { trial, how: Ending::Invalid });
        }
        Ok(())
    }

    fn try_one(&self, trial: &Trial) -> Result<(), Error> {
        let experiment = self.experiment(trial, trial.id, 1)?;
        self.in_force(&experiment)?;
        let assets = find_assets(self.model, &experiment, &self.base_file());
        let assets = assets.map_err(|error| in_file(self.path, error))?;
        let tried = self.model.preflight(&experiment, &assets, None);
        tried.map(drop).map_err(|error| in_file(self.path, error))
    }

    /// Puts a trial's folder in order for its next part, with so many workers to begin with if it is elastic.
    pub(super) fn prepare(
        &self,
        trial: &Trial,
        origin: TrialId,
        width: u32,
    ) -> Result<RunLayout, Error> {
        let layout = self.layout(trial.id);
        let experiment = self.experiment(trial, origin, width)?;
        let in_force = self.in_force(&experiment)?;
        fs::create_dir_all(layout.folder()).map_err(Error::io(layout.folder()))?;
        if !layout.assets().is_dir() {
            find_assets(self.model, &experiment, &self.base_file())?.write(layout.folder())?;
        }
        Provenance::inherit(self.search, &layout);
        self.set_width(trial.id, width)?;
        let path = layout.experiment();
        // The trial's process writes it once more, and syncs it.
        replace(&path, in_force.as_bytes(), Durability::Unsynced).map_err(Error::io(&path))?;
        Ok(layout)
    }

    /// Tells the process of an elastic trial how many workers it is to have.
    pub(super) fn set_width(&self, trial: TrialId, width: u32) -> Result<(), Error> {
        if !self.is_elastic() {
            return Ok(());
        }
        let path = self.layout(trial).width();
        replace(&path, format!("{width}\n").as_bytes(), Durability::Unsynced)
            .map_err(Error::io(&path))
    }

    /// The most workers that a trial's steps are cut for.
    pub(super) fn widest(&self) -> u32 {
        self.kept.file.experiment().micro_batches.unwrap_or(self.kept.slots).max(1)
    }

    pub(super) fn is_elastic(&self) -> bool {
        self.kept.file.experiment().searcher.elastic_trials
    }

    /// Gives a trial the checkpoints of another.
    pub(super) fn copy(&self, trial: TrialId, from: TrialId, until: u64) -> Result<(), Error> {
        let (source, target) = (self.layout(from), self.layout(trial));
        let (mark, done) = (target.copied(), format!("{from} {until}"));
        // A search that goes on has made the copies of its journal, all but the last ones at most.
        if fs::read_to_string(&mark).is_ok_and(|text| text.lines().any(|line| line == done)) {
            return Ok(());
        }
        let _ = fs::remove_dir_all(target.checkpoints());
        copy_folder(&source.checkpoints(), &target.checkpoints())?;
        let before = fs::read_to_string(&mark).unwrap_or_default();
        replace(&mark, format!("{before}{done}\n").as_bytes(), Durability::Synced)
            .map_err(Error::io(&mark))
    }

    /// The experiment of a trial, up to where it is looked at next.
    fn experiment(&self, trial: &Trial, origin: TrialId, width: u32) -> Result<Experiment, Error> {
        let experiment = self.kept.file.trial(&self.method, origin, &trial.hparams(), trial.until);
        let mut experiment = experiment.map_err(|error| wrong(self.path, error))?;
        experiment.resolve_paths(&self.kept.base);
        let (elastic, widest) = (self.is_elastic(), self.widest());
        let settings = experiment.settings_mut();
        settings.entrypoint = Some(self.model.name().to_string());
        if elastic {
            settings.strategy = Strategy::Allreduce;
            settings.workers = Workers { min: 1, max: width };
            // The widest size, for good: other slices would add up to other bits.
            settings.micro_batches = Some(widest);
        }
        let settled = self.model.settle(&mut experiment, &self.kept.base);
        settled.map_err(|error| in_file(self.path, error))?;
        Ok(experiment)
    }

    fn in_force(&self, experiment: &Experiment) -> Result<String, Error> {
        let hparams = self.model.hparams_in_force(experiment);
        Ok(experiment.to_yaml(&hparams.map_err(|error| in_file(self.path, error))?))
    }

    /// Assets are looked for beside the file that the search was read from.
    fn base_file(&self) -> std::path::PathBuf {
        self.kept.base.join(salamander_core::layout::EXPERIMENT)
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::io(to))?;
    for entry in fs::read_dir(from).map_err(Error::io(from))? {
        let entry = entry.map_err(Error::io(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match source.is_dir() {
            true => copy_folder(&source, &target)?,
            false => drop(fs::copy(&source, &target).map_err(Error::io(&source))?),
        }
    }
    Ok(())
}
