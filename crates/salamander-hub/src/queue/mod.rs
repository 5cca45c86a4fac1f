//! The queue: starts experiments when there are slots, in the order of priorities, and carries out what is wanted of
//! them.
//!
//! # Layout
//! - [`Queue`]: one turn after the other; `plan`: what a turn does, and why; `process`: the processes
//! - `backoff`: when experiments are tried again whose disk was full
//! - [`QueuePlatform`]: where they train, if not here; `upkeep`: checkpoints that go, budgets, logs

mod backoff;
mod plan;
mod platform;
mod process;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use salamander_core::layout::{EXPERIMENT, RunLayout};
use salamander_files::{Durability, replace};

use crate::Error;
use crate::create::Programs;
use crate::hub::{Hub, OWN_FOLDER, Speaker, now};
use crate::ids::ExperimentId;
use crate::ingest::{Ingester, folder};
use crate::operation::{Operation, Wanted};
use crate::store::experiments::ExperimentJob;
use crate::store::limits::Usage;
use backoff::Backoffs;
use plan::{
    ExperimentStanding, MAX_FAULTS, QueueAction, QueueProcessEnd, Queued, STOPPED, after, plan,
    with_process,
};
pub use platform::QueuePlatform;
use process::{ProcessStart, QueueProcess};

impl Hub {
    /// When the process of an experiment was started, and with how many slots, while there is one.
    pub(crate) fn process_of(&self, id: ExperimentId) -> Option<(i64, u32)> {
        process::kept(&self.own_folder(id))
    }

    /// What an experiment may use and has used, its process that runs included.
    pub fn usage(&self, id: ExperimentId) -> Result<Usage, Error> {
        let usage = self.store().usage(id)?;
        Ok(match self.process_of(id) {
            Some((since, slots)) => usage.with(now() - since, slots),
            None => usage,
        })
    }
}

/// The queue of a hub.
pub struct Queue {
    hub: Hub,
    programs: Arc<Programs>,
    slots: u32,
    processes: BTreeMap<ExperimentId, QueueProcess>,
    /// Experiments whose process was looked for.
    looked: BTreeSet<ExperimentId>,
    backoffs: Backoffs,
    ingester: Option<Arc<Mutex<Ingester>>>,
    /// Days that logs stay after the end of an experiment whose file says nothing of it.
    log_days: Option<i64>,
    last_upkeep: Option<Instant>,
    platform: Option<Box<dyn QueuePlatform>>,
}

impl Queue {
    /// With so many slots; with none it starts nothing, and only carries out what else is wanted.
    pub fn new(hub: Hub, programs: Arc<Programs>, slots: u32) -> Self {
        Self {
            hub,
            programs,
            slots,
            processes: BTreeMap::new(),
            looked: BTreeSet::new(),
            backoffs: Backoffs::default(),
            ingester: None,
            log_days: None,
            last_upkeep: None,
            platform: None,
        }
    }

    /// With this ingester, whose store knows what an experiment has done before it is told to be over.
    #[must_use]
    pub fn after_reading(mut self, ingester: Arc<Mutex<Ingester>>) -> Self {
        self.ingester = Some(ingester);
        self
    }

    /// Logs stay so many days after the end of an experiment whose file says nothing of it.
    #[must_use]
    pub fn with_log_retention(mut self, days: Option<u32>) -> Self {
        self.log_days = days.map(i64::from);
        self
    }

    /// Experiments train there instead of on this machine.
    #[must_use]
    pub fn on(mut self, platform: Option<Box<dyn QueuePlatform>>) -> Self {
        self.platform = platform;
        self
    }

    /// Ends what an experiment has elsewhere that does not go on.
    fn end_elsewhere(&self, job: &ExperimentJob) -> Result<(), Error> {
        let Some(platform) = &self.platform else { return Ok(()) };
        platform.end(&self.hub.runs().join(&job.folder)).map_err(Error::Remote)
    }

