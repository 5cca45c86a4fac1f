//! A search on this machine: its trials are ordinary runs in processes of their own, one for each slot.
//!
//! Decisions are those of `salamander-search`, a function of the journaled order of reports: a search that was killed
//! reads its journal, comes to the same decisions, and goes on. A trial trains to the length at which it is looked at,
//! is measured, and ends with a checkpoint, from which it goes on if it may.
//!
//! # Layout
//! - [`SearchRun`]: a search that is read and checked; `slots`: its processes; `journal`: what it has heard
//! - [`trial`]: what the process of a trial does

mod journal;
mod slots;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use salamander_search::{
    TrialAction, Ending, SearchEvent, Search, SearchFile, Trial, TrialId, TrialState, Instruction,
};
use serde_json::{Value as Json, json};

use crate::experiment::{in_file, wrong};
use crate::folder::RunFolder;
use crate::program::{chosen_seed, find_assets};
use crate::roles::{Exit, leave_on_signals};
use crate::{Error, Overrides, Program};
use journal::SearchJournal;
use slots::{TrialExit, TrialProcesses};

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Faults of the system that are tolerated in one trial; they do not count as restarts.
const MAX_FAULTS: u64 = 20;
/// Trials in a row whose hyperparameters the model refuses, before the search is given up.
const MAX_INVALID: usize = 100;

/// Whether a folder holds a search.
pub fn is_search(folder: &Path) -> bool {
    RunLayout::new(folder).search().is_file()
}

/// A search that is read and checked.
pub struct SearchRun {
    program: Program,
    path: PathBuf,
    /// The folder that the file's paths are relative to.
    base: PathBuf,
    file: SearchFile,
    search: Search,
    folder: RunFolder,
    seed: u32,
}

/// How a search ended.
pub struct SearchEnd {
    /// Its folder.
    pub layout: RunLayout,
    /// Whether it was stopped before its end; it can be resumed.
    pub interrupted: bool,
    search: Search,
}

impl Program {
    /// Reads a file for a new search below `runs`; `None`: it is one trial with known hyperparameters.
    pub fn search(
        &self,
        file: &Path,
        overrides: &Overrides,
        runs: &Path,
    ) -> Result<Option<SearchRun>, Error> {
        let text = fs::read_to_string(file).map_err(|error| wrong(file, error))?;
        let read = SearchFile::parse(&text, &overrides.sets).map_err(|error| wrong(file, error))?;
        if !read.is_search() {
            return Ok(None);
        }
        let strategy = read.experiment().strategy;
        let sets = overrides.sets_for(strategy);
        let read = SearchFile::parse(&text, &sets).map_err(|error| wrong(file, error))?;
        let model = self.models().find(read.experiment().model());
        let model = model.map_err(|error| in_file(file, error))?;
        read.space().check(&model.hparams()).map_err(|error| wrong(file, error))?;
        if read.experiment().data.validation.0.is_empty() {
            let reason = "data.validation: a search compares trials by what they measure there";
            return Err(wrong(file, reason));
        }
        let seed = read.experiment().reproducibility.experiment_seed.unwrap_or_else(chosen_seed);
        let search = read.search(seed).map_err(|error| wrong(file, error))?;
        let absolute = fs::canonicalize(file).map_err(Error::io(file))?;
        let base = absolute.parent().unwrap_or(Path::new("/")).to_path_buf();
        let name = read.experiment().name.clone().unwrap_or_else(|| model.name().to_string());
        let folder = RunFolder::create(runs, &name, |folder| {
            let path = RunLayout::new(folder).search();
            let kept = json!({"base": base, "seed": seed, "file": read.to_yaml()});
            replace(&path, format!("{kept:#}\n").as_bytes(), Durability::Synced)
                .map_err(Error::io(&path))
        })?;
        let (program, path) = (self.clone(), file.to_path_buf());
        Ok(Some(SearchRun { program, path, base, file: read, search, folder, seed }))
    }

