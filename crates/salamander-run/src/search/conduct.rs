//! Conducts a search: starts what is to be trained, hears how it ended, and does what follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};
use salamander_search::{
    Ending, Instruction, Search, SearchEvent, Trial, TrialAction, TrialId, TrialState,
};
use salamander_track::{Patience, Tracker};
use serde_json::Value as Json;

use super::SearchRun;
use super::end::SearchEnd;
use super::folders::TrialFolders;
use super::journal::{self, DurableSearch};
use super::processes::{TrialExit, TrialProcesses};
use super::store::TrialStore;
use super::widths::widths;
use crate::experiment::wrong;
use crate::{Error, TrainsOn, stored};

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Kills by the system that are tolerated in one trial; they do not count as restarts.
const MAX_KILLS: u64 = 20;
/// Failures of the system in a row, such as a full disk, before the search ends, to be resumed.
const MAX_SYSTEM: u64 = 3;
/// Trials whose hyperparameters the model refuses, with hardly any that it takes, before the search is given up.
const MAX_INVALID: usize = 100;

/// What a search tells whoever follows it.
pub enum SearchNews<'a> {
    /// Something has happened: a line for people.
    Line(String),
    /// How it stands, several times a second.
    Standing(SearchStanding<'a>),
}

/// How a search stands.
pub struct SearchStanding<'a> {
    /// What was decided so far.
    pub search: &'a Search,
    /// The trials that train now, and their workers.
    pub training: Vec<(TrialId, u32)>,
    /// How many wait for a slot.
    pub waiting: usize,
    /// How many seconds the search has taken, pauses left out.
    pub seconds: f64,
}

