//! What the master does with what workers and the platform say.

use salamander_core::elastic::{Ended, Hello, Millis, Seat, WorkerId};
use salamander_proto::convert::FromWorker;
use salamander_proto::{status, v1};
use tracing::{debug, warn};

use super::Master;
use crate::inbox::{Input, Out, ProcessEnd, SessionId};
use crate::record::{Data, Record};
use crate::workers::{self, Kind};

impl Master {
    pub(super) fn take(&mut self, now: Millis, input: Input) {
        match input {
            Input::Tick => self.tick(now),
            Input::Hello(session, hello, out) => self.hello(now, session, &hello, out),
            Input::Worker(session, number, message) => {
                if let Some(id) = self.workers.speaker(now, session) {
                    self.worker(now, id, message);
                    self.workers.received(id, number);
                }
            }
            Input::WorkerLeft(session) => {
                if let Some(id) = self.workers.left(session) {
                    debug!(worker = %id, "disconnected");
                    self.coordinator.disconnected(now, id);
                }
            }
            Input::Inventory(session, inventory, out) => {
                self.inventory(now, session, inventory, out);
            }
            Input::ProcessEnd(session, number, end) => {
                self.process_end(now, end);
                self.processes.received(session, number);
            }
            Input::PlatformLeft(session) => self.processes.detach(session),
            Input::Watch(request, out) => self.events.watch(request, out),
            input @ (Input::Server(..) | Input::Folder(_)) => self.names_input(now, input),
            call => self.call(now, call),
        }
    }

    fn hello(
        &mut self,
        now: Millis,
        session: SessionId,
        message: &v1::Hello,
        out: Out<v1::MasterMessage>,
    ) {
        let hello = match Hello::try_from(message) {
            Ok(hello) => hello,
            Err(error) => {
                // If even this does not fit, the stream ends without a reason.
                let _ = out.try_send(Err(status::Error::from(error).into()));
                return;
            }
        };
        let id = hello.peer.id;
        let kind = Kind::of(message);
        if kind != Kind::Server
            && let Err(reason) = self.same_data(message)
        {
            self.events.note(format!("worker {id} refused: {reason}"));
            workers::refuse(self.coordinator.epoch(), reason, &out);
            return;
        }
        let is_new = self.workers.connect(now, (id, message), session, out);
        self.processes.bind(message.slot, message.pid, id);
        self.workers.welcome(id, self.coordinator.epoch());
        if is_new {
            let (slot, pid) = (message.slot, message.pid);
            self.events.note(match Seat::of(slot) {
                Seat::Worker(slot) => format!("worker {id} joined: slot {slot}, process {pid}"),
                Seat::Server(seat) => {
                    format!("parameter server {seat} is ready: {id}, process {pid}")
                }
            });
        }
        match (kind, self.ending()) {
            (Kind::Member, _) => self.coordinator.hello(now, hello),
            (_, Some(ending)) => drop(self.workers.send(id, ending)),
            (Kind::Server, None) => {
                self.server_up(now, message, hello);
            }
            (Kind::Tasks, None) => {}
        }
    }

    /// A server is ready, unless it is about to be ended.
    fn server_up(&mut self, now: Millis, message: &v1::Hello, hello: Hello) {
        let Seat::Server(seat) = Seat::of(message.slot) else { return };
        if self.processes.is_ending(message.slot) {
            return;
        }
        let (incarnation, endpoint) = (hello.peer.id.0, hello.peer.endpoint.clone());
        self.coordinator.server_up(now, seat, hello.peer);
        self.meet_server(seat, incarnation, endpoint);
    }

    /// All workers must train on the same; the first one says on what.
    fn same_data(&mut self, hello: &v1::Hello) -> Result<(), String> {
        let found = Data { records: hello.records, fingerprint: hello.fingerprint };
        let Some(expected) = self.data else {
            self.data = Some(found);
            self.records.push(Record::Data(found));
            return Ok(());
        };
        if found.records != expected.records {
            let (found, expected) = (found.records, expected.records);
            return Err(format!("it sees {found} records and the others {expected}"));
        }
        if found.fingerprint != expected.fingerprint {
            return Err("its data differs from the others', though it has as many records".into());
        }
        Ok(())
    }