    fn catch_up(&self, folder: &str) {
        let Some(ingester) = &self.ingester else { return };
        let mut ingester = ingester.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = ingester.catch_up(folder) {
            tracing::warn!(%error, folder, "what has ended cannot be read yet");
        }
    }

    /// Processes that run.
    pub fn running(&self) -> usize {
        self.processes.len()
    }

    /// Looks at everything once and does what follows.
    pub fn turn(&mut self) -> Result<(), Error> {
        let jobs = self.hub.store().jobs()?;
        // What cannot be put in order now does not keep anything from being started.
        let mut failed = self.keep_in_order(&jobs).err();
        let is_there = |id: ExperimentId| jobs.iter().any(|job| job.id == id);
        self.looked.retain(|id| is_there(*id));
        self.backoffs.retain(is_there);
        let now = Instant::now();
        let mut queued = Vec::new();
        for job in &jobs {
            let wanted = Wanted::parse(&job.wanted).unwrap_or(Wanted::Run);
            match self.look(job, wanted) {
                // One that waits for its next try holds up nobody.
                Ok(one) => {
                    let is_due = |id| self.backoffs.is_due(id, now);
                    queued.extend(one.filter(|one| one.running.is_some() || is_due(one.id)));
                }
                Err(error) => {
                    // One that cannot be looked at keeps its slots, and nobody else from anything.
                    queued.extend(self.processes.get(&job.id).map(|process| Queued {
                        leaving: true,
                        ..Queued::of(job, Wanted::Run, Some(process.slots()))
                    }));
                    failed = failed.or(Some(error));
                }
            }
        }
        for step in plan(&queued, self.slots) {
            let (QueueAction::Start(id, _)
            | QueueAction::Interrupt(id)
            | QueueAction::Preempt(id)
            | QueueAction::Kill(id)) = &step;
            let Some(job) = jobs.iter().find(|job| job.id == *id) else { continue };
            if let Err(error) = self.perform(&step, job) {
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Where an experiment stands; `None`: it is over.
    fn look(&mut self, job: &ExperimentJob, mut wanted: Wanted) -> Result<Option<Queued>, Error> {
        let layout = RunLayout::new(self.hub.runs().join(&job.folder));
        let own = self.hub.own_folder(job.id);
        let was_running = matches!(
            job.state.as_str(),
            "running" | "pausing" | "stopping_canceled" | "stopping_killed"
        );
        if self.looked.insert(job.id) && !self.processes.contains_key(&job.id) {
            let found = QueueProcess::find(&own, folder::holder(&layout), job.slots as u32);
            self.processes.extend(found.map(|process| (job.id, process)));
        }
        let ended = match self.processes.get_mut(&job.id) {
            Some(process) => process.ended().map(|code| (code, process.asked())),
            None if was_running => Some((None, false)),
            None => None,
        };
        if let Some((code, asked)) = ended {
            let is_there = layout.experiment().is_file() || layout.search().is_file();
            let fact = is_there.then(|| folder::state(&layout, folder::holder(&layout)));
            let error = process::last_error(&own);
            let stopped = (code == Some(STOPPED) && !asked) || layout.stop_request().exists();
            let ended = QueueProcessEnd { fact, code, error, asked, stopped };
            let mut standing = after(wanted, &ended, job.restarts);
            if !matches!(standing.state, "queued" | "paused") {
                // Before it is told to be over: until then it is tried again.
                self.end_elsewhere(job)?;
            }
            self.account(job, self.processes.contains_key(&job.id))?;
            process::forget(&own);
            self.catch_up(&job.folder);
            if standing.state == "canceled"
                && let Some(reason) = self.hub.store().usage(job.id)?.reason
            {
                standing.reason = Some(reason);
            }
            if standing.state == "paused" && wanted == Wanted::Run {
                self.want_paused(job)?;
                wanted = Wanted::Paused;
            }
            self.settle(job, &standing)?;
            // Only now: a hub that cannot write this down, on a full disk too, still knows how the process ended.
            self.processes.remove(&job.id);
            match ended.is_disk_full() {
                true => self.backoffs.lengthen(job.id, Instant::now()),
                false => self.backoffs.forget(job.id),
            }
            if !matches!(standing.state, "queued" | "paused") && wanted != Wanted::Deleted {
                return Ok(None);
            }
        }
        let wanted = self.check_budget(job, wanted)?;
        let process = self.processes.get(&job.id);
        if wanted == Wanted::Deleted && process.is_none() {
            if let Err(error) = self.delete(job) {
                // It is tried again; until then people see why it is still there.
                if job.state != "deleting" {
                    let reason = Some(error.to_string());
                    self.settle(
                        job,
                        &ExperimentStanding { state: "deleting", reason, faults: None },
                    )?;
                }
                return Err(error);
            }
            return Ok(None);
        }
        let state = match (process, wanted) {
            (Some(_), wanted) => with_process(wanted),
            (None, Wanted::Run) => "queued",
            (None, Wanted::Paused) => "paused",
            (None, Wanted::Canceled | Wanted::Killed | Wanted::Deleted) => "canceled",
        };

        if ended.is_none() && state != job.state {
            let over = state == "canceled";
            if over {
                self.end_elsewhere(job)?;
            }
            let reason = over.then(|| self.hub.store().usage(job.id)).transpose()?;
            let reason = reason.and_then(|usage| usage.reason);
            self.settle(job, &ExperimentStanding { state, reason, faults: None })?;
        }
        if state == "queued" && self.slots > 0 && job.slots > i64::from(self.slots) {
            let reason = format!(
                "it needs {} slots, and this hub has {}: `salamander hub --slots` gives it more",
                job.slots, self.slots
            );
            self.fail(job, reason)?;
            return Ok(None);
        }
        Ok((state != "canceled").then(|| Queued {
            leaving: process.is_some_and(|process| process.asked()),
            ..Queued::of(job, wanted, process.map(QueueProcess::slots))
        }))
    }

    /// Says that an experiment is to wait, since states follow from what is wanted; whoever has wanted something else
    /// meanwhile gets that.
    fn want_paused(&self, job: &ExperimentJob) -> Result<(), Error> {
        let operations = self.hub.say_after(&Speaker::default(), |store| {
            let is_same = |now: &ExperimentJob| now.id == job.id && now.wanted == job.wanted;
            let wanted = Operation::Want { experiment: job.id, wanted: Wanted::Paused };
            Ok(store.jobs()?.iter().any(is_same).then_some(wanted).into_iter().collect())
        });
        operations.map(drop)
    }

    fn perform(&mut self, step: &QueueAction, job: &ExperimentJob) -> Result<(), Error> {
        match (step, self.processes.get_mut(&job.id)) {
            (QueueAction::Interrupt(_) | QueueAction::Preempt(_), Some(process)) => {
                process.interrupt()
            }
            (QueueAction::Kill(_), Some(process)) => process.kill(),
            (QueueAction::Start(_, slots), None) => match self.start(job, *slots) {
                Ok(process) => {
                    self.processes.insert(job.id, process);
                    let running =
                        ExperimentStanding { state: "running", reason: None, faults: None };
                    self.settle(job, &running)?;
                }
                Err(error) => self.not_started(job, &error)?,
            },
            _ => {}
        }
        Ok(())
    }

    /// An experiment whose process could not be started: it has failed, unless it is the machine's trouble of now.
    fn not_started(&mut self, job: &ExperimentJob, error: &Error) -> Result<(), Error> {
        let passes = |error: &Error| match error {
            Error::File { source, .. } => is_passing(source),
            Error::Store(_) | Error::Unwritable(_) | Error::Closed => true,
            _ => false,
        };
        if !passes(error) || job.restarts >= MAX_FAULTS {
            return self.fail(job, error.to_string());
        }
        self.backoffs.lengthen(job.id, Instant::now());
        let (reason, faults) =
            (Some(format!("{error}; it is tried again")), Some(job.restarts + 1));
        self.settle(job, &ExperimentStanding { state: "queued", reason, faults })
    }

    fn start(&self, job: &ExperimentJob, slots: u32) -> Result<QueueProcess, Error> {
        let missing = || Error::Conflict("no program is known for this experiment".to_string());
        let path = job.program.as_deref().ok_or_else(missing)?;
        let program = self.programs.check(path, job.program_hash.as_deref().unwrap_or_default())?;
        let own = self.hub.own_folder(job.id);
        fs::create_dir_all(&own).map_err(Error::io(&own))?;
        // What was asked of it before it was wanted to run.
        let _ = fs::remove_file(RunLayout::new(self.hub.runs().join(&job.folder)).stop_request());
        let file = own.join(EXPERIMENT);
        let config = self.hub.store().experiment_config(job.id)?.unwrap_or_default();
        replace(&file, config.as_bytes(), Durability::Unsynced).map_err(Error::io(&file))?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        // A search has as many trials at a time as fit.
        let at_a_time = (i64::from(slots) / job.slots.max(1)).max(1);
        let mut arguments =
            vec!["train".to_string(), text(file), "--id".into(), job.folder.clone()];
        arguments.extend(["--out".into(), text(self.hub.runs().to_path_buf())]);
        arguments.extend(["--slots".into(), at_a_time.to_string()]);
        arguments.extend(self.platform.iter().flat_map(|platform| platform.arguments()));
        if !self.hub.runs().join(&job.folder).exists() {
            // One that goes on has them in its own file.
            arguments.extend(job.sets.iter().flat_map(|set| ["--set".to_string(), set.clone()]));
        }
        let folder = job.base.as_ref().map_or_else(|| self.hub.runs().to_path_buf(), PathBuf::from);
        QueueProcess::start(&ProcessStart {
            program: &program,
            arguments,
            folder,
            own: &own,
            slots,
        })
    }

    /// Removes an experiment with its folder: first its name, so that nobody finds half of it.
    fn delete(&self, job: &ExperimentJob) -> Result<(), Error> {
        self.end_elsewhere(job)?;
        let runs = self.hub.runs();
        let trash = runs.join(OWN_FOLDER).join(format!("deleted-{}", job.id));
        let folder = runs.join(&job.folder);
        if folder.exists() {
            fs::rename(&folder, &trash).map_err(Error::io(&folder))?;
        }
        for gone in [trash, self.hub.own_folder(job.id)] {
            match fs::remove_dir_all(&gone) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io(&gone)(error));
                }
                _ => {}
            }
        }
        self.hub.say(&Speaker::default(), Operation::Deleted { experiment: job.id })
    }

