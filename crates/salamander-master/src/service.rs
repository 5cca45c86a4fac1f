//! The calls of the control plane: each hands something to the master and passes the answer on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use salamander_proto::convert::{self, FromWorker};
use salamander_proto::status::Error;
use salamander_proto::v1::control_server::Control;
use salamander_proto::v1::{platform_message, worker_message};
use salamander_proto::{limits, v1};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::debug;

use crate::inbox::{Call, Handle, Input, Out, Session, SessionId};

/// The control plane as a gRPC service.
#[derive(Clone)]
pub(crate) struct Service {
    handle: Handle,
    sessions: Arc<AtomicU64>,
    /// Readers of sessions; they end with the service.
    readers: Arc<Mutex<JoinSet<()>>>,
}

impl Service {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, sessions: Arc::default(), readers: Arc::default() }
    }

    fn session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    fn spawn(&self, reader: impl Future<Output = ()> + Send + 'static) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.try_join_next().is_some() {}
        readers.spawn(reader);
    }
}

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Control for Service {
    type JoinStream = Answers<v1::MasterMessage>;
    type ServeStream = Answers<v1::PlatformOrder>;
    type WatchStream = Answers<v1::Event>;

    async fn join(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let (out, answers) = mpsc::channel(limits::IN_FLIGHT);
        let (handle, session) = (self.handle.clone(), self.session());
        self.spawn(async move {
            read_worker(&handle, session, request.into_inner(), out).await;
            // A master that is gone needs no telling.
            let _ = handle.give(Input::WorkerLeft(session)).await;
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn serve(
        &self,
        request: Request<Streaming<v1::PlatformMessage>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        let (out, orders) = mpsc::channel(limits::IN_FLIGHT);
        let (handle, session) = (self.handle.clone(), self.session());
        self.spawn(async move {
            read_platform(&handle, session, request.into_inner(), out).await;
            let _ = handle.give(Input::PlatformLeft(session)).await;
        });
        Ok(Response::new(ReceiverStream::new(orders)))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (out, events) = mpsc::channel(limits::IN_FLIGHT);
        self.handle.give(Input::Watch(request.into_inner(), out)).await?;
        Ok(Response::new(ReceiverStream::new(events)))
    }

    async fn status(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusReply>, Status> {
        Ok(Response::new(self.handle.ask(Call::Status).await?))
    }

    async fn scale(
        &self,
        request: Request<v1::ScaleRequest>,
    ) -> Result<Response<v1::ScaleReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.handle.ask(|answer| Call::Scale(request, answer)).await?))
    }

    async fn stop(
        &self,
        _request: Request<v1::StopRequest>,
    ) -> Result<Response<v1::StopReply>, Status> {
        Ok(Response::new(self.handle.ask(Call::Stop).await?))
    }

    async fn lease(
        &self,
        request: Request<v1::LeaseRequest>,
    ) -> Result<Response<v1::LeaseReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.handle.ask(|answer| Call::Lease(request, answer)).await?))
    }

    async fn finish(
        &self,
        request: Request<v1::FinishRequest>,
    ) -> Result<Response<v1::FinishReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.handle.ask(|answer| Call::Finish(request, answer)).await?))
    }

    async fn names(
        &self,
        request: Request<v1::NamesRequest>,
    ) -> Result<Response<v1::NamesReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.handle.ask(|answer| Call::Names(request, answer)).await?))
    }
}

async fn read_worker(
    handle: &Handle,
    session: SessionId,
    mut messages: Streaming<v1::WorkerMessage>,
    out: Out<v1::MasterMessage>,
) {
    let first = timeout(limits::FIRST_MESSAGE, messages.message()).await;
    let Ok(Ok(Some(v1::WorkerMessage {
        message: Some(worker_message::Message::Hello(hello)),
        ..
    }))) = first
    else {
        refuse(out, "a hello").await;
        return;
    };
    if handle.give(Input::Hello(Session { id: session, out }, hello)).await.is_err() {
        return;
    }
    while let Some(message) = next(session, &mut messages).await {
        let number = message.number;
        let input = match FromWorker::try_from(message) {
            Ok(message) => Input::Worker(session, number, message),
            Err(error) => return complain(session, &error),
        };
        if handle.give(input).await.is_err() {
            return;
        }
    }
}

async fn read_platform(
    handle: &Handle,
    session: SessionId,
    mut messages: Streaming<v1::PlatformMessage>,
    out: Out<v1::PlatformOrder>,
) {
    use platform_message::Message as M;
    let first = timeout(limits::FIRST_MESSAGE, messages.message()).await;
    let Ok(Ok(Some(v1::PlatformMessage { message: Some(M::Inventory(inventory)), .. }))) = first
    else {
        refuse(out, "an inventory").await;
        return;
    };
    if handle.give(Input::Inventory(Session { id: session, out }, inventory)).await.is_err() {
        return;
    }
    while let Some(message) = next(session, &mut messages).await {
        let Some(M::End(end)) = message.message else { continue };
        let input = match end.try_into() {
            Ok(end) => Input::ProcessEnd(session, message.number, end),
            Err(error) => return complain(session, &error),
        };
        if handle.give(input).await.is_err() {
            return;
        }
    }
}

/// The next message, until the stream ends, breaks or has something too long.
async fn next<T>(session: SessionId, messages: &mut Streaming<T>) -> Option<T> {
    match messages.message().await {
        Ok(message) => message,
        Err(status) => {
            debug!(session = session.0, reason = status.message(), "a session broke");
            None
        }
    }
}

async fn refuse<T>(out: Out<T>, expected: &'static str) {
    let seconds = limits::FIRST_MESSAGE.as_secs();
    // If nobody listens any more, nobody need be told.
    let _ = out.send(Err(Error::First { expected, seconds }.into())).await;
}

fn complain(session: SessionId, error: &convert::Error) {
    tracing::warn!(session = session.0, %error, "ended a session");
}
