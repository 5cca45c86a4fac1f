//! What workers and the platform say, in the words of the mode.

use salamander_core::elastic::{
    self, Ended, Ending, FromMember, MemberReport, Millis, Peer, Seat, ToMember, WorkerId,
};
use salamander_core::note::{Note, NoteTopic};
use salamander_proto::client::{Registration, Role};
use salamander_proto::convert::{
    FromMaster, FromProcess, Hello, Inventory, Numbered, ProcessEnd, TableReport,
};
use tracing::{debug, warn};

use super::Master;
use crate::inbox::MasterInput;
use crate::journal;
use crate::mode::{Effect, ModeEvent};
use crate::processes::Refusal;
use crate::session::{ProcessSession, SessionId};

/// How often the master looks whether it still leads, besides before it writes.
const LOOK: Millis = 1_000;

impl Master {
    pub(super) fn take(&mut self, now: Millis, input: MasterInput) -> Result<(), journal::Error> {
        match input {
            MasterInput::Tick => return self.tick(now),
            MasterInput::Hello(connection, hello) => self.hello(now, connection, hello),
            MasterInput::Inventory(platform, inventory) => self.inventory(now, platform, inventory),
            MasterInput::Said(session, message) => self.said(now, session, message),
            MasterInput::Left(session) => {
                self.cluster.processes.detach(session);
                if let Some(id) = self.cluster.workers.left(session) {
                    debug!(worker = %id, "disconnected");
                    self.step(now, ModeEvent::Disconnected(id));
                }
            }
            MasterInput::Watch(request, out) => self.cluster.events.watch(request, out),
            MasterInput::Server(process, news) => self.step(now, ModeEvent::Server(process, news)),
            MasterInput::Folder(made) => self.step(now, ModeEvent::Folder(made)),
            MasterInput::Call(call) => self.call(now, call),
        }
        Ok(())
    }

    /// Time has passed.
    fn tick(&mut self, now: Millis) -> Result<(), journal::Error> {
        if now >= self.cluster.looked + LOOK {
            self.cluster.looked = now;
            self.cluster.still_leads()?;
        }
        let cut = self.cluster.workers.acknowledge();
        cut.into_iter().for_each(|id| self.step(now, ModeEvent::Disconnected(id)));
        self.cluster.processes.acknowledge();
        if self.ending().is_none()
            && let Some(before) = now.checked_sub(self.cluster.silence)
        {
            for id in self.cluster.workers.unheard(before) {
                self.step(now, ModeEvent::Silent(id));
            }
            for id in self.cluster.workers.lost(before) {
                self.step(now, ModeEvent::Lost(id));
            }
        }
        self.step(now, ModeEvent::Tick);
        // Who is ended below depends on who is a member, which is on disk first.
        self.settle(now)?;
        if self.ending().is_some() {
            return Ok(());
        }
        self.cluster.end_the_silent(now);
        self.mode.forget_superfluous_servers();
        self.cluster.processes.scale_servers(self.mode.needed_servers() as u32);
        self.cluster.processes.keep(self.mode.needed_slots());
        self.cluster.processes.work(now);
        self.cluster.write_restarts()
    }

    fn hello(&mut self, now: Millis, connection: ProcessSession, hello: Hello) {
        let Registration { id, ref endpoint, slot, process, role } = hello.registration;
        let (peer, active) = (Peer { id, endpoint: endpoint.clone() }, hello.active);
        match self.cluster.same_data(role) {
            Ok(record) => self.effects.extend(record.map(Effect::Journal)),
            Err(reason) => {
                let text = format!("worker {id} refused: {reason}");
                self.cluster.events.note(Note::about(NoteTopic::WorkerRefused(id), text));
                let is_needed = self.cluster.workers.present() < self.mode.least_workers();
                let refusal = Refusal { reason: reason.clone(), is_needed };
                self.cluster.processes.refuse(slot, process, refusal);
                return connection.dismiss(self.cluster.term, reason);
            }
        }
        self.cluster.connect(now, hello.registration, connection);
        if let Some(ending) = self.ending().cloned() {
            self.cluster.workers.send(id, FromMaster::Member(ToMember::Ended(ending)));
            return;
        }
        match (role, Seat::of(slot)) {
            (Role::Member(_), _) => {
                let slot = self.cluster.processes.are_served().then_some(slot);
                self.step(now, ModeEvent::Joined(elastic::Hello { peer, active, slot }));
            }
            // One that is about to be ended is of no use.
            (Role::Server, Seat::Server(seat)) if !self.cluster.processes.is_ending(slot) => {
                self.step(now, ModeEvent::ServerUp(seat, peer));
            }
            (Role::Server | Role::Tasks(_), _) => {}
        }
    }