    fn fail(&self, job: &ExperimentJob, reason: String) -> Result<(), Error> {
        self.settle(
            job,
            &ExperimentStanding { state: "failed", reason: Some(reason), faults: None },
        )
    }

    fn settle(&self, job: &ExperimentJob, standing: &ExperimentStanding) -> Result<(), Error> {
        let ExperimentStanding { state, reason, faults } = standing.clone();
        if matches!(state, "completed" | "failed" | "canceled") {
            let (experiment, state) = (job.id, state.to_string());
            return self
                .hub
                .say(&Speaker::default(), Operation::Ended { experiment, state, reason });
        }
        match faults {
            Some(restarts) => {
                let restarted = Operation::Restarted { experiment: job.id, restarts, reason };
                self.hub.say(&Speaker::default(), restarted)
            }
            None => self.hub.store().set_state(job.id, state, reason),
        }
    }
}

/// Whether the system would say otherwise at another time: no room, no memory, too many processes or files.
fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::OutOfMemory
            | ErrorKind::WouldBlock
            | ErrorKind::ExecutableFileBusy
    ) || matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_the_machine_lacks_for_a_while_is_no_failure_of_an_experiment() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM, Errno::AGAIN, Errno::MFILE] {
            assert!(is_passing(&Error::from(errno)), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC] {
            assert!(!is_passing(&Error::from(errno)), "{errno}");
        }
    }
}
