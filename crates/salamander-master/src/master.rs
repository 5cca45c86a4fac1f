//! The master's thread: owns the state machines and the journal, takes one input at a time, and does what they
//! decide. What was decided is on disk before anybody hears of it.

mod actions;
mod calls;
mod inputs;
mod names;

use std::time::Instant;

use salamander_core::elastic::{
    Coordinator, Crew, Ending, Generation, Millis, Pace, Phase, Slow, TaskQueue, WorkerId,
};
use salamander_net::{Keys, Token};
use tokio::sync::mpsc;
use tracing::debug;

use crate::asynchronous::Asynchronous;
use crate::bookmark::Bookmark;
use crate::clock::Clock;
use crate::config::{Config, TaskPlan};
use crate::events::Events;
use crate::inbox::{Handle, Input};
use crate::journal::{self, Journal};
use crate::processes::Processes;
use crate::record::{Data, Past, Record};
use crate::workers::Workers;

/// The journal's name in the run's folder.
const JOURNAL: &str = "journal";
/// The name of the file that says which report was taken last.
const REPORTED: &str = "reported";
/// How long the end of a run waits for everybody to hear of it.
const FAREWELL: Millis = 3_000;
/// A silent worker is left out at once, but its process, which may only be stopped, is ended after so many times
/// the silence.
const PATIENCE: Millis = 6;

/// Everything that a master knows.
pub(crate) struct Master {
    pub(crate) coordinator: Coordinator,
    pub(crate) workers: Workers,
    pub(crate) processes: Processes,
    pub(crate) events: Events,
    pub(crate) tasks: Option<TaskQueue>,
    pub(crate) names: Option<Asynchronous>,
    /// Masters before this one.
    pub(crate) master_restarts: u64,
    /// The newest version that was heard of.
    pub(crate) version: u64,
    journal: Journal<Record>,
    bookmark: Bookmark,
    pace: Pace,
    data: Option<Data>,
    silence: Millis,
    clock: Clock,
    /// Records that go to disk before anything is sent.
    records: Vec<Record>,
    /// Records that are written but not waited for.
    lazy: Vec<Record>,
    /// Answers that wait for the disk.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// When the regroup that is under way began.
    regrouping: Option<Millis>,
    /// The newest generation that was told of.
    told: Generation,
    restarts_written: u64,
    server_restarts_written: u64,
    ended_at: Option<Millis>,
}

impl Master {
    /// Takes over the run in a folder, which may be new.
    pub(crate) fn open(config: Config, handle: Handle) -> Result<Self, journal::Error> {
        let (journal, records) = Journal::open(&config.folder.join(JOURNAL))?;
        let path = config.folder.join(REPORTED);
        let (bookmark, reported) = Bookmark::open(&path)
            .map_err(|source| journal::Error::Io { path: path.clone(), source })?;
        let mut past = Past::read(records);
        let mut records = Vec::new();
        if config.resume {
            records.extend(past.resume());
            records.extend(past.resume_names(config.servers));
        }
        let token = Token::from_hex(&config.token);
        let keys = token.map(|token| Keys { token, tls: config.tls });
        let history = std::mem::take(&mut past.names);
        let names = match (config.names, keys) {
            (Some(plan), Ok(keys)) => Some(Asynchronous::open(plan, history, keys, handle)),
            (Some(_), Err(error)) => {
                return Err(journal::Error::Io { path, source: std::io::Error::other(error) });
            }
            (None, _) => None,
        };
        let mut clock = Clock::new(Instant::now());
        let now = clock.read(Instant::now());
        let limits = (config.min_workers, config.workers);
        let coordinator = Coordinator::open(past.history.clone(), limits, config.timeouts, now)
            .with_servers(config.servers);
        let epoch = coordinator.epoch();
        let crew = Crew::new(coordinator.wanted() as u32, config.max_restarts);
        let earlier = (past.restarts, past.server_restarts);
        let servers = coordinator.wanted_servers() as u32;
        let servers = Crew::new(servers, config.max_restarts).of_servers();
        let mut master = Self {
            workers: Workers::default(),
            processes: Processes::new(config.platform, (crew, servers), earlier),
            events: Events::new(epoch, reported, config.sink),
            tasks: None,
            names,
            master_restarts: past.masters,
            version: past.history.checkpoint.as_ref().map_or(0, |mark| mark.version),
            journal,
            bookmark,
            pace: Pace::new(config.hang.as_millis() as Millis),
            data: past.data,
            silence: config.timeouts.silence,
            clock,
            records,
            lazy: Vec::new(),
            answers: Vec::new(),
            regrouping: None,
            told: past.history.activated.as_ref().map_or_else(Generation::default, |a| a.0),
            restarts_written: past.restarts,
            server_restarts_written: past.server_restarts,
            ended_at: None,
            coordinator,
        };
        master.begin(now, &past, (config.tasks, config.resume))?;
        master.events.opened();
        Ok(master)
    }

