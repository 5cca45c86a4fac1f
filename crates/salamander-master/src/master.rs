//! The master's thread: takes one input at a time, tells the mode, and does what it decides. What was decided is on
//! disk before anybody hears of it.

mod calls;
mod inputs;

use std::time::Instant;

use salamander_core::elastic::{
    Coordinator, Ending, Millis, Pace, ProcessSet, RunState, Term, WantedProcesses,
};
use salamander_core::layout::RunLayout;
use salamander_net::{Keys, Token};
use salamander_proto::convert::FromMaster;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::{Config, ModePlan};
use crate::events::Events;
use crate::inbox::{MasterHandle, MasterInput};
use crate::journal::{self, Journal};
use crate::mode::{Effect, Leases, Members, Mode, ModeEvent, Tasks};
use crate::processes::Processes;
use crate::record::Past;
use crate::sent_reports::SentReports;
use crate::term_file::TermFile;
use crate::workers::ConnectedWorkers;

/// Everything that a master knows.
pub(crate) struct Master {
    pub(crate) mode: Mode,
    pub(crate) cluster: Cluster,
    clock: Clock,
    /// What is to be done.
    effects: Vec<Effect>,
}

impl Master {
    /// Takes over the run in a folder, which may be new.
    pub(crate) fn open(config: Config, handle: MasterHandle) -> Result<Self, journal::Error> {
        let run = RunLayout::new(&config.folder);
        let (journal, records) = Journal::open(&run.journal())?;
        let path = run.reported();
        let told = SentReports::open(&path).map_err(journal::Error::of(&path))?;
        let mut past = Past::read(records);
        let mut effects = Vec::new();
        if config.resume {
            let records = past.resume().into_iter().chain(past.rescale(config.asked));
            let records = records.chain(past.resume_names(config.servers));
            effects.extend(records.map(Effect::Journal));
        }
        let terms = TermFile::take(&config.folder, past.history.term);
        let terms = terms.map_err(journal::Error::of(&config.folder))?;
        past.history.term = Term(terms.term.0 - 1);
        let mut clock = Clock::new(Instant::now());
        let now = clock.read(Instant::now());
        let wanted = WantedProcesses { workers: config.workers, servers: config.servers };
        let run = RunState::open(past.history.clone(), wanted);
        let set = |wanted: usize| ProcessSet::new(wanted as u32, config.max_restarts);
        let (workers, servers) = (set(run.wanted().workers), set(run.wanted().servers));
        let mut cluster = Cluster {
            term: run.term(),
            workers: ConnectedWorkers::default(),
            processes: Processes::new(
                config.platform,
                workers,
                servers.of_servers(),
                past.restarts,
            ),
            events: Events::new(run.term(), told, config.sink),
            master_restarts: past.masters,
            version: past.history.checkpoint.as_ref().map(|mark| mark.version).unwrap_or_default(),
            journal,
            data: past.data,
            silence: config.timeouts.silence,
            written: past.restarts,
            answers: Vec::new(),
            ended_at: None,
            terms,
            looked: 0,
            is_wanted: {
                let handle = handle.clone();
                Box::new(move || handle.is_open())
            },
        };
        // A run with a checkpoint has worked: what one process lacks now, another one may have.
        if !config.resume && past.history.checkpoint.is_some() {
            cluster.processes.progressed();
        }
        let mode = match config.mode {
            ModePlan::Members => {
                let pace = Pace::new(config.hang.as_millis() as Millis);
                let members = Coordinator::open(run, config.min_workers, config.timeouts, now);
                let mut members = Box::new(Members::new(members, pace));
                effects.extend(members.effects(now));
                Mode::Members(members)
            }
            ModePlan::Leases(plan) => {
                let token = Token::from_hex(&config.token).map_err(std::io::Error::other);
                let token = token.map_err(journal::Error::of(&config.folder))?;
                let keys = Keys { token, tls: config.tls };
                let history = std::mem::take(&mut past.names);
                let mut leases = Box::new(Leases::open(run, *plan, history, keys, handle));
                effects.extend(leases.begin(now, config.resume));
                Mode::Leases(leases)
            }
            ModePlan::Tasks(plan) => {
                let mut tasks = Box::new(Tasks::new(run, plan));
                effects.extend(tasks.begin(&past));
                Mode::Tasks(tasks)
            }
        };
        let mut master = Self { mode, cluster, clock, effects };
        master.begin(now)?;
        Ok(master)
    }

    /// Works until the run is over and everybody knows it, or until nobody wants it any more.
    pub(crate) fn work(
        mut self,
        mut inbox: mpsc::Receiver<MasterInput>,
    ) -> Result<Option<Ending>, journal::Error> {
        while let Some(input) = inbox.blocking_recv() {
            let now = self.clock.read(Instant::now());
            self.take(now, input)?;
            self.settle(now)?;
            if let Some(ending) = self.ending().filter(|_| self.cluster.may_leave(now)) {
                return Ok(Some(ending.clone()));
            }
        }
        Ok(None)
    }

    /// How the run ended, once it has.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.mode.run().ending()
    }

    fn begin(&mut self, now: Millis) -> Result<(), journal::Error> {
        let history = self.mode.run().history();
        if let Some(ending) = history.ending.clone() {
            self.cluster.ended_at = Some(now);
            self.cluster.events.ended(ending);
        } else if self.cluster.master_restarts > 0 {
            let term = self.cluster.term;
            self.cluster.events.note(format!("master restarted, term {term}"));
        }
        if let Some(mark) = &history.checkpoint {
            self.cluster.events.sink.kept(&mark.id);
        }
        self.settle(now)?;
        let opened = self.cluster.events.sink.opened();
        opened.map_err(journal::Error::of(self.cluster.journal.path()))
    }

    fn step(&mut self, now: Millis, event: ModeEvent) {
        let effects = self.mode.step(now, event);
        self.effects.extend(effects);
    }

    /// Does what was decided: first the disk, then everybody else.
    fn settle(&mut self, now: Millis) -> Result<(), journal::Error> {
        while !self.effects.is_empty() {
            let effects = std::mem::take(&mut self.effects);
            self.cluster.write(&effects)?;
            effects.into_iter().for_each(|effect| self.perform(now, effect));
        }
        self.cluster.answers.drain(..).for_each(|answer| answer());
        self.cluster.events.pump();
        Ok(())
    }

    fn perform(&mut self, now: Millis, effect: Effect) {
        let cluster = &mut self.cluster;
        match effect {
            Effect::Journal(record) => cluster.written(now, &record),
            Effect::Send(id, message) => {
                if !cluster.workers.send(id, FromMaster::Member(message)) {
                    self.step(now, ModeEvent::Disconnected(id));
                }
            }
            Effect::Note(note) => cluster.events.note(note),
            Effect::Report { line, version, report } => cluster.report(line, version, report),
            Effect::Restored(version) => cluster.events.restored(version),
            Effect::Result { task, result } => cluster.events.result(task, result),
            Effect::Kept(id) => cluster.events.sink.kept(&id),
            Effect::Progressed => cluster.processes.progressed(),
            Effect::Replace(id, reason) => {
                cluster.processes.scale_servers(self.mode.needed_servers() as u32);
                cluster.replace(id, reason);
            }
            Effect::Server(task) => {
                if let Mode::Leases(leases) = &mut self.mode
                    && let Err(reason) = leases.threads.perform(task)
                {
                    self.step(now, ModeEvent::End(Ending::Failed(reason)));
                }
            }
        }
    }
}