/// Whoever follows a search.
pub(super) type Tell<'a> = &'a mut dyn FnMut(SearchNews<'_>);

impl SearchRun {
    /// Runs it with so many trials at a time, until it is over or `stop` is set. `tell` is told what happens.
    pub fn run(
        self,
        slots: u32,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(SearchNews<'_>),
    ) -> Result<SearchEnd, Error> {
        // Before the first trial, which finds its parent by what this writes down.
        let tracking = &self.kept.file.experiment().tracking;
        let tracker = Tracker::start(self.layout(), &tracking.into());
        let search = self.kept.file.search(self.kept.seed);
        let search = search.map_err(|error| wrong(&self.path, error))?;
        let (durable, actions) = journal::open(search, &self.layout().search_journal())?;
        let folders = TrialFolders::new(&self.program, &self.path, &self.kept, self.layout())?;
        let budget = self.kept.file.experiment().searcher.max_seconds;
        let max_restarts = self.kept.file.experiment().max_restarts.0;
        let store =
            TrialStore::live(&self.layout().search_store(), durable.search(), durable.seconds());
        let mut conductor = Conductor {
            started: Instant::now(),
            before: durable.seconds(),
            durable,
            store: None,
            folders,
            processes: TrialProcesses::new(slots, self.on.clone()),
            on: self.on.clone(),
            queue: TrialQueue::default(),
            widths: BTreeMap::new(),
            max_restarts,
            refusal: String::new(),
            tell: &mut *tell,
        };
        match store {
            Ok(store) => conductor.store = Some(store),
            Err(error) => conductor.line(without_store(&error.to_string())),
        }
        let conducted = conductor.conduct(actions, budget, stop);
        if conducted.is_err() {
            conductor.processes.end_all();
        }
        let (seconds, durable) = (conductor.seconds(), conductor.durable);
        conducted?;
        let layout = self.layout().clone();
        let search = durable.into_search();
        let end = SearchEnd { layout, interrupted: !search.is_over(), seconds, search };
        let path = end.layout.summary();
        replace(&path, format!("{:#}\n", end.to_json()).as_bytes(), Durability::Synced)
            .map_err(Error::io(&path))?;
        let storage = &self.kept.file.experiment().checkpoint_storage;
        let kept = stored::keep(self.layout(), storage);
        for note in tracker.finish(Patience::default()).into_iter().chain(kept) {
            tell(SearchNews::Line(note));
        }
        Ok(end)
    }
}

/// A search that goes on.
struct Conductor<'a, 'b> {
    started: Instant,
    /// Seconds that it had taken before this process.
    before: f64,
    durable: DurableSearch,
    /// `None`: it could not be written.
    store: Option<TrialStore>,
    folders: TrialFolders<'a>,
    processes: TrialProcesses,
    on: TrainsOn,
    queue: TrialQueue,
    /// The workers of each trial that trains.
    widths: BTreeMap<TrialId, u32>,
    max_restarts: u64,
    /// Why the model refused hyperparameters last.
    refusal: String,
    tell: Tell<'b>,
}

impl Conductor<'_, '_> {
    fn conduct(
        &mut self,
        actions: Vec<TrialAction>,
        budget: Option<f64>,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        self.queue.take(&self.folders, self.durable.search(), actions)?;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let out_of_time = budget.is_some_and(|budget| self.seconds() >= budget);
            if out_of_time && !self.search().is_over() {
                self.hear(&[SearchEvent::OutOfTime])?;
            }
            if self.search().is_over() || stopping {
                self.processes.stop_all();
                if self.processes.is_empty() {
                    return self.end_elsewhere();
                }
            } else {
                self.fill()?;
                self.widen()?;
                self.end_killed();
                let search = self.durable.search();
                self.processes.end_staying(|trial| {
                    search.trial(trial).is_some_and(|t| t.state == TrialState::Running)
                });
            }
            self.show();
            let mut events = Vec::new();
            for (trial, exit) in self.processes.ended(LOOK) {
                // Who is killed while the search pauses is begun again with it.
                if !(stopping && matches!(exit, TrialExit::Killed(_))) {
                    events.extend(self.event(trial, exit)?);
                }
            }
            if !events.is_empty() {
                self.hear(&events)?;
                let is_refusal = |event: &SearchEvent| {
                    matches!(event, SearchEvent::Ended { how: Ending::Invalid, .. })
                };
                if events.iter().any(is_refusal) {
                    self.give_up_if_hopeless()?;
                }
            }
        }
    }

    /// Nothing of a search that is over is left anywhere else.
    fn end_elsewhere(&self) -> Result<(), Error> {
        match self.search().is_over() && !self.on.is_this_machine() {
            true => {
                let trials = self.search().trials().iter();
                trials
                    .map(|trial| self.folders.layout(trial.id))
                    .try_for_each(|run| self.on.end(&run))
            }
            false => Ok(()),
        }
    }

    fn search(&self) -> &Search {
        self.durable.search()
    }

    fn seconds(&self) -> f64 {
        self.before + self.started.elapsed().as_secs_f64()
    }

    fn line(&mut self, line: String) {
        (self.tell)(SearchNews::Line(line));
    }

    fn show(&mut self) {
        let width = |trial| (trial, self.widths.get(&trial).copied().unwrap_or(1));
        let training = self.processes.training().into_iter().map(width).collect();
        let (waiting, seconds) = (self.queue.queue.len(), self.seconds());
        let search = self.durable.search();
        (self.tell)(SearchNews::Standing(SearchStanding { search, training, waiting, seconds }));
    }

    /// Starts what can be started.
    fn fill(&mut self) -> Result<(), Error> {
        while self.processes.has_room() {
            let Some(trial) = self.queue.queue.pop_front() else { return Ok(()) };
            let Some(known) = self.search().trial(trial) else { continue };
            if known.state != TrialState::Running {
                continue;
            }
            let origin = self.queue.origin(trial);
            if self.folders.layout(trial).killed().exists() {
                self.line(format!("trial {trial}: was killed by hand"));
                self.hear(&[SearchEvent::Ended { trial, how: Ending::Failed }])?;
                continue;
            }
            let (how, reason) = match self.folders.prepare(known, origin, 1) {
                Ok(layout) => {
                    self.processes.start(trial, &layout)?;
                    self.widths.insert(trial, 1);
                    continue;
                }
                Err(Error::Experiment { reason, .. }) => (Ending::Invalid, reason),
                Err(error) if error.refuses_hparams() => (Ending::Invalid, error.to_string()),
                Err(error @ Error::Train(salamander_train::Error::Model { .. })) => {
                    (Ending::Failed, error.to_string())
                }
                Err(other) => return Err(other),
            };
            self.line(format!("trial {trial}: {reason}"));
            if how == Ending::Invalid {
                self.refusal = reason;
            }
            self.hear(&[SearchEvent::Ended { trial, how }])?;
            self.give_up_if_hopeless()?;
        }
        Ok(())
    }

    /// Ends the processes of trials that somebody does not want any more.
    fn end_killed(&mut self) {
        for trial in self.processes.training() {
            if self.folders.layout(trial).killed().exists() {
                self.processes.kill(trial);
            }
        }
    }

    /// A model that refuses everything would be asked for ever.
    fn give_up_if_hopeless(&self) -> Result<(), Error> {
        let trials = self.search().trials();
        let is_invalid = |t: &&Trial| t.state == TrialState::Ended(Ending::Invalid);
        let invalid = trials.iter().filter(is_invalid).count();
        match invalid >= MAX_INVALID && invalid > 10 * (trials.len() - invalid) {
            true => Err(Error::Failed(format!(
                "the model refuses the hyperparameters of {invalid} of {} trials, the last because of: {}",
                trials.len(),
                self.refusal
            ))),
            false => Ok(()),
        }
    }

    /// Gives idle slots to the trials that train, and takes them back for those that have begun since.
    fn widen(&mut self) -> Result<(), Error> {
        if !self.folders.is_elastic() {
            return Ok(());
        }
        let training = self.processes.training();
        let (slots, widest) = (self.processes.slots(), self.folders.widest());
        for (trial, width) in training.iter().zip(widths(slots, widest, training.len())) {
            if self.widths.insert(*trial, width) != Some(width) {
                self.folders.set_width(*trial, width)?;
                self.line(format!("trial {trial}: {width} of {slots} slots"));
            }
        }
        Ok(())
    }

    /// Journals events and does what follows from them.
    fn hear(&mut self, events: &[SearchEvent]) -> Result<(), Error> {
        let seconds = self.seconds();
        let Self { durable, folders, queue, tell, .. } = self;
        let mut changed = BTreeSet::new();
        durable.hear(events, seconds, |search, event, actions| {
            if let SearchEvent::Report { trial, length, metric } = event {
                let best = search.best().map_or(String::new(), |(best, value)| {
                    format!(" (best: trial {} with {value})", best.id)
                });
                tell(SearchNews::Line(format!("trial {trial}: {metric} at {length}{best}")));
            }
            if let SearchEvent::Report { trial, .. } | SearchEvent::Ended { trial, .. } = event {
                changed.insert(*trial);
            }
            for TrialAction { trial, what, reason } in &actions {
                changed.insert(*trial);
                if !matches!(what, Instruction::Create { .. }) {
                    tell(SearchNews::Line(format!("trial {trial}: {reason}")));
                }
            }
            queue.take(folders, search, actions)
        })?;
        if let Some(store) = &mut self.store
            && let Err(error) = store.update(self.durable.search(), &changed, seconds)
        {
            self.store = None;
            self.line(without_store(&error));
        }
        Ok(())
    }

    /// What the end of a process means.
    fn event(&mut self, trial: TrialId, exit: TrialExit) -> Result<Option<SearchEvent>, Error> {
        self.widths.remove(&trial);
        let Some(known) = self.search().trial(trial) else { return Ok(None) };
        let until = known.until;
        let layout = self.folders.layout(trial);
        let metric = match exit {
            TrialExit::Done => measured(&layout, &self.search().method().metric),
            _ => None,
        };
        let restarts = self.queue.restarts.entry(trial).or_default();
        if let Some(metric) = metric {
            restarts.system = 0;
            return Ok(Some(SearchEvent::Report { trial, length: until, metric }));
        }
        let why = || last_error(&layout).unwrap_or_else(|| "failed without a word".to_string());
        let (why, given_up) = match exit {
            TrialExit::Left => {
                self.queue.queue.push_front(trial);
                return Ok(None);
            }
            TrialExit::Refused => {
                self.refusal = why();
                self.line(format!("trial {trial}: {}", self.refusal));
                return Ok(Some(SearchEvent::Ended { trial, how: Ending::Invalid }));
            }
            TrialExit::Done | TrialExit::System | TrialExit::DiskFull => {
                // Of one that came so far only what it measured is missing.
                let why = if exit == TrialExit::Done { unwritten(&layout) } else { why() };
                restarts.system += 1;
                if restarts.system >= MAX_SYSTEM {
                    let folder = layout.folder().display();
                    let what = format!("trial {trial} cannot go on: {why} (in {folder})");
                    return Err(match exit {
                        // On a full disk a trial may have no place to say so.
                        TrialExit::DiskFull => Error::System { what, cause: Errno::NOSPC.into() },
                        _ => Error::Failed(what),
                    });
                }
                (why, false)
            }
            // It came to where it pauses before the signal did, or did not: it is over.
            TrialExit::Killed(_) if layout.killed().exists() => {
                ("was killed by hand".to_string(), true)
            }
            TrialExit::Killed(signal) => {
                restarts.kills += 1;
                (format!("was killed by signal {signal}"), restarts.kills > MAX_KILLS)
            }
            TrialExit::Diverged => (why(), true),
            TrialExit::Failed => {
                restarts.failures += 1;
                (why(), restarts.failures > self.max_restarts)
            }
        };
        if given_up {
            self.on.end(&layout)?;
            self.line(format!("trial {trial}: {why}; given up"));
            return Ok(Some(SearchEvent::Ended { trial, how: Ending::Failed }));
        }
        self.line(format!("trial {trial}: {why}; started again"));
        self.queue.queue.push_front(trial);
        Ok(None)
    }
}

/// A search goes on without its store, which is only for reading.
fn without_store(error: &str) -> String {
    format!("search.sqlite: {error}; it is made again when the search is resumed")
}

/// What is still to be done.
#[derive(Default)]
struct TrialQueue {
    queue: VecDeque<TrialId>,
    restarts: BTreeMap<TrialId, TrialRestarts>,
    /// The trial that a copy's checkpoints began with.
    origins: BTreeMap<TrialId, TrialId>,
}

/// How often a trial was started again, and why.
#[derive(Default)]
struct TrialRestarts {
    failures: u64,
    kills: u64,
    system: u64,
}

impl TrialQueue {
    fn origin(&self, trial: TrialId) -> TrialId {
        self.origins.get(&trial).copied().unwrap_or(trial)
    }

    /// Puts what is to be trained into the queue; copies are made at once, while their source stands still.
    fn take(
        &mut self,
        folders: &TrialFolders<'_>,
        search: &Search,
        actions: Vec<TrialAction>,
    ) -> Result<(), Error> {
        for action in &actions {
            if let Instruction::Copy { from, until } = action.what {
                let origin = self.origin(from);
                self.origins.insert(action.trial, origin);
                // A copy begins anew, also when what it takes the place of had failed too often.
                self.restarts.remove(&action.trial);
                folders.copy(action.trial, from, until)?;
            }
        }
        for action in actions {
            self.queue.retain(|queued| *queued != action.trial);
            match action.what {
                Instruction::Create { .. }
                | Instruction::Train { .. }
                | Instruction::Copy { .. } => self.queue.push_back(action.trial),
                Instruction::Pause | Instruction::Stop => {}
            }
        }
        // Of a journal that was read, only what is still to be done counts.
        self.queue.retain(|trial| {
            let running = search.trial(*trial).is_some_and(|t| t.state == TrialState::Running);
            running && !search.is_waiting(*trial)
        });
        Ok(())
    }
}

/// What a trial measured where it paused; nothing if its summary does not say. In a summary null is not a number.
fn measured(run: &RunLayout, metric: &str) -> Option<f64> {
    let summary = fs::read_to_string(run.summary()).ok()?;
    let summary: Json = serde_json::from_str(&summary).ok()?;
    let value = summary["metrics"]["validation"].get(metric)?;
    Some(value.as_f64().unwrap_or(f64::NAN))
}

/// Why a summary does not say what was measured: whoever cannot write it has no place to say so, and it is tried again.
fn unwritten(run: &RunLayout) -> String {
    match fs::write(run.summary(), "{}\n") {
        Err(error) => format!("{}: {error}", run.summary().display()),
        Ok(()) => "its summary did not say what it measured".to_string(),
    }
}

/// What went wrong in a trial: what its run says, or its process said last.
fn last_error(run: &RunLayout) -> Option<String> {
    let summary = fs::read_to_string(run.summary()).unwrap_or_default();
    let summary: Json = serde_json::from_str(&summary).unwrap_or_default();
    if let Some(error) = summary["error"].as_str() {
        return Some(error.to_string());
    }
    let log = fs::read_to_string(run.log("worker-0")).ok()?;
    log.lines().rev().find_map(|line| line.strip_prefix("error: ").map(str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_that_was_cut_short_is_no_measurement() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        assert_eq!(measured(&run, "loss"), None, "there is none");
        let whole = r#"{"metrics": {"validation": {"loss": 0.5, "worst": null}}}"#;
        for cut in 0..whole.len() {
            fs::write(run.summary(), &whole[..cut]).expect("written");
            assert_eq!(measured(&run, "loss"), None, "{}", &whole[..cut]);
        }
        fs::write(run.summary(), whole).expect("written");
        assert_eq!(measured(&run, "loss"), Some(0.5));
        assert!(measured(&run, "worst").is_some_and(f64::is_nan));
        assert_eq!(measured(&run, "accuracy"), None);
        assert_eq!(unwritten(&run), "its summary did not say what it measured");
        let nowhere = RunLayout::new(folder.path().join("nowhere"));
        assert!(unwritten(&nowhere).contains("summary.json: No such file"));
    }
}
