//! A search on this machine: its trials are ordinary runs in processes of their own, one for each slot.
//!
//! Decisions are those of `salamander-search`, a function of the journaled order of reports: a search that was killed
//! reads its journal, comes to the same decisions, and goes on. A trial trains to the length at which it is looked at,
//! is measured, and ends with a checkpoint, from which it goes on if it may.
//!
//! # Layout
//! - [`SearchDraft`]: a search that is read and checked, by `checks`
//! - [`SearchRun`]: one that has a folder, in `conduct`
//! - `folders`: the runs of trials; `processes`: who trains them; `trial`: what such a process does
//! - `journal`: what decisions follow from, on the disk; `widths`: idle slots widen trials
//! - [`SearchEnd`]: what was found; [`SearchTable`]: the same in rows; `store`: the same in SQLite

mod checks;
mod conduct;
mod end;
mod folders;
mod journal;
mod processes;
mod store;
mod table;
mod trial;
mod widths;

use std::fs;
use std::path::{Path, PathBuf};

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use salamander_search::{AskedSearch, SearchFile, TrialId};
use serde_json::{Value as Json, json};

use crate::experiment::{in_file, wrong};
use crate::folder::{RunFolder, RunName};
use crate::program::chosen_seed;
use crate::provenance::Provenance;
use crate::same_experiment::first_difference;
use crate::{Error, Overrides, Program, TrainsOn, stop_request, warm_start};

use checks::{check_elsewhere, check_settings};
pub use conduct::{SearchNews, SearchStanding};
pub use end::SearchEnd;
use folders::TrialFolders;
pub use table::SearchTable;
pub(crate) use trial::{TrialSlot, trial};

/// Whether a folder holds a search.
pub fn is_search(folder: &Path) -> bool {
    RunLayout::new(folder).search().is_file()
}

/// The model of a search, if its file names one.
pub(crate) fn searched_model(folder: &Path) -> Option<String> {
    let kept = KeptSearch::read(&RunLayout::new(folder).search()).ok()?;
    kept.file.experiment().model().map(str::to_string)
}

/// Why what is asked of one run cannot be asked of a search.
pub fn no_single_run(folder: &Path) -> Error {
    let best = read_search(folder).ok().and_then(|end| {
        let (best, _) = end.search().best()?;
        Some(format!("; its best trial is the run {}", end.trial_folder(best.id).display()))
    });
    let (folder, best) = (folder.display(), best.unwrap_or_default());
    Error::Invalid(format!(
        "{folder} is a search: `salamander search table {folder}` lists its trials{best}"
    ))
}

/// What the command line says of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// A search of so many trials, also where the file has no searcher.
    pub trials: Option<u64>,
    /// Trials at a time, each in a process of its own.
    pub slots: u32,
}

/// A search that is read and checked.
pub struct SearchDraft {
    program: Program,
    path: PathBuf,
    kept: KeptSearch,
    /// The id that it is to have.
    id: Option<String>,
    on: TrainsOn,
}

/// A search with its folder.
pub struct SearchRun {
    program: Program,
    /// The file that is named where something is wrong in it.
    path: PathBuf,
    kept: KeptSearch,
    folder: RunFolder,
    on: TrainsOn,
}

/// What the folder of a search keeps of how it was begun.
struct KeptSearch {
    /// The folder that the file's paths are relative to.
    base: PathBuf,
    seed: u32,
    /// The slots that it began with: the widest size of an elastic trial.
    slots: u32,
    file: SearchFile,
}

impl Program {
    /// Reads a file for a new search; `None`: it is one trial with known hyperparameters.
    pub fn search(
        &self,
        file: &Path,
        overrides: &Overrides,
        options: SearchOptions,
    ) -> Result<Option<SearchDraft>, Error> {
        let text = fs::read_to_string(file).map_err(|error| wrong(file, error))?;
        let read = SearchFile::parse(&text, &overrides.sets).map_err(|error| wrong(file, error))?;
        if !read.is_search() && options.trials.is_none() {
            return Ok(None);
        }
        let strategy = read.experiment().strategy;
        let sets = overrides.sets_for(strategy);
        let mut read = SearchFile::parse(&text, &sets).map_err(|error| wrong(file, error))?;
        let model = self.models().find(read.experiment().model());
        let model = model.map_err(|error| in_file(file, error))?;
        if let Some(trials) = options.trials {
            let (model, concurrent) = (&model.hparams(), u64::from(options.slots));
            let asked = AskedSearch { trials, concurrent, model, sets: &overrides.sets };
            read = read.asked(&asked).map_err(|error| wrong(file, error))?;
        }
        read.space().check(&model.hparams()).map_err(|error| wrong(file, error))?;
        check_settings(&read).map_err(|reason| wrong(file, reason))?;
        let seed = read.experiment().reproducibility.experiment_seed.unwrap_or_else(chosen_seed);
        read.method(seed).map_err(|error| wrong(file, error))?;
        let absolute = fs::canonicalize(file).map_err(Error::io(file))?;
        let base = absolute.parent().unwrap_or(Path::new("/")).to_path_buf();
        let kept = KeptSearch { base, seed, slots: options.slots, file: read };
        let (path, id) = (file.to_path_buf(), overrides.id.clone());
        let (program, on) = (self.clone(), TrainsOn::default());
        Ok(Some(SearchDraft { program, path, kept, id, on }))
    }