    /// Goes on with a search.
    pub fn resume_search(&self, folder: &Path) -> Result<SearchRun, Error> {
        let folder = RunFolder::open(folder)?;
        let path = folder.layout().search();
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        let kept: Json = serde_json::from_str(&text).map_err(Error::broken(&path))?;
        let field = |name: &str| kept[name].as_str().unwrap_or_default().to_string();
        let seed = kept["seed"].as_u64().unwrap_or(0) as u32;
        let file = SearchFile::parse(&field("file"), &[]).map_err(|error| wrong(&path, error))?;
        let search = file.search(seed).map_err(|error| wrong(&path, error))?;
        let (program, base) = (self.clone(), PathBuf::from(field("base")));
        Ok(SearchRun { program, path, base, file, search, folder, seed })
    }
}

impl SearchRun {
    /// The search's folder.
    pub fn layout(&self) -> &RunLayout {
        self.folder.layout()
    }

    /// The seed of everything that is drawn.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Runs it with so many trials at a time, until it is over or `stop` is set. `tell` is given a line whenever
    /// something was decided.
    pub fn run(
        mut self,
        slots: u32,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(String),
    ) -> Result<SearchEnd, Error> {
        let started = Instant::now();
        let (mut journal, heard) = SearchJournal::open(&self.layout().search_journal())?;
        let mut work = TrialQueue::default();
        let mut actions = self.search.begin();
        for event in heard {
            actions.extend(self.search.arrive(event));
        }
        self.take(actions, &mut work)?;
        let mut slots = TrialProcesses::new(slots);
        let budget = self.file.experiment().searcher.max_seconds.map(Duration::from_secs_f64);
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let out_of_time = budget.is_some_and(|budget| started.elapsed() >= budget);
            if out_of_time && !self.search.is_over() {
                self.hear(SearchEvent::OutOfTime, &mut journal, &mut work, tell)?;
            }
            if self.search.is_over() || stopping {
                slots.stop_all();
                if slots.is_empty() {
                    break;
                }
            } else {
                self.fill(&mut slots, &mut journal, &mut work, tell)?;
            }
            if let Some((trial, outcome)) = slots.next(LOOK)
                // Who is killed while the search pauses is begun again with it.
                && !(stopping && matches!(outcome, TrialExit::Fault(_)))
                && let Some(event) = self.event(trial, outcome, &mut work, tell)
            {
                self.hear(event, &mut journal, &mut work, tell)?;
            }
        }
        let layout = self.layout().clone();
        let interrupted = !self.search.is_over();
        let end = SearchEnd { layout, interrupted, search: self.search };
        let path = end.layout.summary();
        replace(&path, format!("{:#}\n", end.to_json()).as_bytes(), Durability::Synced)
            .map_err(Error::io(&path))?;
        Ok(end)
    }

    /// Starts what can be started.
    fn fill(
        &mut self,
        slots: &mut TrialProcesses,
        journal: &mut SearchJournal,
        work: &mut TrialQueue,
        tell: &mut dyn FnMut(String),
    ) -> Result<(), Error> {
        while slots.has_room() {
            let Some(trial) = work.queue.pop_front() else { return Ok(()) };
            if self.search.trial(trial).is_none_or(|known| known.state != TrialState::Running) {
                continue;
            }
            match self.prepare(trial, work) {
                Ok(layout) => slots.start(trial, &layout)?,
                // The model has refused the hyperparameters.
                Err(Error::Experiment { reason, .. }) => {
                    let invalid = |t: &&Trial| t.state == TrialState::Ended(Ending::Invalid);
                    if self.search.trials().iter().filter(invalid).count() >= MAX_INVALID {
                        return Err(wrong(&self.path, reason));
                    }
                    tell(format!("trial {trial}: {reason}"));
                    let event = SearchEvent::Ended { trial, how: Ending::Invalid };
                    self.hear(event, journal, work, tell)?;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Journals an event and does what follows from it.
    fn hear(
        &mut self,
        event: SearchEvent,
        journal: &mut SearchJournal,
        work: &mut TrialQueue,
        tell: &mut dyn FnMut(String),
    ) -> Result<(), Error> {
        journal.append(&event)?;
        let actions = self.search.arrive(event);
        if let SearchEvent::Report { trial, length, metric } = event {
            let best = self.search.best().map_or(String::new(), |(best, value)| {
                format!(" (best: trial {} with {value})", best.id)
            });
            tell(format!("trial {trial}: {metric} at {length}{best}"));
        }
        for TrialAction { trial, what, reason } in &actions {
            if !matches!(what, Instruction::Create { .. }) {
                tell(format!("trial {trial}: {reason}"));
            }
        }
        self.take(actions, work)
    }

    /// Puts what is to be trained into the queue; copies are made at once, while their source stands still.
    fn take(&mut self, actions: Vec<TrialAction>, work: &mut TrialQueue) -> Result<(), Error> {
        for action in &actions {
            if let Instruction::Copy { from, until } = action.what {
                let origin = work.origin(from);
                work.origins.insert(action.trial, origin);
                self.copy(action.trial, from, until)?;
            }
        }
        for action in actions {
            match action.what {
                Instruction::Create { .. } | Instruction::Train { .. } | Instruction::Copy { .. } => {
                    work.queue.retain(|queued| *queued != action.trial);
                    work.queue.push_back(action.trial);
                }
                Instruction::Pause | Instruction::Stop => work.queue.retain(|queued| *queued != action.trial),
            }
        }
        // Of a journal that was read, only what is still to be done counts.
        let search = &self.search;
        work.queue.retain(|trial| {
            let running = search.trial(*trial).is_some_and(|t| t.state == TrialState::Running);
            running && !search.is_waiting(*trial)
        });
        Ok(())
    }

    fn layout_of(&self, trial: TrialId) -> RunLayout {
        RunLayout::new(self.layout().trials().join(format!("{:05}", trial.0)))
    }

    /// Puts a trial's folder in order for its next part.
    fn prepare(&self, trial: TrialId, work: &TrialQueue) -> Result<RunLayout, Error> {
        let layout = self.layout_of(trial);
        let Some(known) = self.search.trial(trial) else {
            return Err(Error::Invalid(format!("there is no trial {trial}")));
        };
        let model = self.program.models().find(self.file.experiment().model())?;
        let method = self.search.method();
        let experiment = self.file.trial(method, work.origin(trial), &known.hparams, known.until);
        let mut experiment = experiment.map_err(|error| wrong(&self.path, error))?;
        experiment.resolve_paths(&self.base);
        experiment.settings_mut().entrypoint = Some(model.name().to_string());
        let refused = |error| in_file(&self.path, error);
        let in_force = experiment.to_yaml(&model.hparams_in_force(&experiment).map_err(refused)?);
        fs::create_dir_all(layout.folder()).map_err(Error::io(layout.folder()))?;
        if !layout.assets().is_dir() {
            let assets = find_assets(model, &experiment, &self.base.join("experiment.yaml"))?;
            assets.write(layout.folder())?;
        }
        let path = layout.experiment();
        replace(&path, in_force.as_bytes(), Durability::Synced).map_err(Error::io(&path))?;
        Ok(layout)
    }

    /// Gives a trial the checkpoints of another.
    fn copy(&self, trial: TrialId, from: TrialId, until: u64) -> Result<(), Error> {
        let (source, target) = (self.layout_of(from), self.layout_of(trial));
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

    /// What the end of a process means.
    fn event(
        &self,
        trial: TrialId,
        outcome: TrialExit,
        work: &mut TrialQueue,
        tell: &mut dyn FnMut(String),
    ) -> Option<SearchEvent> {
        let known = self.search.trial(trial)?;
        let summary = fs::read_to_string(self.layout_of(trial).summary()).unwrap_or_default();
        let summary: Json = serde_json::from_str(&summary).unwrap_or_default();
        match outcome {
            TrialExit::Done => {
                let metric = &summary["metrics"]["validation"][&self.search.method().metric];
                let metric = metric.as_f64().unwrap_or(f64::NAN);
                return Some(SearchEvent::Report { trial, length: known.until, metric });
            }
            TrialExit::Left => {
                work.queue.push_front(trial);
                return None;
            }
            TrialExit::Failed | TrialExit::Fault(_) => {}
        }
        let restarts = work.restarts.entry(trial).or_default();
        let why = match outcome {
            TrialExit::Fault(signal) => {
                restarts.faults += 1;
                format!("was killed by signal {signal}")
            }
            _ => {
                restarts.failures += 1;
                let error = summary["error"].as_str().map(str::to_string);
                let error = error.or_else(|| last_error(&self.layout_of(trial)));
                error.unwrap_or_else(|| "failed without a word; see its log".to_string())
            }
        };
        let most = self.file.experiment().max_restarts.0;
        if restarts.failures > most || restarts.faults > MAX_FAULTS {
            tell(format!("trial {trial}: {why}; given up"));
            return Some(SearchEvent::Ended { trial, how: Ending::Failed });
        }
        tell(format!("trial {trial}: {why}; started again"));
        work.queue.push_front(trial);
        None
    }
}

/// What is still to be done.
#[derive(Default)]
struct TrialQueue {
    queue: VecDeque<TrialId>,
    restarts: BTreeMap<TrialId, TrialRestarts>,
    /// The trial that a copy's checkpoints began with.
    origins: BTreeMap<TrialId, TrialId>,
}

#[derive(Default)]
struct TrialRestarts {
    failures: u64,
    faults: u64,
}

impl TrialQueue {
    fn origin(&self, trial: TrialId) -> TrialId {
        self.origins.get(&trial).copied().unwrap_or(trial)
    }
}

impl SearchEnd {
    /// What the search has found.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Whether it came to its end, with at least one trial that did not fail.
    pub fn is_completed(&self) -> bool {
        !self.interrupted && !self.search.has_failed()
    }

    /// The folder of a trial.
    pub fn trial_folder(&self, trial: TrialId) -> PathBuf {
        self.layout.trials().join(format!("{:05}", trial.0))
    }

    /// One object for programs.
    pub fn to_json(&self) -> Json {
        let state = match (self.interrupted, self.search.has_failed()) {
            (true, _) => "interrupted",
            (false, true) => "failed",
            (false, false) => "completed",
        };
        let trial = |trial: &Trial| {
            json!({
                "id": trial.id,
                "state": trial.state.as_str(),
                "hparams": trial.hparams,
                "length": trial.length(),
                "metric": trial.metric().filter(|metric| metric.is_finite()),
                "reason": trial.reason,
                "dir": self.trial_folder(trial.id),
            })
        };
        json!({
            "experiment": self.layout.id(),
            "run": self.layout.id(),
            "dir": self.layout.folder(),
            "state": state,
            "metric": self.search.method().metric,
            "trials": self.search.trials().iter().map(trial).collect::<Vec<Json>>(),
            "best": self.search.best().map(|(best, value)| json!({
                "id": best.id, "metric": value, "hparams": best.hparams,
                "dir": self.trial_folder(best.id),
            })),
        })
    }
}

/// The process of a trial: trains the run of this folder to where it pauses.
pub(crate) fn trial(program: &Program, run: &RunLayout) -> Result<Exit, Error> {
    let leave = leave_on_signals()?;
    let folder = run.folder().to_string_lossy().into_owned();
    let note = &mut |note: String| tracing::info!("{note}");
    let draft = program.resume(&folder, &Overrides::default(), run.folder(), note)?;
    let run = draft.start()?;
    while !run.is_over() {
        let _ = run.next_event(LOOK);
        if leave.load(Ordering::Relaxed) {
            run.stop();
        }
    }
    match run.wait()?.outcome.interrupted {
        true => Ok(Exit::Left),
        false => Ok(Exit::Done),
    }
}

/// What a trial's process said last of what went wrong.
fn last_error(run: &RunLayout) -> Option<String> {
    let log = fs::read_to_string(run.log("worker-0")).ok()?;
    log.lines().rev().find_map(|line| line.strip_prefix("error: ").map(str::to_string))
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
