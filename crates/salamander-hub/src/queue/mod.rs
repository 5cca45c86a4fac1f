//! The queue: starts experiments when there are slots, in the order of priorities, and carries out what is wanted of
//! them.
//!
//! # Layout
//! - [`Queue`]: one turn after the other; `plan`: what a turn does, and why; `process`: the processes

mod plan;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};

use crate::Error;
use crate::create::Programs;
use crate::hub::{Hub, OWN_FOLDER, Speaker};
use crate::ids::ExperimentId;
use crate::ingest::{Ingester, folder};
use crate::operation::{Operation, Wanted};
use crate::store::experiments::Job;
use plan::{Ended, Queued, Standing, Step, after, plan, with_process};
use process::{Process, Start};

/// The queue of a hub.
pub struct Queue {
    hub: Hub,
    programs: Arc<Programs>,
    slots: u32,
    processes: BTreeMap<ExperimentId, Process>,
    /// Experiments whose process was looked for.
    looked: BTreeSet<ExperimentId>,
    ingester: Option<Arc<Mutex<Ingester>>>,
}

impl Queue {
    /// With so many slots; with none it starts nothing, and only carries out what else is wanted.
    pub fn new(hub: Hub, programs: Arc<Programs>, slots: u32) -> Self {
        let (processes, looked) = (BTreeMap::new(), BTreeSet::new());
        Self { hub, programs, slots, processes, looked, ingester: None }
    }

    /// With this ingester, whose store knows what an experiment has done before it is told to be over.
    #[must_use]
    pub fn after_reading(mut self, ingester: Arc<Mutex<Ingester>>) -> Self {
        self.ingester = Some(ingester);
        self
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
        self.looked.retain(|id| jobs.iter().any(|job| job.id == *id));
        let mut queued = Vec::new();
        for job in &jobs {
            let wanted = Wanted::parse(&job.wanted).unwrap_or(Wanted::Run);
            if let Some(one) = self.look(job, wanted)? {
                queued.push(one);
            }
        }
        for step in plan(&queued, self.slots) {
            let (Step::Start(id, _) | Step::Interrupt(id) | Step::Preempt(id) | Step::Kill(id)) =
                &step;
            let Some(job) = jobs.iter().find(|job| job.id == *id) else { continue };
            self.perform(&step, job)?;
        }
        Ok(())
    }

    /// Where an experiment stands; `None`: it is over.
    fn look(&mut self, job: &Job, wanted: Wanted) -> Result<Option<Queued>, Error> {
        let layout = RunLayout::new(self.hub.runs().join(&job.folder));
        let own = self.hub.own_folder(job.id);
        let was_running = matches!(
            job.state.as_str(),
            "running" | "pausing" | "stopping_canceled" | "stopping_killed"
        );
        if self.looked.insert(job.id) && !self.processes.contains_key(&job.id) {
            let found = Process::find(&own, folder::holder(&layout), job.slots as u32);
            self.processes.extend(found.map(|process| (job.id, process)));
        }
        let ended = match self.processes.get_mut(&job.id) {
            Some(process) => process.ended().map(|code| (code, process.preempted || process.asked)),
            None if was_running => Some((None, false)),
            None => None,
        };
        if let Some((code, asked)) = ended {
            self.processes.remove(&job.id);
            process::forget(&own);
            self.catch_up(&job.folder);
            let is_there = layout.experiment().is_file() || layout.search().is_file();
            let fact = is_there.then(|| folder::state(&layout, folder::holder(&layout)));
            let ended = Ended { fact, code, error: process::last_error(&own), asked };
            let standing = after(wanted, &ended, job.restarts);
            self.settle(job, &standing)?;
            if !matches!(standing.state, "queued" | "paused") && wanted != Wanted::Deleted {
                return Ok(None);
            }
        }
        let process = self.processes.get(&job.id);
        if wanted == Wanted::Deleted && process.is_none() {
            self.delete(job)?;
            return Ok(None);
        }
        let state = match (process, wanted) {
            (Some(_), wanted) => with_process(wanted),
            (None, Wanted::Run) => "queued",
            (None, Wanted::Paused) => "paused",
            (None, Wanted::Canceled | Wanted::Killed | Wanted::Deleted) => "canceled",
        };

        if ended.is_none() && state != job.state {
            self.settle(job, &Standing { state, reason: None, faults: None })?;
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
            id: job.id,
            wanted,
            priority: job.priority,
            slots: job.slots.max(1) as u32,
            max_slots: job.max_slots.max(1) as u32,
            running: process.map(Process::slots),
            leaving: process.is_some_and(|process| process.asked),
        }))
    }

    fn perform(&mut self, step: &Step, job: &Job) -> Result<(), Error> {
        match (step, self.processes.get_mut(&job.id)) {
            (Step::Interrupt(_), Some(process)) => process.interrupt(),
            (Step::Preempt(_), Some(process)) => {
                process.preempted = true;
                process.interrupt();
            }
            (Step::Kill(_), Some(process)) => process.kill(),
            (Step::Start(_, slots), None) => match self.start(job, *slots) {
                Ok(process) => {
                    self.processes.insert(job.id, process);
                    let running = Standing { state: "running", reason: None, faults: None };
                    self.settle(job, &running)?;
                }
                Err(error) => self.fail(job, error.to_string())?,
            },
            _ => {}
        }
        Ok(())
    }

    fn start(&self, job: &Job, slots: u32) -> Result<Process, Error> {
        let missing = || Error::Conflict("no program is known for this experiment".to_string());
        let path = job.program.as_deref().ok_or_else(missing)?;
        let program = self.programs.check(path, job.program_hash.as_deref().unwrap_or_default())?;
        let own = self.hub.own_folder(job.id);
        fs::create_dir_all(&own).map_err(Error::io(&own))?;
        let file = own.join("experiment.yaml");
        let config = self.hub.store().experiment_config(job.id)?.unwrap_or_default();
        replace(&file, config.as_bytes(), Durability::Unsynced).map_err(Error::io(&file))?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        // A search has as many trials at a time as fit.
        let at_a_time = (i64::from(slots) / job.slots.max(1)).max(1);
        let mut arguments =
            vec!["train".to_string(), text(file), "--id".into(), job.folder.clone()];
        arguments.extend(["--out".into(), text(self.hub.runs().to_path_buf())]);
        arguments.extend(["--slots".into(), at_a_time.to_string()]);
        if !self.hub.runs().join(&job.folder).exists() {
            // One that goes on has them in its own file.
            arguments.extend(job.sets.iter().flat_map(|set| ["--set".to_string(), set.clone()]));
        }
        let folder = job.base.as_ref().map_or_else(|| self.hub.runs().to_path_buf(), PathBuf::from);
        Process::start(&Start { program: &program, arguments, folder, own: &own, slots })
    }

    /// Removes an experiment with its folder: first its name, so that nobody finds half of it.
    fn delete(&self, job: &Job) -> Result<(), Error> {
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

    fn fail(&self, job: &Job, reason: String) -> Result<(), Error> {
        self.settle(job, &Standing { state: "failed", reason: Some(reason), faults: None })
    }

    fn settle(&self, job: &Job, standing: &Standing) -> Result<(), Error> {
        let Standing { state, reason, faults } = standing.clone();
        if matches!(state, "completed" | "failed" | "canceled") {
            let (experiment, state) = (job.id, state.to_string());
            return self
                .hub
                .say(&Speaker::default(), Operation::Ended { experiment, state, reason });
        }
        self.hub.store().set_state(job.id, state, reason, faults)
    }
}