    /// In what the search of a folder differs from that of a file which has its id, in words: it is gone on with as it
    /// was begun. Only what is searched for and how: paths and what was `--set` may be written otherwise.
    pub fn search_differs(
        &self,
        folder: &Path,
        file: &Path,
        overrides: &Overrides,
        options: SearchOptions,
    ) -> Option<String> {
        let kept = KeptSearch::read(&RunLayout::new(folder).search()).ok()?;
        let options = SearchOptions { slots: kept.slots, ..options };
        let Some(draft) = self.search(file, overrides, options).ok()? else {
            return Some("the file is that of one trial".to_string());
        };
        let searched = |file: &SearchFile| {
            let all = file.to_json();
            json!({"searcher": all["searcher"], "hyperparameters": all["hyperparameters"]})
                .to_string()
        };
        first_difference(&searched(&kept.file), &searched(&draft.kept.file))
    }

    /// Goes on with a search.
    pub fn resume_search(&self, folder: &Path) -> Result<SearchRun, Error> {
        let folder = RunFolder::open(folder)?;
        stop_request::forget(folder.layout());
        let path = folder.layout().search();
        let kept = KeptSearch::read(&path)?;
        Ok(SearchRun { program: self.clone(), path, kept, folder, on: TrainsOn::default() })
    }
}

/// How a search stands, from its folder alone: also of one that goes on, and by a program without its model.
pub fn read_search(folder: &Path) -> Result<SearchEnd, Error> {
    let layout = RunLayout::new(folder);
    let path = layout.search();
    if !path.is_file() {
        let reason = format!("{}: no search, for it has no search.json", folder.display());
        return Err(Error::Invalid(reason));
    }
    let kept = KeptSearch::read(&path)?;
    let mut search = kept.file.search(kept.seed).map_err(|error| wrong(&path, error))?;
    let (heard, _) = journal::read(&layout.search_journal())?;
    let (_, seconds) = search.hear_again(&heard);
    let interrupted = !search.is_over();
    Ok(SearchEnd { layout, interrupted, seconds, search })
}

impl SearchDraft {
    /// The file in force, as YAML.
    pub fn in_force(&self) -> String {
        self.kept.file.to_yaml()
    }

    /// Trials train there instead of on this machine.
    pub fn on(mut self, on: TrainsOn) -> Result<Self, Error> {
        if !on.is_this_machine() {
            let method = self.kept.file.method(self.kept.seed);
            let method = method.map_err(|error| wrong(&self.path, error))?;
            let keeps_folder = on.keeps_folder()?;
            let checked = check_elsewhere(self.kept.file.experiment(), &method.rule, keeps_folder);
            checked.map_err(|reason| wrong(&self.path, reason))?;
        }
        self.on = on;
        Ok(self)
    }

    /// Makes its folder below `runs`, if the model can be tried with the hyperparameters of the first trial.
    pub fn create(self, runs: &Path) -> Result<SearchRun, Error> {
        let Self { program, path, mut kept, id, on } = self;
        let weights = warm_start::resolve(kept.file.experiment(), runs);
        if let Some(weights) = weights.map_err(|reason| wrong(&path, reason))? {
            // Every trial begins with them, whatever becomes of the source's name.
            let set = format!("start_from={}", json!(weights));
            let text = kept.file.to_yaml();
            kept.file = SearchFile::parse(&text, &[set]).map_err(|error| wrong(&path, error))?;
        }
        let model = program.models().find(kept.file.experiment().model())?;
        let name = kept.file.experiment().name.clone();
        let name = name.unwrap_or_else(|| model.name().to_string());
        let name = RunName::new(&name, id.as_deref())?;
        let folder = RunFolder::create(runs, name, |folder| {
            let layout = RunLayout::new(folder);
            if on.is_this_machine() {
                TrialFolders::new(&program, &path, &kept, &layout)?.try_first()?;
            }
            if on.is_this_machine() {
                let mut experiment = kept.file.experiment().clone();
                experiment.resolve_paths(&kept.base);
                Provenance::note(&layout, || Provenance::of(&experiment));
            }
            kept.write(&layout.search())
        })?;
        Ok(SearchRun { program, path, kept, folder, on })
    }
}

impl SearchRun {
    /// Trials train there instead of on this machine.
    #[must_use]
    pub fn on(mut self, on: TrainsOn) -> Self {
        self.on = on;
        self
    }

    /// The search's folder.
    pub fn layout(&self) -> &RunLayout {
        self.folder.layout()
    }

    /// The seed of everything that is drawn.
    pub fn seed(&self) -> u32 {
        self.kept.seed
    }

    /// The run of a trial.
    pub fn trial(&self, trial: TrialId) -> RunLayout {
        end::trial_layout(self.layout(), trial)
    }
}

impl KeptSearch {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::io(path))?;
        let kept: Json = serde_json::from_str(&text).map_err(Error::broken(path))?;
        let absent = |name: &str| Error::broken(path)(format!("it has no \"{name}\""));
        let text = |name: &str| kept[name].as_str().ok_or_else(|| absent(name));
        let number = |name: &str| {
            let number = kept[name].as_u64().and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| absent(name))
        };
        let file = SearchFile::parse(text("file")?, &[]).map_err(|error| wrong(path, error))?;
        let (base, seed) = (PathBuf::from(text("base")?), number("seed")?);
        Ok(Self { base, seed, slots: number("slots")?, file })
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let Self { base, seed, slots, file } = self;
        let kept = json!({"base": base, "seed": seed, "slots": slots, "file": file.to_yaml()});
        let text = format!("{kept:#}\n");
        replace(path, text.as_bytes(), Durability::Synced).map_err(Error::io(path))
    }
}
