//! What a run is made of, whatever its mode: who is connected, which processes run, what is told outside, and what is
//! on disk.

use salamander_core::elastic::{
    Ending, GenerationChain, MembershipEntry, Millis, Seat, Term, ToMember, Version, WorkerId,
};
use salamander_core::note::{Note, NoteTopic};
use salamander_core::report::Report;
use salamander_core::words::count_is;
use salamander_proto::client::{Registration, Role, TrainedOn};
use salamander_proto::convert::FromMaster;
use salamander_proto::status;

use crate::events::Events;
use crate::inbox::AnswerSender;
use crate::journal::{self, Journal, Problem};
use crate::mode::Effect;
use crate::processes::{Processes, Restarts};
use crate::record::Record;
use crate::session::ProcessSession;
use crate::term_file::TermFile;
use crate::workers::ConnectedWorkers;

/// A silent worker is left out at once, but its process, which may only be stopped, is ended after so many times
/// the silence.
const PATIENCE: Millis = 6;
/// How long the end of a run waits for everybody to hear of it.
const FAREWELL: Millis = 3_000;

/// Workers, processes, events, journal.
pub(crate) struct Cluster {
    /// The master's own term.
    pub(crate) term: Term,
    pub(crate) workers: ConnectedWorkers,
    pub(crate) processes: Processes,
    pub(crate) events: Events,
    /// Masters before this one.
    pub(crate) master_restarts: u64,
    /// The newest version that was told of.
    pub(crate) version: Version,
    pub(crate) journal: Journal<Record>,
    pub(crate) data: Option<TrainedOn>,
    pub(crate) silence: Millis,
    /// What the journal says about restarts.
    pub(crate) written: Restarts,
    /// Answers that wait for the disk.
    pub(crate) answers: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) ended_at: Option<Millis>,
    /// The file that says that the term is its own.
    pub(crate) terms: TermFile,
    /// When it was last looked at.
    pub(crate) looked: Millis,
    /// Whether anybody still wants this master.
    pub(crate) is_wanted: Box<dyn Fn() -> bool + Send>,
}

impl Cluster {
    /// Writes what is to be on disk before anything else is done.
    pub(crate) fn write(&mut self, effects: &[Effect]) -> Result<(), journal::Error> {
        let record = |effect: &Effect| match effect {
            Effect::Journal(record) => Some(record.clone()),
            _ => None,
        };
        let records: Vec<Record> = effects.iter().filter_map(record).collect();
        if records.is_empty() {
            return Ok(());
        }
        self.still_leads()?;
        // Nobody hears of anything meanwhile, and the clock stands still; steps go on without a master.
        self.journal.append_patiently(&records, &*self.is_wanted)
    }

    /// Fails when another master leads by now.
    pub(crate) fn still_leads(&mut self) -> Result<(), journal::Error> {
        let deposed = match self.terms.later() {
            Ok(Some(later)) => {
                Some(Problem::Deposed(format!("another one has taken term {later}")))
            }
            // A folder that cannot be read says nothing; the journal in it will.
            Ok(None) | Err(_) => self.events.sink.deposed(),
        };
        match deposed {
            Some(problem) => Err(journal::Error::of(self.journal.path())(problem)),
            None => Ok(()),
        }
    }

    /// A record is on disk.
    pub(crate) fn written(&mut self, now: Millis, record: &Record) {
        let Record::Entry { entry, .. } = record else { return };
        match entry {
            MembershipEntry::Checkpoint(mark) => {
                self.version = self.version.max(mark.version);
                self.events.sink.kept(&mark.id);
                let text = format!("checkpoint {} kept, version {}", mark.id, mark.version);
                self.events.note(Note::about(NoteTopic::CheckpointKept(mark.id.clone()), text));
            }
            MembershipEntry::Scaled(workers) => {
                self.events.note(format!("{} wanted", count_is(*workers as u64, "worker")));
            }
            MembershipEntry::ScaledServers(servers) => {
                let servers = count_is(*servers as u64, "parameter server");
                self.events.note(format!("{servers} wanted"));
            }
            MembershipEntry::Stopping => self.events.note("an early end was asked for"),
            MembershipEntry::Ended(ending) => self.ended(now, ending),
            MembershipEntry::Opened
            | MembershipEntry::Prepared(_)
            | MembershipEntry::Activated { .. }
            | MembershipEntry::Moved(_)
            | MembershipEntry::Resumed => {}
        }
    }

