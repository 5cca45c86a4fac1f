//! What reaches the master's thread: one bounded queue, so that one thing happens at a time.

use salamander_core::asynchronous::{LeaseAnswer, Process};
use salamander_core::elastic::{Lease, WorkerId};
use salamander_core::status::Status;
use salamander_proto::convert::{Finished, Hello, Inventory, Numbered, WorkerLeaseAsk};
use salamander_proto::{status, v1};
use tokio::sync::{mpsc, oneshot};

use crate::server_calls::ServerAnswer;
use crate::session::{Out, ProcessSession, SessionId};

/// How much may wait for the master.
pub(crate) const WAITING: usize = 1_024;

/// The answer to a call.
pub(crate) type AnswerSender<T> = oneshot::Sender<Result<T, status::Error>>;

/// Something that the master takes.
pub(crate) enum MasterInput {
    Tick,
    /// A session of a worker or a parameter server begins,
    Hello(ProcessSession, Hello),
    /// or one of a platform.
    Inventory(ProcessSession, Inventory),
    /// Something was said in a session.
    Said(SessionId, Numbered),
    /// A session has ended.
    Left(SessionId),
    Watch(v1::WatchRequest, Out<v1::Event>),
    Call(Call),
    /// A parameter server has answered.
    Server(Process, ServerAnswer),
    /// The folder of a checkpoint is made, or why not.
    Folder(Result<String, String>),
}

/// A call that is answered once.
pub(crate) enum Call {
    Status(AnswerSender<Status>),
    Scale(v1::ScaleRequest, AnswerSender<v1::ScaleReply>),
    Stop(AnswerSender<v1::StopReply>),
    Lease(WorkerId, AnswerSender<Lease>),
    Finish(Finished, AnswerSender<v1::FinishReply>),
    MicroBatches(WorkerLeaseAsk, AnswerSender<LeaseAnswer>),
}

/// Reaches the master for as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct MasterHandle(mpsc::WeakSender<MasterInput>);

impl MasterHandle {
    /// Only the run itself keeps the queue open, so that connections that linger do not keep a master alive.
    pub(crate) fn new(inbox: &mpsc::Sender<MasterInput>) -> Self {
        Self(inbox.downgrade())
    }

    /// Whether the run still wants its master.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Gives something to the master, when it has room.
    pub(crate) async fn give(&self, input: MasterInput) -> Result<(), status::Error> {
        let inbox = self.0.upgrade().ok_or(status::Error::Leaving)?;
        inbox.send(input).await.map_err(|_| status::Error::Leaving)
    }

    /// Gives something to the master from a thread that may wait; false if there is no master any more.
    pub(crate) fn give_blocking(&self, input: MasterInput) -> bool {
        self.0.upgrade().is_some_and(|inbox| inbox.blocking_send(input).is_ok())
    }

    /// Asks the master.
    pub(crate) async fn ask<T>(
        &self,
        call: impl FnOnce(AnswerSender<T>) -> Call,
    ) -> Result<T, status::Error> {
        let (answer, answered) = oneshot::channel();
        let inbox = self.0.upgrade().ok_or(status::Error::Leaving)?;
        inbox.try_send(MasterInput::Call(call(answer))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => status::Error::Busy,
            mpsc::error::TrySendError::Closed(_) => status::Error::Leaving,
        })?;
        drop(inbox);
        answered.await.map_err(|_| status::Error::Leaving)?
    }
}
