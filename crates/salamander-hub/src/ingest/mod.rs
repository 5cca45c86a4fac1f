//! Fills the store from run folders: looks, reads what is new, and keeps how far it has read in the same transaction.
//!
//! # Layout
//! - [`Ingester`]: one look at all folders
//! - `folder`: what a folder says; `search`: what a search's journal says; `lines`: metrics; `tail`: new lines

pub(crate) mod folder;
mod lines;
mod search;
mod tail;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use salamander_core::layout::{METRICS, RunLayout};

use crate::Error;
use crate::hub::{Hub, Speaker, now};
use crate::ids::{ExperimentId, RunId};
use crate::operation::Operation;
use crate::store::checkpoints::{self, Checkpoint};
use crate::store::experiments::{self, Facts};
use crate::store::runs::{self, RunFacts};
use crate::store::{Tx, append, logs, points};
use folder::Signature;
use search::Replayed;
use tail::Cursor;

/// How often folders without a process are looked at.
const SLOW: Duration = Duration::from_secs(2);
/// How long a folder in which nothing changes is looked at like any other, and how often its logs are after that.
const RECENT: Duration = Duration::from_secs(3600);
const QUIET: Duration = Duration::from_secs(60);
/// The process whose log is what a command printed.
const CONSOLE: &str = "console";

/// Looks at the folders of a hub.
pub struct Ingester {
    hub: Hub,
    experiments: BTreeMap<String, WatchedExperiment>,
    /// What the hub's own children printed.
    consoles: BTreeMap<ExperimentId, WatchedRun>,
    last_slow: Option<Instant>,
}

/// What is remembered of an experiment's folder.
struct WatchedExperiment {
    id: ExperimentId,
    signature: Signature,
    holder: Option<u32>,
    search: Option<Replayed>,
    facts: Option<Facts>,
    runs: BTreeMap<i64, WatchedRun>,
    /// When something in it had changed last, and when its logs were looked at last although nothing had.
    changed: Instant,
    logs_looked: Instant,
}

/// What is remembered of a run's folder.
#[derive(Default)]
struct WatchedRun {
    /// Whether it is a trial that is over, and of which all is known: only its logs may still grow.
    settled: bool,
    cursors: Option<BTreeMap<String, Cursor>>,
    signature: Signature,
    facts: Option<RunFacts>,
    checkpoints: Option<Vec<Checkpoint>>,
}

impl Ingester {
    /// Of a hub.
    pub fn new(hub: Hub) -> Self {
        Self { hub, experiments: BTreeMap::new(), consoles: BTreeMap::new(), last_slow: None }
    }

    /// Looks at folders in which something trains, and now and then at all others.
    pub fn look(&mut self) -> Result<(), Error> {
        let is_due = self.last_slow.is_none_or(|last| last.elapsed() >= SLOW);
        if is_due {
            self.find_new()?;
            self.last_slow = Some(Instant::now());
        }
        self.look_at_consoles(is_due)?;
        self.look_at(|watched| is_due || watched.holder.is_some())
    }

    /// Looks at all folders.
    pub fn look_at_all(&mut self) -> Result<(), Error> {
        self.find_new()?;
        self.look_at_consoles(true)?;
        self.look_at(|_| true)
    }

    /// Reads all of one folder now: who hears that its process has ended finds what it has done.
    pub fn catch_up(&mut self, folder: &str) -> Result<(), Error> {
        self.find_new()?;
        match self.experiments.get_mut(folder) {
            Some(watched) => watched.look_again(&self.hub, folder),
            None => Ok(()),
        }
    }

    /// Reads what the hub's children print: those that run, or all.
    fn look_at_consoles(&mut self, all: bool) -> Result<(), Error> {
        let ids: Vec<ExperimentId> = match all {
            true => self.hub.own_folders(),
            false => self.hub.store().jobs()?.into_iter().map(|job| job.id).collect(),
        };
        for id in ids {
            let path = self.hub.own_folder(id).join("console.log");
            let console = self.consoles.entry(id).or_default();
            let read = console.tail_log(&self.hub, RunId::whole(id), CONSOLE, &path);
            if read.is_err() {
                self.consoles.remove(&id);
            }
            read?;
        }
        Ok(())
    }

