//! What reaches the master's thread: one bounded queue, so that one thing happens at a time.

use salamander_core::elastic::Ended;
use salamander_core::push::Process;
use salamander_proto::convert::FromWorker;
use salamander_proto::{status, v1};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::courier::News;

/// How much may wait for the master.
pub(crate) const WAITING: usize = 1_024;

/// A connection, counted by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// The other end of a stream of answers. Dropping it ends the stream.
pub(crate) type Out<T> = mpsc::Sender<Result<T, Status>>;
/// A stream of answers to a connection.
pub(crate) struct Session<T> {
    pub(crate) id: SessionId,
    pub(crate) out: Out<T>,
}

/// The answer to a call.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, status::Error>>;

/// Something that the master takes.
pub(crate) enum Input {
    Tick,
    Hello(Session<v1::MasterMessage>, v1::Hello),
    Worker(SessionId, u64, FromWorker),
    WorkerLeft(SessionId),
    Inventory(Session<v1::PlatformOrder>, v1::Inventory),
    ProcessEnd(SessionId, u64, ProcessEnd),
    PlatformLeft(SessionId),
    Watch(v1::WatchRequest, Out<v1::Event>),
    Call(Call),
    /// A parameter server has answered.
    Server(Process, News),
    /// The folder of a checkpoint is made, or why not.
    Folder(Result<String, String>),
}

/// A call that is answered once.
pub(crate) enum Call {
    Status(Answer<v1::StatusReply>),
    Scale(v1::ScaleRequest, Answer<v1::ScaleReply>),
    Stop(Answer<v1::StopReply>),
    Lease(v1::LeaseRequest, Answer<v1::LeaseReply>),
    Finish(v1::FinishRequest, Answer<v1::FinishReply>),
    Names(v1::NamesRequest, Answer<v1::NamesReply>),
}

/// The end of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessEnd {
    pub(crate) slot: u32,
    pub(crate) pid: u32,
    pub(crate) how: Ended,
}

impl TryFrom<v1::ProcessEnd> for ProcessEnd {
    type Error = salamander_proto::convert::Error;

    fn try_from(end: v1::ProcessEnd) -> Result<Self, Self::Error> {
        let (slot, pid) = (end.slot, end.pid);
        Ok(Self { slot, pid, how: end.try_into()? })
    }
}

/// Reaches the master for as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct Handle(mpsc::WeakSender<Input>);

impl Handle {
    /// Only the run itself keeps the queue open, so that connections that linger do not keep a master alive.
    pub(crate) fn new(inbox: &mpsc::Sender<Input>) -> Self {
        Self(inbox.downgrade())
    }

    /// Gives something to the master, when it has room.
    pub(crate) async fn give(&self, input: Input) -> Result<(), status::Error> {
        let inbox = self.0.upgrade().ok_or(status::Error::Leaving)?;
        inbox.send(input).await.map_err(|_| status::Error::Leaving)
    }

    /// Gives something to the master from a thread that may wait; false if there is no master any more.
    pub(crate) fn give_blocking(&self, input: Input) -> bool {
        self.0.upgrade().is_some_and(|inbox| inbox.blocking_send(input).is_ok())
    }

    /// Asks the master.
    pub(crate) async fn ask<T>(
        &self,
        call: impl FnOnce(Answer<T>) -> Call,
    ) -> Result<T, status::Error> {
        let (answer, answered) = oneshot::channel();
        let inbox = self.0.upgrade().ok_or(status::Error::Leaving)?;
        inbox.try_send(Input::Call(call(answer))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => status::Error::Busy,
            mpsc::error::TrySendError::Closed(_) => status::Error::Leaving,
        })?;
        drop(inbox);
        answered.await.map_err(|_| status::Error::Leaving)?
    }
}
