//! The master's end of a session.

use salamander_core::elastic::{Ending, Term, ToMember};
use salamander_proto::convert::FromMaster;
use salamander_proto::{status, v1};
use tokio::sync::mpsc;
use tonic::Status;

/// A connection of a worker, a parameter server or the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// A bounded stream of answers. Dropping it ends the stream.
pub(crate) type Out<T> = mpsc::Sender<Result<T, Status>>;

/// Where a process is told things, and what was heard of it.
pub(crate) struct ProcessSession {
    pub(crate) id: SessionId,
    out: Out<v1::MasterMessage>,
    received: u64,
    acknowledged: u64,
}

impl ProcessSession {
    pub(crate) fn new(id: SessionId, out: Out<v1::MasterMessage>) -> Self {
        Self { id, out, received: 0, acknowledged: 0 }
    }

    /// Says something. False: the other side does not take what is sent, and is to be cut off.
    pub(crate) fn send(&self, message: FromMaster) -> bool {
        self.out.try_send(Ok(message.into())).is_ok()
    }

    /// A message was acted on.
    pub(crate) fn received(&mut self, number: u64) {
        self.received = self.received.max(number);
    }

    /// Tells what was received; false as for [`ProcessSession::send`].
    pub(crate) fn acknowledge(&mut self) -> bool {
        let is_known = self.received == self.acknowledged;
        self.acknowledged = self.received;
        is_known || self.send(FromMaster::Received(self.received))
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.capacity() == self.out.max_capacity()
    }

    /// Ends a session that did not begin as it should.
    pub(crate) fn refuse(self, error: status::Error) {
        // If even this does not fit, the stream ends without a reason.
        let _ = self.out.try_send(Err(error.into()));
    }

    /// Sends a worker away before it is one.
    pub(crate) fn dismiss(self, term: Term, reason: String) {
        let ended = ToMember::Ended(Ending::Failed(reason));
        let _ = self.send(FromMaster::Welcome(term)) && self.send(FromMaster::Member(ended));
    }
}