    fn look_at(&mut self, which: impl Fn(&WatchedExperiment) -> bool) -> Result<(), Error> {
        let mut failed = None;
        for (folder, watched) in &mut self.experiments {
            if which(watched)
                && let Err(error) = watched.look_again(&self.hub, folder)
            {
                // One folder that cannot be read does not keep the others from being read.
                tracing::warn!(%folder, %error, "cannot be read into the store");
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn find_new(&mut self) -> Result<(), Error> {
        let runs = self.hub.runs();
        let entries = fs::read_dir(runs).map_err(Error::io(runs))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        let mut new: Vec<String> = Vec::new();
        for name in &names {
            let known = self.experiments.contains_key(name);
            if !known && folder::is_run(&RunLayout::new(runs.join(name))) {
                new.push(name.clone());
            }
        }
        let runs = runs.to_path_buf();
        // The oldest first, so that numbers follow the order in which runs were made.
        let started =
            |name: &String| folder::written(&RunLayout::new(runs.join(name)).experiment());
        new.sort_by_cached_key(|name| (started(name), name.clone()));
        self.hub.found(&new)?;
        for name in new {
            if let Some(id) = self.hub.store().experiment_of(&name)? {
                self.experiments.insert(name, WatchedExperiment::new(id));
            }
        }
        // Deleted folders are not looked at any more; what is known of them stays until somebody deletes it.
        self.experiments.retain(|name, _| runs.join(name).is_dir());
        for (id, folder) in self.hub.store().training_elsewhere()? {
            if !runs.join(&folder).is_dir() {
                self.hub.store().folder_gone(id)?;
            }
        }
        Ok(())
    }
}

impl WatchedExperiment {
    fn new(id: ExperimentId) -> Self {
        Self {
            id,
            signature: Signature::default(),
            holder: None,
            search: None,
            facts: None,
            runs: BTreeMap::new(),
            changed: Instant::now(),
            logs_looked: Instant::now(),
        }
    }

    /// Looks; after a fault nothing is remembered, as a commit whose answer was lost may have been made: the store
    /// says how far files were read.
    fn look_again(&mut self, hub: &Hub, folder: &str) -> Result<(), Error> {
        let looked = self.look(hub, folder);
        if looked.is_err() {
            *self = Self::new(self.id);
        }
        looked
    }

    fn look(&mut self, hub: &Hub, folder: &str) -> Result<(), Error> {
        let layout = RunLayout::new(hub.runs().join(folder));
        let signature = Signature::of(&layout);
        if signature != self.signature || self.holder.is_some() {
            self.holder = folder::holder(&layout);
            self.changed = Instant::now();
        } else if self.facts.is_some() {
            return self.look_for_late_lines(hub, &layout);
        }
        if layout.search().is_file() {
            self.look_at_search(hub, folder, &layout)?;
        } else if let Some(id) = RunId::new(self.id.0, 1) {
            let facts = folder::facts(&layout, folder, self.holder);
            let description = description(&layout);
            let run = self.runs.entry(1).or_default();
            let changed = run.look(hub, id, &layout, facts.clone())?;
            let facts = of_single(facts, description);
            self.see_end(hub, &facts)?;
            if changed || self.facts.as_ref() != Some(&facts) {
                let (id, kept) = (self.id, facts.clone());
                hub.store().write(move |tx| {
                    experiments::set_facts(tx, id, &kept)?;
                    experiments::follow_single(tx, id)
                })?;
                self.facts = Some(facts);
            }
        }
        self.signature = signature;
        Ok(())
    }

    /// Whoever is told of ends hears of those that the queue has no part in, too. Said before the state is kept: after
    /// a kill in between it is seen again.
    fn see_end(&self, hub: &Hub, facts: &Facts) -> Result<(), Error> {
        let has_ended = matches!(facts.state.as_str(), "completed" | "failed");
        if !has_ended || self.facts.as_ref().is_some_and(|before| before.state != "running") {
            return Ok(());
        }
        let known = hub.store().experiment(self.id)?;
        if known.origin != "folder"
            || known.state != "running"
            || hub.store().webhooks()?.is_empty()
        {
            return Ok(());
        }
        let (state, reason) = (facts.state.clone(), facts.reason.clone());
        let ended = facts.ended.unwrap_or_else(now);
        let seen = Operation::Seen { experiment: self.id, state, reason, ended };
        hub.say(&Speaker::default(), seen)
    }

    /// Reads lines that were written into logs after everything else was done: a process that ends late, or one that
    /// looks at a run that is over. Folders that nobody has touched for long are looked at now and then.
    fn look_for_late_lines(&mut self, hub: &Hub, layout: &RunLayout) -> Result<(), Error> {
        let is_quiet = self.changed.elapsed() >= RECENT;
        if is_quiet && self.logs_looked.elapsed() < QUIET {
            return Ok(());
        }
        self.logs_looked = Instant::now();
        let is_search = layout.search().is_file();
        for (number, run) in &mut self.runs {
            let Some(id) = RunId::new(self.id.0, *number) else { continue };
            let own = trial_layout(layout, *number);
            run.tail_logs(hub, id, if is_search { &own } else { layout })?;
        }
        Ok(())
    }

    /// The same for the trials of a search that goes on which are not looked at any more.
    fn look_for_late_lines_of_trials(
        &mut self,
        hub: &Hub,
        layout: &RunLayout,
    ) -> Result<(), Error> {
        if self.logs_looked.elapsed() < SLOW {
            return Ok(());
        }
        self.logs_looked = Instant::now();
        for (number, run) in self.runs.iter_mut().filter(|(_, run)| run.settled) {
            let Some(id) = RunId::new(self.id.0, *number) else { continue };
            run.tail_logs(hub, id, &trial_layout(layout, *number))?;
        }
        Ok(())
    }

    fn look_at_search(&mut self, hub: &Hub, folder: &str, layout: &RunLayout) -> Result<(), Error> {
        let replayed = self.search.take().or_else(|| Replayed::open(layout));
        let Some(mut replayed) = replayed else {
            return Err(Error::Invalid(format!("{folder}: this search cannot be read")));
        };
        replayed.go_on(layout);
        let goes_on = self.holder.is_some();
        self.look_for_late_lines_of_trials(hub, layout)?;
        for trial in replayed.search.trials() {
            let number = trial.id.0 as i64;
            let Some(id) = RunId::new(self.id.0, number) else { continue };
            let is_over = trial.state.is_over();
            // A long search has a thousand of them, and is looked at several times a second.
            if goes_on && is_over && self.runs.get(&number).is_some_and(|run| run.settled) {
                continue;
            }
            let name = format!("{folder}/trials/{number:05}");
            let of_trial = trial_layout(layout, number);
            let holder = self.holder.and_then(|_| folder::holder(&of_trial));
            let mut facts = folder::facts(&of_trial, &name, holder);
            facts.name = format!("{folder} trial {number}");
            facts.state = replayed.state(trial, holder.is_some(), self.holder.is_some());
            if facts.state != "failed" || facts.reason.is_none() {
                facts.reason = Some(trial.reason.clone());
            }
            if of_trial.killed().exists()
                && !matches!(facts.state.as_str(), "running" | "completed")
            {
                facts.state = "canceled".to_string();
                facts.reason = Some("it was killed".to_string());
            }
            facts.hparams = trial.hparams();
            facts.length = Some(trial.length() as i64);
            facts.measured = trial.metric().filter(|metric| metric.is_finite());
            facts.model = replayed.file.experiment().model().map(str::to_string);
            let run = self.runs.entry(number).or_default();
            let changed = run.look(hub, id, &of_trial, facts)?;
            run.settled = is_over && holder.is_none() && !changed;
        }
        let facts = of_search(&replayed, layout, self.holder);
        self.see_end(hub, &facts)?;
        if self.facts.as_ref() != Some(&facts) {
            let (id, kept) = (self.id, facts.clone());
            hub.store().write(move |tx| experiments::set_facts(tx, id, &kept))?;
            self.facts = Some(facts);
        }
        if self.holder.is_some() {
            self.search = Some(replayed);
        }
        Ok(())
    }
}

/// The folder of a trial.
fn trial_layout(search: &RunLayout, number: i64) -> RunLayout {
    RunLayout::new(search.trials().join(format!("{number:05}")))
}

fn of_single(facts: RunFacts, description: Option<String>) -> Facts {
    Facts {
        name: Some(facts.name),
        state: facts.state,
        reason: facts.reason,
        kind: "single",
        model: facts.model,
        config: None,
        description,
        started: facts.started,
        ended: facts.ended,
        metric: facts.metric,
        smaller_is_better: facts.smaller_is_better,
        trials: 1,
        ..Facts::default()
    }
}

fn of_search(replayed: &Replayed, layout: &RunLayout, holder: Option<u32>) -> Facts {
    let (state, reason) = folder::state(layout, holder);
    let (experiment, search) = (replayed.file.experiment(), &replayed.search);
    Facts {
        name: Some(experiment.name.clone().unwrap_or_else(|| layout.id())),
        state,
        reason,
        kind: "search",
        model: experiment.model().map(str::to_string),
        config: Some(replayed.file.to_yaml()),
        description: experiment.description.clone(),
        started: folder::written(&layout.search()),
        ended: folder::written(&layout.summary()).filter(|_| holder.is_none()),
        metric: Some(search.method().metric.clone()),
        smaller_is_better: search.method().smaller_is_better,
        best: search.best().map(|(_, metric)| metric),
        best_trial: search.best().map(|(trial, _)| trial.id.0 as i64),
        progress: Some(search.progress()),
        trials: search.trials().len() as i64,
    }
}

fn description(layout: &RunLayout) -> Option<String> {
    let text = fs::read_to_string(layout.experiment()).ok()?;
    salamander_core::experiment::Experiment::parse(&text, &[]).ok()?.description.clone()
}

impl WatchedRun {
    /// Reads what is new in a run's folder; says whether anything was.
    fn look(
        &mut self,
        hub: &Hub,
        id: RunId,
        layout: &RunLayout,
        facts: RunFacts,
    ) -> Result<bool, Error> {
        let signature = Signature::of(layout);
        let mut changed = signature != self.signature;
        if self.facts.as_ref() != Some(&facts) {
            let kept = facts.clone();
            hub.store().write(move |tx| runs::set_facts(tx, id, &kept))?;
            self.facts = Some(facts);
            changed = true;
        }
        while self.tail_metrics(hub, id, layout)? {
            changed = true;
        }
        if changed {
            let there = folder::checkpoints(layout, id);
            if self.checkpoints.as_ref() != Some(&there) {
                let kept = there.clone();
                hub.store().write(move |tx| checkpoints::set(tx, id, &kept))?;
                self.checkpoints = Some(there);
            }
        }
        self.tail_logs(hub, id, layout)?;
        self.signature = signature;
        Ok(changed)
    }

    /// Reads the new lines of all its logs.
    fn tail_logs(&mut self, hub: &Hub, id: RunId, layout: &RunLayout) -> Result<(), Error> {
        for entry in fs::read_dir(layout.logs()).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_string);
            let is_log = |name: &String| {
                is_process(name) && path.extension().is_some_and(|ending| ending == "log")
            };
            if let Some(process) = name.filter(is_log) {
                self.tail_log(hub, id, &process, &path)?;
            }
        }
        Ok(())
    }

    fn cursor(&mut self, hub: &Hub, id: RunId, path: &str) -> Result<Cursor, Error> {
        if self.cursors.is_none() {
            self.cursors = Some(Cursor::all(hub.store(), id)?.into_iter().collect());
        }
        Ok(self.cursors.as_ref().and_then(|all| all.get(path)).copied().unwrap_or_default())
    }

    /// Reads the next lines of the metrics file; says whether there were any.
    fn tail_metrics(&mut self, hub: &Hub, id: RunId, layout: &RunLayout) -> Result<bool, Error> {
        let Some(portion) = self.cursor(hub, id, METRICS)?.read(&layout.metrics())? else {
            return Ok(false);
        };
        let parsed = lines::parse(&portion.bytes);
        let lines = portion.from.lines + parsed.lines;
        let cursor = Cursor { mark: portion.mark, offset: portion.offset, lines };
        hub.store().write(move |tx| {
            if portion.again {
                points::forget(tx, id)?;
            }
            append::append(tx, id, &parsed.points)?;
            for (number, validation) in (portion.from.lines..).zip(&parsed.validations) {
                runs::add_validation(tx, id, number, validation)?;
            }
            if let Some(progress) = &parsed.progress {
                runs::set_progress(tx, id, progress)?;
            }
            cursor.keep(tx, id, METRICS)
        })?;
        self.keep(METRICS, cursor);
        Ok(true)
    }

    fn tail_log(
        &mut self,
        hub: &Hub,
        id: RunId,
        process: &str,
        path: &std::path::Path,
    ) -> Result<(), Error> {
        let name = format!("logs/{process}");
        while let Some(portion) = self.cursor(hub, id, &name)?.read(path)? {
            let text = String::from_utf8_lossy(&portion.bytes).into_owned();
            let lines = portion.from.lines + text.lines().count() as i64;
            let cursor = Cursor { mark: portion.mark, offset: portion.offset, lines };
            let (process, kept, more) = (process.to_string(), name.clone(), portion.more);
            let write = move |tx: &Tx<'_>| {
                if portion.again {
                    logs::forget(tx, id, Some(&process))?;
                }
                logs::append(tx, id, &process, portion.from.lines, &text)?;
                cursor.keep(tx, id, &kept)
            };
            hub.store().write(write)?;
            self.keep(&name, cursor);
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn keep(&mut self, path: &str, cursor: Cursor) {
        self.cursors.get_or_insert_default().insert(path.to_string(), cursor);
    }
}

/// Whether a log is that of a process of ours: places in logs are written with its name, `worker-0:12,master:3`.
fn is_process(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|sign| sign.is_control() || matches!(sign, ',' | ':'))
}
