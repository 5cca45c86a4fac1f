//! A worker's session with the master.

use std::sync::Arc;
use std::time::Duration;

use salamander_core::elastic::{Beat, FromMember, ToMember};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};
use tracing::warn;

use super::link::{Link, Side, Taken};
use super::outbox::{Matters, Outbox};
use super::{Client, Error, SessionOptions};
use crate::convert::FromMaster;
use crate::v1::worker_message::Message;
use crate::{limits, v1};

/// What a worker does with its session. All is called on the session's thread and must be quick: signs of life wait
/// for it.
pub trait Handler: Send + 'static {
    /// The first words at each connection.
    fn hello(&mut self) -> v1::Hello;
    /// A master introduces itself. The error says that it is an old one: the session leaves it and tries again.
    fn welcome(&mut self, epoch: u32) -> Result<(), String>;
    /// The master says something.
    fn message(&mut self, message: ToMember);
    /// Asked for at the session's pace.
    fn beat(&mut self) -> Beat;
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
    pub fn open(options: &SessionOptions, handler: impl Handler) -> Result<Self, Error> {
        Self::open_with(options, |_| handler)
    }

    /// Opens a session whose handler answers by itself.
    pub fn open_with<H: Handler>(
        options: &SessionOptions,
        make: impl FnOnce(Sender) -> H,
    ) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::new());
        let sender = Sender(outbox.clone());
        let link = Link::open(options, outbox, Worker(make(sender.clone())))?;
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

    /// See [`Sender::report`].
    pub fn report(&self, version: u64, part: u32, json: String) {
        self.sender.report(version, part, json);
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

    /// Sends something for people and files. The master takes each (version, part) once, in growing order.
    pub fn report(&self, version: u64, part: u32, json: String) {
        if json.len() > limits::REPORT {
            warn!(version, part, bytes = json.len(), "a report is too long and was left out");
            return;
        }
        self.push(Matters::Long, Message::Report(v1::Report { version, part, json }));
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

struct Worker<H>(H);

impl<H: Handler> Side for Worker<H> {
    type Out = v1::WorkerMessage;
    type In = v1::MasterMessage;

    fn first(&mut self) -> v1::WorkerMessage {
        v1::WorkerMessage { message: Some(Message::Hello(self.0.hello())), number: 0 }
    }

    fn beat(&mut self) -> Option<v1::WorkerMessage> {
        let beat = Message::Beat(self.0.beat().into());
        Some(v1::WorkerMessage { message: Some(beat), number: 0 })
    }

    fn take(&mut self, message: v1::MasterMessage) -> Result<Taken, String> {
        match FromMaster::try_from(message).map_err(|error| error.to_string())? {
            FromMaster::Welcome(epoch) => self.0.welcome(epoch).map(|()| Taken::Welcome),
            FromMaster::Received(number) => Ok(Taken::Received(number)),
            FromMaster::Member(message) => {
                self.0.message(message);
                Ok(Taken::Done)
            }
        }
    }

    fn connection(&mut self, up: bool) {
        self.0.connection(up);
    }

    fn refused(&mut self, reason: &str) {
        self.0.refused(reason);
    }

    async fn call(
        client: &mut Client,
        out: ReceiverStream<v1::WorkerMessage>,
    ) -> Result<Response<Streaming<v1::MasterMessage>>, Status> {
        client.join(out).await
    }
}
