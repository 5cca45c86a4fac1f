//! A worker's session with the master.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use salamander_core::elastic::{Beat, FromMember, Generation, Term, ToMember, WorkerId};
use salamander_core::report::Report;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};
use tracing::warn;

use super::link::{Link, Side, Taken};
use super::outbox::{Matters, Outbox};
use super::{Client, Error, SessionOptions};
use crate::convert::FromMaster;
use crate::v1::worker_message::Message;
use crate::{limits, v1};

/// Who opens a session: what it says of itself at each connection.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Who.
    pub id: WorkerId,
    /// Where others reach it; empty: they need not.
    pub endpoint: String,
    /// The platform's place for the process.
    pub slot: u32,
    /// The number that the platform knows the process by.
    pub process: u32,
    /// What it does in the run.
    pub role: Role,
}

/// What a process does in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes part in generations.
    Member(TrainedOn),
    /// It leases tasks, or names of micro-batches.
    Tasks(TrainedOn),
    /// It is a parameter server.
    Server,
}

/// What a worker trains on: all workers of a run must see the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainedOn {
    /// Records of an epoch.
    pub records: u64,
    /// A hash over the experiment and the sizes of its data.
    pub fingerprint: u64,
}

impl Registration {
    fn hello(&self, active: Option<Generation>) -> v1::Hello {
        let TrainedOn { records, fingerprint } = match self.role {
            Role::Member(data) | Role::Tasks(data) => data,
            Role::Server => TrainedOn::default(),
        };
        v1::Hello {
            peer: Some(v1::Peer { id: self.id.0, endpoint: self.endpoint.clone() }),
            active: active.map(Generation::to_u64),
            slot: self.slot,
            pid: self.process,
            records,
            fingerprint,
            tasks_only: matches!(self.role, Role::Tasks(_)),
            server: self.role == Role::Server,
        }
    }
}

/// What a worker does with its session. All is called on the session's thread and must be quick: heartbeats wait
/// for it.
pub trait Handler: Send + 'static {
    /// The generation that it takes part in.
    fn active(&mut self) -> Option<Generation> {
        None
    }
    /// A master introduces itself. The error says that it is an old one: the session leaves it and tries again.
    fn welcome(&mut self, _term: Term) -> Result<(), String> {
        Ok(())
    }
    /// The master says something.
    fn message(&mut self, message: ToMember);
    /// Asked for at the session's pace.
    fn beat(&mut self) -> Beat {
        Beat::default()
    }
    /// The connection is there, or gone.
    fn connection(&mut self, _up: bool) {}
    /// The master refuses this worker: a wrong token, for example. The session tries on; told once per reason.
    fn refused(&mut self, _reason: &str) {}
}

/// A worker's session. It connects again for as long as it lives; dropping it ends it at once.
#[derive(Debug)]
pub struct Session {
    link: Link<v1::WorkerMessage>,
    sender: Sender,
}

/// Sends over a session, from any thread; never waits.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Outbox<v1::WorkerMessage>>);

impl Session {
    /// Opens a session. The master need not be there yet.
    pub fn open(
        options: &SessionOptions,
        registration: Registration,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        Self::open_with(options, registration, |_| handler)
    }

    /// Opens a session whose handler answers by itself.
    pub fn open_with<H: Handler>(
        options: &SessionOptions,
        registration: Registration,
        make: impl FnOnce(Sender) -> H,
    ) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::new());
        let sender = Sender(outbox.clone());
        let worker = Worker { registration, handler: make(sender.clone()) };
        let link = Link::open(options, outbox, worker)?;
        Ok(Self { link, sender })
    }

    /// To send from other threads.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// See [`Sender::send`].
    pub fn send(&self, message: FromMember) {
        self.sender.send(message);
    }

    /// See [`Sender::failed`].
    pub fn failed(&self, reason: String) {
        self.sender.failed(reason);
    }

    /// Ends the session, after at most this time for what must be received; false if something was not.
    pub fn close(self, flush: Duration) -> bool {
        self.link.close(flush)
    }
}

impl Sender {
    /// Sends as a member. All but promises are sent again, also to another master, until they were received;
    /// a promise is asked for again when a connection breaks.
    pub fn send(&self, message: FromMember) {
        let matters = match message {
            FromMember::Promise(..) => Matters::Now,
            _ => Matters::Always,
        };
        self.push(matters, message.into());
    }

    /// Sends something for people and files. The master takes each (version, [`Report::part`]) once, in growing
    /// order.
    pub fn report(&self, version: u64, report: &Report) {
        let report = v1::Report::new(version, report.clone());
        let bytes = report.encoded_len();
        if bytes > limits::REPORT {
            warn!(version, bytes, "a report is too long and was left out");
            return;
        }
        self.push(Matters::Long, Message::Report(report));
    }

    /// The worker's own data or model is wrong: the run ends with this reason.
    pub fn failed(&self, reason: String) {
        let mut reason = reason;
        let longest = reason.floor_char_boundary(limits::REPORT);
        reason.truncate(longest);
        self.push(Matters::Always, Message::Failed(reason));
    }

    fn push(&self, matters: Matters, message: Message) {
        self.0.push(matters, |number| v1::WorkerMessage { message: Some(message), number });
    }
}

struct Worker<H> {
    registration: Registration,
    handler: H,
}

impl<H: Handler> Side for Worker<H> {
    type Out = v1::WorkerMessage;
    type In = v1::MasterMessage;

    fn first(&mut self) -> v1::WorkerMessage {
        let hello = self.registration.hello(self.handler.active());
        v1::WorkerMessage { message: Some(Message::Hello(hello)), number: 0 }
    }

    fn beat(&mut self) -> Option<v1::WorkerMessage> {
        let beat = Message::Beat(self.handler.beat().into());
        Some(v1::WorkerMessage { message: Some(beat), number: 0 })
    }

    fn take(&mut self, message: v1::MasterMessage) -> Result<Taken, String> {
        match FromMaster::try_from(message).map_err(|error| error.to_string())? {
            FromMaster::Welcome(term) => self.handler.welcome(term).map(|()| Taken::Welcome),
            FromMaster::Received(number) => Ok(Taken::Received(number)),
            FromMaster::Member(message) => {
                self.handler.message(message);
                Ok(Taken::Done)
            }
        }
    }

    fn connection(&mut self, up: bool) {
        self.handler.connection(up);
    }

    fn refused(&mut self, reason: &str) {
        self.handler.refused(reason);
    }

    async fn call(
        client: &mut Client,
        out: ReceiverStream<v1::WorkerMessage>,
    ) -> Result<Response<Streaming<v1::MasterMessage>>, Status> {
        client.join(out).await
    }
}