    /// Works until the run is over and everybody knows it, or until nobody wants it any more.
    pub(crate) fn work(
        mut self,
        mut inbox: mpsc::Receiver<Input>,
    ) -> Result<Option<Ending>, journal::Error> {
        while let Some(input) = inbox.blocking_recv() {
            let now = self.clock.read(Instant::now());
            self.take(now, input);
            self.settle(now)?;
            if let Some(ending) = self.farewell(now) {
                return Ok(Some(ending));
            }
        }
        Ok(None)
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.coordinator.phase(), Phase::Ended(_))
    }

    fn begin(
        &mut self,
        now: Millis,
        past: &Past,
        (plan, resumed): (Option<TaskPlan>, bool),
    ) -> Result<(), journal::Error> {
        if let Phase::Ended(ending) = self.coordinator.phase().clone() {
            self.ended_at = Some(now);
            self.events.ended(ending);
        } else if self.master_restarts > 0 {
            let epoch = self.coordinator.epoch();
            self.events.note(format!("master restarted, epoch {epoch}"));
        }
        if let Some(mark) = &past.history.checkpoint {
            self.events.kept(&mark.id);
        }
        if let Some(plan) = plan {
            let fence = u64::from(self.coordinator.epoch()) << 32;
            let lease = plan.deadline.as_millis() as Millis;
            let mut tasks = TaskQueue::new(plan.records, plan.size, lease, fence);
            for (task, result) in &past.finished {
                tasks.restore(*task);
                // Only what parses was written.
                let json = serde_json::from_str(result).unwrap_or_default();
                self.events.result(*task, &json);
            }
            self.tasks = Some(tasks);
        }
        self.begin_names(now, resumed);
        self.settle(now)
    }

    /// Time has passed.
    fn tick(&mut self, now: Millis) {
        self.coordinator.tick(now);
        for id in self.workers.acknowledge() {
            self.coordinator.disconnected(now, id);
        }
        self.processes.acknowledge();
        if self.is_over() {
            return;
        }
        for (id, slow) in self.pace.slow() {
            let reason = match slow {
                Slow::Hangs => "it hangs",
                Slow::Straggles => "it is far slower than the others",
            };
            self.coordinator.exclude(now, id, reason);
            self.replace(id, reason);
        }
        self.end_the_silent(now);
        self.take_tasks_back(now);
        self.names_tick(now);
        self.processes.scale_servers(self.needed_servers());
        self.processes.work(now);
        let restarts = self.processes.restarts();
        if restarts != self.restarts_written {
            self.restarts_written = restarts;
            self.lazy.push(Record::Restarts(restarts));
        }
        let restarts = self.processes.server_restarts();
        if restarts != self.server_restarts_written {
            self.server_restarts_written = restarts;
            self.lazy.push(Record::ServerRestarts(restarts));
        }
    }

    /// How many parameter servers have to run. Those that are not wanted any more give their rows away first.
    fn needed_servers(&self) -> u32 {
        match &self.names {
            Some(names) => names.dispatcher.needed_servers(),
            None => self.coordinator.needed_servers() as u32,
        }
    }

    /// Tasks of workers that are late or gone are for others.
    fn take_tasks_back(&mut self, now: Millis) {
        let Some(tasks) = &mut self.tasks else { return };
        let mut back = tasks.tick(now);
        for id in self.workers.lost(now.saturating_sub(self.silence)) {
            back.extend(tasks.release(id));
        }
        for (task, worker) in back {
            debug!(task, %worker, "a lease is over");
        }
        if tasks.is_done() {
            self.coordinator.end(Ending::Completed);
        }
    }

    /// Ends processes that were silent for far too long, and forgets workers that nobody can end.
    fn end_the_silent(&mut self, now: Millis) {
        let Some(before) = now.checked_sub(PATIENCE * self.silence) else { return };
        let silent = |heard: Millis| heard <= before;
        let ids: Vec<WorkerId> =
            self.workers.iter().filter(|(_, w)| silent(w.heard)).map(|(id, _)| id).collect();
        for id in ids {
            self.replace(id, "it was silent for too long");
        }
        for id in self.workers.lost(before) {
            self.workers.forget(id);
        }
        for slot in self.processes.unheard(before) {
            if self.processes.replace_slot(slot) {
                self.events.note(format!("slot {slot}: its process does not answer, replaced"));
            }
        }
    }

    fn replace(&mut self, id: WorkerId, reason: &str) {
        if self.processes.replace(id) {
            self.events.note(format!("worker {id} replaced: {reason}"));
        }
    }

    /// The ending, once everybody has heard of it or had the time to.
    fn farewell(&self, now: Millis) -> Option<Ending> {
        let Phase::Ended(ending) = self.coordinator.phase() else { return None };
        let waited = now - self.ended_at.unwrap_or(now);
        let heard = self.workers.all_gone() && self.events.all_seen() && self.processes.is_told();
        // Whoever knew an earlier master needs the time to come to this one; its clock began at 0.
        let found = self.master_restarts == 0 || now >= FAREWELL / 3;
        (waited >= FAREWELL || heard && found).then(|| ending.clone())
    }
}
