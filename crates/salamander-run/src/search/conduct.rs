//! Conducts a search: starts what is to be trained, hears how it ended, and does what follows.
//!
//! # Layout
//! - `queue`: what is still to be trained; `exits`: what the end of a trial's process means

mod exits;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use salamander_files::{Durability, replace};
use salamander_search::{
    Ending, Instruction, Search, SearchEvent, TrialAction, TrialId, TrialState,
};
use salamander_track::{Patience, Tracker};

use super::SearchRun;
use super::end::SearchEnd;
use super::folders::TrialFolders;
use super::journal::{self, DurableSearch};
use super::processes::{TrialExit, TrialProcesses};
use super::store::TrialStore;
use super::widths::widths;
use crate::experiment::wrong;
use crate::{Error, TrainsOn, stored};
use queue::TrialQueue;

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

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
            stop_request: self.layout().stop_request(),
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
    /// The file by which somebody else asks for an end.
    stop_request: PathBuf,
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
            let stopping = stop.load(Ordering::Relaxed) || self.stop_request.exists();
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
}

/// A search goes on without its store, which is only for reading.
fn without_store(error: &str) -> String {
    format!("search.sqlite: {error}; it is made again when the search is resumed")
}