    fn worker(&mut self, now: Millis, id: WorkerId, message: FromWorker) {
        let is_member = self.workers.get(id).is_some_and(|worker| worker.kind == Kind::Member);
        match message {
            FromWorker::Beat(beat) => {
                if let Some(worker) = self.workers.get_mut(id) {
                    worker.beat = Some(beat);
                }
                if is_member {
                    self.coordinator.heard(now, id);
                    if self.coordinator.members().iter().any(|(member, _)| *member == id) {
                        self.pace.beat(now, id, beat);
                    }
                }
            }
            FromWorker::Member(message) if is_member => {
                self.coordinator.message(now, id, message);
            }
            FromWorker::Report(report) => {
                let version = report.version;
                if self.events.report(report) {
                    self.version = self.version.max(version);
                    self.processes.progressed();
                    self.mark_report();
                }
            }
            FromWorker::Failed(reason) => {
                warn!(worker = %id, reason, "the run cannot go on");
                self.fail(reason);
            }
            FromWorker::Hello(_) | FromWorker::Member(_) => {
                debug!(worker = %id, "said something out of place");
            }
        }
    }

    fn inventory(
        &mut self,
        now: Millis,
        session: SessionId,
        inventory: v1::Inventory,
        out: Out<v1::PlatformOrder>,
    ) {
        for end in inventory.ended {
            match ProcessEnd::try_from(end) {
                Ok(end) => self.process_end(now, end),
                Err(error) => warn!(%error, "an end in an inventory makes no sense"),
            }
        }
        let epoch = self.coordinator.epoch();
        self.processes.attach(now, (session, out), &inventory.running, epoch);
        for process in &inventory.running {
            let (slot, pid) = (process.slot, process.pid);
            let known = self.workers.iter().find(|(_, w)| (w.slot, w.pid) == (slot, pid));
            if let Some(id) = known.map(|(id, _)| id) {
                self.processes.bind(slot, pid, id);
            }
        }
        if let salamander_core::elastic::Phase::Ended(ending) = self.coordinator.phase() {
            self.processes.over(ending.clone());
        }
    }

    /// A process ended: its worker is out of the membership at once.
    fn process_end(&mut self, now: Millis, end: ProcessEnd) {
        let (slot, pid) = (end.slot, end.pid);
        if self.is_over() {
            let ids = self.workers.iter().filter(|(_, w)| (w.slot, w.pid) == (slot, pid));
            let ids: Vec<WorkerId> = ids.map(|(id, _)| id).collect();
            ids.into_iter().for_each(|id| self.workers.forget(id));
            return;
        }
        let (reason, text) = match &end.how {
            Ended::Finished => ("its process ended", "ended".to_string()),
            Ended::Killed(by) => ("its process was killed", format!("was killed: {by}")),
            Ended::Crashed(why) => ("its process crashed", format!("crashed: {why}")),
        };
        let (worker, verdict) = self.processes.ended(now, end);
        if let Some(id) = worker {
            self.events.note(match Seat::of(slot) {
                Seat::Worker(slot) => format!("worker {id}: slot {slot}, process {pid} {text}"),
                Seat::Server(seat) => format!("parameter server {seat}: process {pid} {text}"),
            });
            self.workers.forget(id);
            self.coordinator.server_lost(now, id);
            if let Some(tasks) = &mut self.tasks {
                tasks.release(id);
            }
            self.names_lost(id);
            self.coordinator.gone(now, id, reason);
        } else {
            debug!(slot, pid, text, "a process that was no worker yet ended");
        }
        if let Err(reason) = verdict {
            self.fail(reason);
        }
    }
}
