//! What workers and the platform say, in the words of the mode.

use salamander_core::elastic::{Ended, Ending, Hello, Millis, Seat, ToMember, WorkerId};
use salamander_proto::convert::FromWorker;
use salamander_proto::{status, v1};
use tracing::{debug, warn};

use super::Master;
use crate::inbox::{Input, ProcessEnd, Session};
use crate::journal;
use crate::mode::Event;
use crate::workers::Kind;

impl Master {
    pub(super) fn take(&mut self, now: Millis, input: Input) -> Result<(), journal::Error> {
        match input {
            Input::Tick => return self.tick(now),
            Input::Hello(session, hello) => self.hello(now, session, &hello),
            Input::Worker(session, number, message) => {
                if let Some(id) = self.cluster.workers.speaker(now, session) {
                    self.worker(now, id, message);
                    self.cluster.workers.received(id, number);
                }
            }
            Input::WorkerLeft(session) => {
                if let Some(id) = self.cluster.workers.left(session) {
                    debug!(worker = %id, "disconnected");
                    self.step(now, Event::Disconnected(id));
                }
            }
            Input::Inventory(session, inventory) => self.inventory(now, session, inventory),
            Input::ProcessEnd(session, number, end) => {
                self.process_end(now, end);
                self.cluster.processes.received(session, number);
            }
            Input::PlatformLeft(session) => self.cluster.processes.detach(session),
            Input::Watch(request, out) => self.cluster.events.watch(request, out),
            Input::Server(process, news) => self.step(now, Event::Server(process, news)),
            Input::Folder(made) => self.step(now, Event::Folder(made)),
            Input::Call(call) => self.call(now, call),
        }
        Ok(())
    }

    /// Time has passed.
    fn tick(&mut self, now: Millis) -> Result<(), journal::Error> {
        let cut = self.cluster.workers.acknowledge();
        cut.into_iter().for_each(|id| self.step(now, Event::Disconnected(id)));
        self.cluster.processes.acknowledge();
        if self.ending().is_none()
            && let Some(before) = now.checked_sub(self.cluster.silence)
        {
            for id in self.cluster.workers.unheard(before) {
                self.step(now, Event::Silent(id));
            }
            for id in self.cluster.workers.lost(before) {
                self.step(now, Event::Lost(id));
            }
        }
        self.step(now, Event::Tick);
        if self.ending().is_some() {
            return Ok(());
        }
        self.cluster.end_the_silent(now);
        self.cluster.processes.scale_servers(self.mode.needed_servers() as u32);
        self.cluster.processes.work(now);
        self.cluster.write_restarts()
    }

    fn hello(&mut self, now: Millis, session: Session<v1::MasterMessage>, message: &v1::Hello) {
        let hello = match Hello::try_from(message) {
            Ok(hello) => hello,
            Err(error) => {
                // If even this does not fit, the stream ends without a reason.
                let _ = session.out.try_send(Err(status::Error::from(error).into()));
                return;
            }
        };
        let id = hello.peer.id;
        let Some(effects) = self.cluster.connect(now, id, message, session) else { return };
        self.effects.extend(effects);
        if let Some(ending) = self.ending().cloned() {
            self.cluster.workers.send(id, ToMember::Ended(ending));
            return;
        }
        match Kind::of(message) {
            Kind::Member => self.step(now, Event::Joined(hello)),
            Kind::Server => {
                // One that is about to be ended is of no use.
                if let Seat::Server(seat) = Seat::of(message.slot)
                    && !self.cluster.processes.is_ending(message.slot)
                {
                    self.step(now, Event::ServerUp(seat, hello.peer));
                }
            }
            Kind::Tasks => {}
        }
    }

    fn worker(&mut self, now: Millis, id: WorkerId, message: FromWorker) {
        let Some(worker) = self.cluster.workers.get_mut(id) else { return };
        let is_member = worker.kind == Kind::Member;
        match message {
            FromWorker::Beat(beat) => {
                worker.beat = Some(beat);
                if is_member {
                    self.step(now, Event::Beat(id, beat));
                }
            }
            FromWorker::Member(message) if is_member => self.step(now, Event::Said(id, message)),
            FromWorker::Report { version, report } => self.cluster.report(version, *report),
            FromWorker::Failed(reason) => {
                warn!(worker = %id, reason, "the run cannot go on");
                self.step(now, Event::End(Ending::Failed(reason)));
            }
            FromWorker::Hello(_) | FromWorker::Member(_) => {
                debug!(worker = %id, "said something out of place");
            }
        }
    }

    fn inventory(
        &mut self,
        now: Millis,
        session: Session<v1::PlatformOrder>,
        inventory: v1::Inventory,
    ) {
        for end in inventory.ended {
            match ProcessEnd::try_from(end) {
                Ok(end) => self.process_end(now, end),
                Err(error) => warn!(%error, "an end in an inventory makes no sense"),
            }
        }
        let ending = self.ending().cloned();
        let cluster = &mut self.cluster;
        cluster.processes.attach(now, session, &inventory.running, cluster.term);
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
            Ended::Crashed(why) => ("its process crashed", format!("crashed: {why}")),
        };
        let (worker, verdict) = self.cluster.processes.ended(now, end);
        if let Some(id) = worker {
            self.cluster.events.note(match Seat::of(slot) {
                Seat::Worker(slot) => format!("worker {id}: slot {slot}, process {pid} {text}"),
                Seat::Server(seat) => format!("parameter server {seat}: process {pid} {text}"),
            });
            self.cluster.workers.forget(id);
            self.step(now, Event::Gone(id, reason));
        } else {
            debug!(slot, pid, text, "a process that was no worker yet ended");
        }
        if let Err(reason) = verdict {
            self.step(now, Event::End(Ending::Failed(reason)));
        }
    }
}
