//! The workers that the master knows, and their connections.

use std::collections::{BTreeMap, HashMap};

use salamander_core::elastic::{Beat, Ending, Millis, Term, ToMember, WorkerId};
use salamander_proto::v1;
use salamander_proto::v1::master_message::Message;
use tracing::debug;

use crate::inbox::{Out, Session, SessionId};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes part in generations.
    Member,
    /// Works on tasks.
    Tasks,
    /// Holds rows of tables.
    Server,
}

impl Kind {
    pub(crate) fn of(hello: &v1::Hello) -> Self {
        match (hello.server, hello.tasks_only) {
            (true, _) => Kind::Server,
            (false, true) => Kind::Tasks,
            (false, false) => Kind::Member,
        }
    }
}

/// A worker, connected or not.
pub(crate) struct Worker {
    pub(crate) endpoint: String,
    pub(crate) slot: u32,
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
    pub(crate) heard: Millis,
    pub(crate) beat: Option<Beat>,
    /// Whether it knows that the run is over.
    told_end: bool,
    line: Option<Line>,
}

struct Line {
    session: Session<v1::MasterMessage>,
    received: u64,
    acknowledged: u64,
}

impl Worker {
    pub(crate) fn is_connected(&self) -> bool {
        self.line.is_some()
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Workers {
    workers: BTreeMap<WorkerId, Worker>,
    sessions: HashMap<SessionId, WorkerId>,
}

impl Workers {
    /// A worker connected; an older connection of it ends. True if it was not known.
    pub(crate) fn connect(
        &mut self,
        now: Millis,
        id: WorkerId,
        hello: &v1::Hello,
        session: Session<v1::MasterMessage>,
    ) -> bool {
        self.sessions.retain(|_, other| *other != id);
        self.sessions.insert(session.id, id);
        let line = Line { session, received: 0, acknowledged: 0 };
        let worker = Worker {
            endpoint: hello.peer.as_ref().map(|peer| peer.endpoint.clone()).unwrap_or_default(),
            slot: hello.slot,
            pid: hello.pid,
            kind: Kind::of(hello),
            heard: now,
            beat: None,
            told_end: false,
            line: Some(line),
        };
        self.workers.insert(id, worker).is_none()
    }

    /// Who speaks in a session, which counts as a sign of life.
    pub(crate) fn speaker(&mut self, now: Millis, session: SessionId) -> Option<WorkerId> {
        let id = *self.sessions.get(&session)?;
        self.workers.get_mut(&id)?.heard = now;
        Some(id)
    }

    /// A message of a worker was taken.
    pub(crate) fn received(&mut self, id: WorkerId, number: u64) {
        if let Some(line) = self.workers.get_mut(&id).and_then(|worker| worker.line.as_mut()) {
            line.received = line.received.max(number);
        }
    }

    /// A connection ended; its worker, unless that has another one by now.
    pub(crate) fn left(&mut self, session: SessionId) -> Option<WorkerId> {
        let id = self.sessions.remove(&session)?;
        self.workers.get_mut(&id)?.line = None;
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

    /// A worker will not be back.
    pub(crate) fn forget(&mut self, id: WorkerId) {
        self.workers.remove(&id);
        self.sessions.retain(|_, other| *other != id);
    }

    /// The workers of a process.
    pub(crate) fn of_process(&self, slot: u32, pid: u32) -> Vec<WorkerId> {
        let of = |worker: &Worker| (worker.slot, worker.pid) == (slot, pid);
        self.iter().filter(|(_, worker)| of(worker)).map(|(id, _)| id).collect()
    }

    /// Workers that were not heard since `before`.
    pub(crate) fn unheard(&self, before: Millis) -> Vec<WorkerId> {
        self.iter().filter(|(_, worker)| worker.heard <= before).map(|(id, _)| id).collect()
    }

    /// Workers without a connection that were not heard since `before`.
    pub(crate) fn lost(&self, before: Millis) -> Vec<WorkerId> {
        let lost = |worker: &Worker| worker.line.is_none() && worker.heard <= before;
        self.iter().filter(|(_, worker)| lost(worker)).map(|(id, _)| id).collect()
    }

    /// Sends to a worker. False: it does not take what is sent, and its connection is cut; it will connect again.
    pub(crate) fn send(&mut self, id: WorkerId, message: ToMember) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return true };
        if matches!(message, ToMember::Ended(_)) {
            if worker.told_end {
                return true;
            }
            worker.told_end = worker.line.is_some();
        }
        self.push(id, message.into())
    }

    pub(crate) fn welcome(&mut self, id: WorkerId, term: Term) -> bool {
        let message = Some(Message::Welcome(v1::Welcome { term: term.0 }));
        self.push(id, v1::MasterMessage { message })
    }

    /// Tells all what was received from them. Returns those whose connection was cut.
    pub(crate) fn acknowledge(&mut self) -> Vec<WorkerId> {
        let mut news = Vec::new();
        for (id, worker) in &mut self.workers {
            let Some(line) = &mut worker.line else { continue };
            if line.received > line.acknowledged {
                line.acknowledged = line.received;
                news.push((*id, line.received));
            }
        }
        let cut = |(id, number): (WorkerId, u64)| {
            let message = Some(Message::Received(number));
            (!self.push(id, v1::MasterMessage { message })).then_some(id)
        };
        news.into_iter().filter_map(cut).collect()
    }

    /// Whether everybody knows that the run is over and has left.
    pub(crate) fn all_gone(&self) -> bool {
        self.workers.values().all(|worker| worker.line.is_none() && worker.told_end)
    }

    fn push(&mut self, id: WorkerId, message: v1::MasterMessage) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return true };
        let Some(line) = &worker.line else { return true };
        if line.session.out.try_send(Ok(message)).is_ok() {
            return true;
        }
        debug!(worker = %id, "cut a connection that takes nothing");
        self.sessions.remove(&line.session.id);
        worker.line = None;
        false
    }
}

/// Sends a worker away before it is one.
pub(crate) fn refuse(term: Term, reason: String, out: &Out<v1::MasterMessage>) {
    let welcome = Message::Welcome(v1::Welcome { term: term.0 });
    let welcome = v1::MasterMessage { message: Some(welcome) };
    let ended = v1::MasterMessage::from(ToMember::Ended(Ending::Failed(reason)));
    for message in [welcome, ended] {
        if out.try_send(Ok(message)).is_err() {
            return;
        }
    }
}