    fn ended(&mut self, now: Millis, ending: &Ending) {
        self.ended_at = Some(now);
        self.events.ended(ending.clone());
        self.processes.over(ending.clone());
        let ids: Vec<WorkerId> = self.workers.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.workers.send(id, FromMaster::Member(ToMember::Ended(ending.clone())));
        }
    }

    /// How often processes were started again is written, but not waited for.
    pub(crate) fn write_restarts(&mut self) -> Result<(), journal::Error> {
        let Restarts { workers, servers } = self.processes.restarts();
        let mut records = Vec::new();
        if workers != self.written.workers {
            records.push(Record::Restarts(workers));
        }
        if servers != self.written.servers {
            records.push(Record::ServerRestarts(servers));
        }
        self.written = Restarts { workers, servers };
        match self.journal.append_lazily(&records) {
            // Their number is in the next record of its kind.
            Err(error) if error.is_full() => Ok(()),
            written => written,
        }
    }

    /// Takes a report, if nothing as new was taken before.
    pub(crate) fn report(&mut self, line: GenerationChain, version: Version, report: Report) {
        if self.events.report(line, version, report) {
            self.version = self.version.max(version);
            self.processes.progressed();
        }
    }

    /// Answers once everything before it is on disk.
    pub(crate) fn answer<T: Send + 'static>(
        &mut self,
        to: AnswerSender<T>,
        answer: Result<T, status::Error>,
    ) {
        // Whoever asked may have gone.
        self.answers.push(Box::new(move || drop(to.send(answer))));
    }

    /// Connects a worker or a parameter server.
    pub(crate) fn connect(
        &mut self,
        now: Millis,
        mut registration: Registration,
        connection: ProcessSession,
    ) {
        if !self.processes.are_served() && registration.role != Role::Server {
            registration.slot = self.workers.own_slot(&registration);
        }
        let Registration { id, slot, process: pid, .. } = registration;
        let is_new = self.workers.connect(now, registration, connection);
        self.processes.bind(slot, pid, id);
        self.workers.send(id, FromMaster::Welcome(self.term));
        if is_new {
            self.events.note(match Seat::of(slot) {
                Seat::Worker(slot) => format!("worker {id} joined: slot {slot}, process {pid}"),
                Seat::Server(seat) => {
                    format!("parameter server {seat} is ready: {id}, process {pid}")
                }
            });
        }
    }

    /// All workers must train on the same; the first one says on what, which is written down.
    pub(crate) fn same_data(&mut self, role: Role) -> Result<Option<Record>, String> {
        let (Role::Member(found) | Role::Tasks(found)) = role else { return Ok(None) };
        let Some(expected) = self.data else {
            self.data = Some(found);
            return Ok(Some(Record::Data(found)));
        };
        if found.records != expected.records {
            let (found, expected) = (found.records, expected.records);
            return Err(format!("it sees {found} records and the others {expected}"));
        }
        if found.fingerprint != expected.fingerprint {
            return Err("its data differs from the others', though it has as many records".into());
        }
        if let Some(part) = found.other_training(&expected) {
            return Err(format!(
                "its {part} is not that of the run's first worker, so that it would train another model: start it \
                 with the run's own experiment, data and program"
            ));
        }
        let knows_more = |known: u64, found: u64| known == 0 && found != 0;
        if knows_more(expected.program, found.program)
            || knows_more(expected.settings, found.settings)
        {
            self.data = Some(found);
            return Ok(Some(Record::Data(found)));
        }
        if let Some(part) = found.other_arithmetic(&expected) {
            return Err(format!(
                "its {part} is not that of the run's first worker, so that its sums would have other bits: run it \
                 on a machine like the others' with the same program, or stop and resume the run, which goes on \
                 with the arithmetic of the first worker then"
            ));
        }
        Ok(None)
    }

    /// Ends the process of a worker, so that another takes its place.
    pub(crate) fn replace(&mut self, id: WorkerId, reason: Option<&str>) {
        if self.processes.replace(id)
            && let Some(reason) = reason
        {
            let text = format!("worker {id} replaced: {reason}");
            self.events.note(Note::about(NoteTopic::WorkerReplaced(id), text));
        }
    }

    /// Ends processes that were silent for far too long, and forgets workers that nobody can end.
    pub(crate) fn end_the_silent(&mut self, now: Millis) {
        let Some(before) = now.checked_sub(PATIENCE * self.silence) else { return };
        for id in self.workers.unheard(before) {
            self.replace(id, Some("it was silent for too long"));
        }
        for id in self.workers.lost(before) {
            self.workers.forget(id);
        }
        for slot in self.processes.unheard(before) {
            if self.processes.replace_slot(slot) {
                let text = format!("slot {slot}: its process does not answer, replaced");
                self.events.note(Note::about(NoteTopic::ProcessReplaced(slot), text));
            }
        }
    }

    /// Whether everybody has heard of the end, or had the time to.
    pub(crate) fn may_leave(&self, now: Millis) -> bool {
        let waited = now - self.ended_at.unwrap_or(now);
        let heard = self.workers.all_gone() && self.events.all_seen() && self.processes.is_told();
        // Whoever knew an earlier master needs the time to come to this one; its clock began at 0.
        let found = self.master_restarts == 0 || now >= FAREWELL / 3;
        waited >= FAREWELL || heard && found
    }
}
