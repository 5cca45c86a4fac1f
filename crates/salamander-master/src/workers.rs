//! The workers that the master knows, and their connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use salamander_core::elastic::{Beat, Millis, ToMember, WorkerId};
use salamander_core::status::TableStats;
use salamander_proto::client::{Registration, Role};
use salamander_proto::convert::FromMaster;
use tracing::debug;

use crate::session::{ProcessSession, SessionId};

/// A worker or a parameter server, connected or not.
pub(crate) struct Worker {
    pub(crate) registration: Registration,
    pub(crate) heard: Millis,
    pub(crate) beat: Option<Beat>,
    /// What a parameter server's tables held when it last told.
    pub(crate) tables: Vec<TableStats>,
    /// Whether it knows that the run is over.
    told_end: bool,
    connection: Option<ProcessSession>,
}

impl Worker {
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether it takes part in generations.
    pub(crate) fn is_member(&self) -> bool {
        matches!(self.registration.role, Role::Member(_))
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct ConnectedWorkers {
    workers: BTreeMap<WorkerId, Worker>,
    sessions: HashMap<SessionId, WorkerId>,
}

impl ConnectedWorkers {
    /// A worker connected; an older connection of it ends. True if it was not known.
    pub(crate) fn connect(
        &mut self,
        now: Millis,
        registration: Registration,
        connection: ProcessSession,
    ) -> bool {
        let id = registration.id;
        self.sessions.retain(|_, other| *other != id);
        self.sessions.insert(connection.id, id);
        let worker = Worker {
            registration,
            heard: now,
            beat: None,
            tables: Vec::new(),
            told_end: false,
            connection: Some(connection),
        };
        self.workers.insert(id, worker).is_none()
    }

    /// The number of a worker that somebody started by hand: its own, or the next that no other one has. People forget
    /// to give each another one.
    pub(crate) fn own_slot(&self, worker: &Registration) -> u32 {
        if let Some(known) = self.workers.get(&worker.id) {
            return known.registration.slot;
        }
        let connected = self.workers.values().filter(|other| other.is_connected());
        let taken: BTreeSet<u32> = connected.map(|other| other.registration.slot).collect();
        (worker.slot..).find(|slot| !taken.contains(slot)).unwrap_or(worker.slot)
    }

    /// Who speaks in a session, which counts as a heartbeat.
    pub(crate) fn speaker(&mut self, now: Millis, session: SessionId) -> Option<WorkerId> {
        let id = *self.sessions.get(&session)?;
        self.workers.get_mut(&id)?.heard = now;
        Some(id)
    }

    /// A message of a worker was taken.
    pub(crate) fn received(&mut self, id: WorkerId, number: u64) {
        let worker = self.workers.get_mut(&id);
        if let Some(connection) = worker.and_then(|worker| worker.connection.as_mut()) {
            connection.received(number);
        }
    }

    /// A connection ended; its worker, unless that has another one by now.
    pub(crate) fn left(&mut self, session: SessionId) -> Option<WorkerId> {
        let id = self.sessions.remove(&session)?;
        self.workers.get_mut(&id)?.connection = None;
        Some(id)
    }

    pub(crate) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// How many workers are connected, parameter servers left out.
    pub(crate) fn present(&self) -> usize {
        let is_worker = |worker: &&Worker| worker.registration.role != Role::Server;
        self.workers.values().filter(is_worker).filter(|worker| worker.is_connected()).count()
    }

    /// A worker will not be back.
    pub(crate) fn forget(&mut self, id: WorkerId) {
        self.workers.remove(&id);
        self.sessions.retain(|_, other| *other != id);
    }

    /// The workers of a process.
    pub(crate) fn of_process(&self, slot: u32, pid: u32) -> Vec<WorkerId> {
        self.which(|worker| (worker.registration.slot, worker.registration.process) == (slot, pid))
    }

    /// Workers that were not heard since `before`.
    pub(crate) fn unheard(&self, before: Millis) -> Vec<WorkerId> {
        self.which(|worker| worker.heard <= before)
    }

    /// Workers without a connection that were not heard since `before`.
    pub(crate) fn lost(&self, before: Millis) -> Vec<WorkerId> {
        self.which(|worker| !worker.is_connected() && worker.heard <= before)
    }

    fn which(&self, of: impl Fn(&Worker) -> bool) -> Vec<WorkerId> {
        self.iter().filter(|(_, worker)| of(worker)).map(|(id, _)| id).collect()
    }

    /// Tells a worker. False: it does not take what is sent, and its connection is cut; it will connect again.
    pub(crate) fn send(&mut self, id: WorkerId, message: FromMaster) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return true };
        let Some(connection) = &worker.connection else { return true };
        if let FromMaster::Member(ToMember::Ended(_)) = message
            && std::mem::replace(&mut worker.told_end, true)
        {
            return true;
        }
        let sent = connection.send(message);
        if !sent {
            self.cut(id);
        }
        sent
    }

    /// Tells all what was received from them. Returns those whose connection was cut.
    pub(crate) fn acknowledge(&mut self) -> Vec<WorkerId> {
        let deaf = |(id, worker): (&WorkerId, &mut Worker)| {
            let is_deaf = worker.connection.as_mut().is_some_and(|it| !it.acknowledge());
            is_deaf.then_some(*id)
        };
        let deaf: Vec<WorkerId> = self.workers.iter_mut().filter_map(deaf).collect();
        deaf.iter().for_each(|id| self.cut(*id));
        deaf
    }

    /// Whether everybody knows that the run is over and has left.
    pub(crate) fn all_gone(&self) -> bool {
        self.workers.values().all(|worker| !worker.is_connected() && worker.told_end)
    }

    fn cut(&mut self, id: WorkerId) {
        debug!(worker = %id, "cut a connection that takes nothing");
        self.sessions.retain(|_, other| *other != id);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.connection = None;
        }
    }
}