    fn said(&mut self, now: Millis, session: SessionId, message: Numbered) {
        let Numbered { number, said } = message;
        if let Some(id) = self.cluster.workers.speaker(now, session) {
            self.worker(now, id, said);
            self.cluster.workers.received(id, number);
        } else if self.cluster.processes.received(session, number)
            && let FromProcess::End(end) = said
        {
            self.process_end(now, end);
        }
    }

    fn worker(&mut self, now: Millis, id: WorkerId, said: FromProcess) {
        let Some(worker) = self.cluster.workers.get_mut(id) else { return };
        let is_member = worker.is_member();
        let Registration { role, slot, .. } = worker.registration;
        match said {
            FromProcess::Beat(beat) => {
                worker.beat = Some(beat);
                if role != Role::Server {
                    self.step(now, ModeEvent::Beat(id, beat));
                }
            }
            FromProcess::Member(message) if is_member => {
                self.step(now, ModeEvent::Said(id, message))
            }
            FromProcess::Member(FromMember::Leave) if role == Role::Server => {
                self.server_leaves(now, id, slot);
            }
            FromProcess::Tables(TableReport { tables }) => worker.tables = tables,
            FromProcess::Report { version, generation, report } => {
                let told = MemberReport { version, generation, report: *report };
                self.step(now, ModeEvent::Reported(Box::new(told)));
            }
            FromProcess::Failed(reason) => {
                warn!(worker = %id, reason, "a worker cannot go on");
                self.step(now, ModeEvent::Failed(id, reason));
            }
            _ => {
                debug!(worker = %id, "said something out of place");
            }
        }
    }

    /// A parameter server was told to end. One that holds rows of the run stays until a checkpoint has them.
    fn server_leaves(&mut self, now: Millis, id: WorkerId, slot: u32) {
        let seat = self.mode.run().servers().find(|(_, server)| server.id == id);
        let needed = self.mode.needed_servers() as u32;
        match seat.map(|(seat, _)| seat).filter(|seat| *seat < needed) {
            Some(seat) if !self.cluster.processes.is_ending(slot) => {
                let text = "wants to leave: a checkpoint is taken first";
                let text = format!("parameter server {seat} {text}");
                self.cluster.events.note(Note::about(NoteTopic::ServerLeaves(seat), text));
                self.step(now, ModeEvent::ServerLeaves(id));
            }
            _ => self.effects.push(Effect::Send(id, ToMember::Stop)),
        }
    }

    fn inventory(&mut self, now: Millis, platform: ProcessSession, inventory: Inventory) {
        inventory.ended.into_iter().for_each(|end| self.process_end(now, end));
        let ending = self.ending().cloned();
        let cluster = &mut self.cluster;
        cluster.processes.attach(now, platform, &inventory.running, cluster.term);
        for process in &inventory.running {
            let (slot, pid) = (process.slot, process.pid);
            for id in cluster.workers.of_process(slot, pid) {
                cluster.processes.bind(slot, pid, id);
            }
        }
        ending.into_iter().for_each(|ending| cluster.processes.over(ending));
    }

    /// A process ended: its worker is out of the run at once.
    fn process_end(&mut self, now: Millis, end: ProcessEnd) {
        let (slot, pid) = (end.slot, end.pid);
        if self.ending().is_some() {
            for id in self.cluster.workers.of_process(slot, pid) {
                self.cluster.workers.forget(id);
            }
            return;
        }
        let (reason, text) = match &end.how {
            Ended::Finished => ("its process ended", "ended".to_string()),
            Ended::Killed(by) => ("its process was killed", format!("was killed: {by}")),
            Ended::Crashed(why) | Ended::Mistaken(why) => {
                ("its process crashed", format!("crashed: {why}"))
            }
        };
        let (worker, verdict) = self.cluster.processes.ended(now, end);
        if let Some(id) = worker {
            self.cluster.events.note(match Seat::of(slot) {
                Seat::Worker(slot) => format!("worker {id}: slot {slot}, process {pid} {text}"),
                Seat::Server(seat) => format!("parameter server {seat}: process {pid} {text}"),
            });
            self.cluster.workers.forget(id);
            self.step(now, ModeEvent::Gone(id, reason));
        } else {
            debug!(slot, pid, text, "a process that was no worker yet ended");
        }
        if let Err(reason) = verdict {
            self.step(now, ModeEvent::End(Ending::Failed(reason)));
        }
    }
}
