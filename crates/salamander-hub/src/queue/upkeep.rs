//! What a turn of the queue keeps in order beside starting and ending: checkpoints that go, trials that were ended by
//! hand, budgets, and logs that have stayed long enough.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};

use super::Queue;
use super::process;
use crate::Error;
use crate::gc::CollectRequest;
use crate::hub::{Speaker, now};
use crate::ingest::folder;
use crate::operation::{Operation, Wanted};
use crate::store::experiments::ExperimentJob;

/// How often trials of searches that go on are looked at, and logs.
const SELDOM: Duration = Duration::from_secs(10);

impl Queue {
    /// All of it that is not about one job.
    pub(super) fn keep_in_order(&mut self, jobs: &[ExperimentJob]) -> Result<(), Error> {
        self.tell_killed_trials()?;
        self.collect()?;
        if self.last_upkeep.is_none_or(|last| last.elapsed() >= SELDOM) {
            self.last_upkeep = Some(Instant::now());
            for job in jobs.iter().filter(|job| job.state == "running" && job.max_slots > job.slots)
            {
                // Trials that are over have more than they need; before the first one there is nothing to read.
                let request = CollectRequest::default();
                if let Err(error) = self.hub.collect(&Speaker::default(), job.id, &request) {
                    tracing::debug!(%error, experiment = %job.id, "nothing is removed");
                }
            }
            self.drop_logs()?;
        }
        Ok(())
    }

    /// Decides what goes of experiments that are over, and removes what it was decided to remove.
    fn collect(&self) -> Result<(), Error> {
        for (experiment, folder) in self.hub.store().uncollected()? {
            self.catch_up(&folder);
            let nobody = Speaker::default();
            // One that never began has none.
            let is_there = self.hub.runs().join(&folder).is_dir();
            let decided =
                is_there.then(|| self.hub.collect(&nobody, experiment, &CollectRequest::default()));
            if let Some(Err(error)) = &decided {
                tracing::warn!(%error, %experiment, "nothing of its checkpoints is removed");
            }
            if !matches!(decided, Some(Ok(_))) {
                let (checkpoints, known) = (Vec::new(), Vec::new());
                self.hub.say(&nobody, Operation::Collect { experiment, checkpoints, known })?;
            }
        }
        if let Err(error) = self.hub.sweep() {
            tracing::warn!(%error, "a checkpoint cannot be removed yet");
        }
        Ok(())
    }

    /// Lets searches know which trials were ended by hand.
    fn tell_killed_trials(&self) -> Result<(), Error> {
        for run in self.hub.store().killed_trials()? {
            if let Ok(folder) = self.hub.store().run_folder(run) {
                let layout = RunLayout::new(self.hub.runs().join(folder));
                fs::create_dir_all(layout.folder()).map_err(Error::io(layout.folder()))?;
                let path = layout.killed();
                replace(&path, b"", Durability::Synced).map_err(Error::io(&path))?;
            }
            self.hub.store().forget_killed_trial(run)?;
        }
        Ok(())
    }

    /// Removes logs that have stayed long enough: the files first, which can be repeated.
    fn drop_logs(&self) -> Result<(), Error> {
        for (experiment, folder) in self.hub.store().expired_logs(self.log_days, now())? {
            let layout = RunLayout::new(self.hub.runs().join(folder));
            remove(&self.hub.own_folder(experiment).join("console.log"))?;
            let trials = fs::read_dir(layout.trials()).into_iter().flatten().flatten();
            let trials = trials.map(|entry| RunLayout::new(entry.path()));
            for run in std::iter::once(layout.clone()).chain(trials) {
                let logs = fs::read_dir(run.logs()).into_iter().flatten().flatten();
                logs.map(|entry| entry.path()).try_for_each(|path| remove(&path))?;
            }
            self.hub.say(&Speaker::default(), Operation::LogsDropped { experiment })?;
        }
        Ok(())
    }

    /// Ends an experiment that has used all that it may.
    pub(super) fn check_budget(
        &self,
        job: &ExperimentJob,
        wanted: Wanted,
    ) -> Result<Wanted, Error> {
        let running = self.processes.get(&job.id).map(|p| (now() - p.since(), p.slots()));
        let usage = self.hub.store().usage(job.id)?;
        let usage = running.map_or_else(|| usage.clone(), |(ms, slots)| usage.with(ms, slots));
        match usage.exhausted().filter(|_| wanted == Wanted::Run) {
            None => Ok(wanted),
            Some(reason) => {
                let experiment = job.id;
                self.hub.say(&Speaker::default(), Operation::Exhausted { experiment, reason })?;
                Ok(Wanted::Canceled)
            }
        }
    }

    /// Counts what a process has used that has ended: until now, or until it last wrote something if nobody looked.
    pub(super) fn account(&self, job: &ExperimentJob, seen: bool) -> Result<(), Error> {
        let own = self.hub.own_folder(job.id);
        let Some((since, slots)) = process::kept(&own) else { return Ok(()) };
        let layout = RunLayout::new(self.hub.runs().join(&job.folder));
        let written =
            [own.join("console.log"), layout.metrics(), layout.summary(), layout.search_journal()];
        let written = written.iter().filter_map(|path| folder::written(path)).max();
        let until = if seen { now() } else { written.unwrap_or(since) };
        let usage = self.hub.store().usage(job.id)?.with(until - since, slots);
        let (ms, slot_ms) = (usage.used_ms, usage.used_slot_ms);
        self.hub.say(&Speaker::default(), Operation::Used { experiment: job.id, ms, slot_ms })
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}
