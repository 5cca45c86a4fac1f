//! The calls of the control plane: each hands something to the master and passes the answer on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use salamander_core::elastic::WorkerId;
use salamander_proto::convert::{self, FromProcess, Numbered};
use salamander_proto::status::Error;
use salamander_proto::v1::control_server::Control;
use salamander_proto::{limits, v1};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use crate::inbox::{AnswerSender, Call, MasterHandle, MasterInput};
use crate::session::{ProcessSession, SessionId};

/// The control plane as a gRPC service.
#[derive(Clone)]
pub(crate) struct ControlService {
    handle: MasterHandle,
    sessions: Arc<AtomicU64>,
    /// Readers of sessions; they end with the service.
    readers: Arc<Mutex<JoinSet<()>>>,
}

impl ControlService {
    pub(crate) fn new(handle: MasterHandle) -> Self {
        Self { handle, sessions: Arc::default(), readers: Arc::default() }
    }

    async fn ask<T, A: From<T>>(
        &self,
        call: impl FnOnce(AnswerSender<T>) -> Call,
    ) -> UnaryReply<A> {
        Ok(Response::new(self.handle.ask(call).await?.into()))
    }

    fn spawn(&self, reader: impl Future<Output = ()> + Send + 'static) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.try_join_next().is_some() {}
        readers.spawn(reader);
    }
}

type ReplyStream<T> = ReceiverStream<Result<T, Status>>;
type UnaryReply<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Control for ControlService {
    type JoinStream = ReplyStream<v1::MasterMessage>;
    type WatchStream = ReplyStream<v1::Event>;

    async fn join(
        &self,
        request: Request<Streaming<v1::ProcessMessage>>,
    ) -> UnaryReply<Self::JoinStream> {
        let (out, answers) = mpsc::channel(limits::IN_FLIGHT);
        let session = SessionId(self.sessions.fetch_add(1, Ordering::Relaxed));
        let handle = self.handle.clone();
        self.spawn(async move {
            read(&handle, ProcessSession::new(session, out), request.into_inner()).await;
            // A master that is gone needs no telling.
            let _ = handle.give(MasterInput::Left(session)).await;
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> UnaryReply<Self::WatchStream> {
        let (out, events) = mpsc::channel(limits::IN_FLIGHT);
        self.handle.give(MasterInput::Watch(request.into_inner(), out)).await?;
        Ok(Response::new(ReceiverStream::new(events)))
    }

    async fn status(&self, _request: Request<v1::StatusRequest>) -> UnaryReply<v1::StatusReply> {
        self.ask(Call::Status).await
    }

    async fn scale(&self, request: Request<v1::ScaleRequest>) -> UnaryReply<v1::ScaleReply> {
        self.ask(|answer| Call::Scale(request.into_inner(), answer)).await
    }

    async fn stop(&self, _request: Request<v1::StopRequest>) -> UnaryReply<v1::StopReply> {
        self.ask(Call::Stop).await
    }

    async fn lease(&self, request: Request<v1::LeaseRequest>) -> UnaryReply<v1::LeaseReply> {
        let worker = WorkerId(request.into_inner().worker);
        self.ask(|answer| Call::Lease(worker, answer)).await
    }

    async fn finish(&self, request: Request<v1::FinishRequest>) -> UnaryReply<v1::FinishReply> {
        let finished = request.into_inner().try_into().map_err(Error::Message)?;
        self.ask(|answer| Call::Finish(finished, answer)).await
    }

    async fn micro_batches(
        &self,
        request: Request<v1::MicroBatchRequest>,
    ) -> UnaryReply<v1::MicroBatchReply> {
        let ask = request.into_inner().try_into().map_err(Error::Message)?;
        self.ask(|answer| Call::MicroBatches(ask, answer)).await
    }
}

/// Hands on what is said in a session, until it ends.
async fn read(
    handle: &MasterHandle,
    connection: ProcessSession,
    mut messages: Streaming<v1::ProcessMessage>,
) {
    let session = connection.id;
    let first = timeout(limits::FIRST_MESSAGE, next(session, &mut messages)).await;
    let opened = match first {
        Ok(Ok(Some(Numbered { said: FromProcess::Hello(hello), .. }))) => {
            MasterInput::Hello(connection, hello)
        }
        Ok(Ok(Some(Numbered { said: FromProcess::Inventory(inventory), .. }))) => {
            MasterInput::Inventory(connection, inventory)
        }
        Ok(Err(error)) => return connection.refuse(error.into()),
        Ok(Ok(_)) | Err(_) => return connection.refuse(Error::First),
    };
    let mut given = handle.give(opened).await;
    while given.is_ok() {
        let input = match next(session, &mut messages).await {
            Ok(Some(said)) => MasterInput::Said(session, said),
            Ok(None) => return,
            Err(error) => return warn!(session = session.0, %error, "ended a session"),
        };
        given = handle.give(input).await;
    }
}

/// The next message, until the stream ends, breaks or has something too long.
async fn next(
    session: SessionId,
    messages: &mut Streaming<v1::ProcessMessage>,
) -> Result<Option<Numbered>, convert::Error> {
    match messages.message().await {
        Ok(message) => message.map(TryInto::try_into).transpose(),
        Err(status) => {
            debug!(session = session.0, reason = status.message(), "a session broke");
            Ok(None)
        }
    }
}
