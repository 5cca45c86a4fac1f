//! Connections: HTTP/1.1 and HTTP/2 on one port, and their orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tracing::{debug, warn};

use crate::engine::Registry;
use crate::grpc::Grpc;
use crate::http::Api;

/// Bytes of a stream that may be under way: tensors are large, and a small window makes them wait for each other.
const STREAM_WINDOW: u32 = 4 << 20;

/// The services of gRPC.
const INFERENCE: &str = "inference.GRPCInferenceService";
const HEALTH: &str = "grpc.health.v1.Health";

/// How a server treats those who come.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The most bytes of a request's body, also when it is unpacked.
    pub body: usize,
    /// The most connections at a time.
    pub connections: usize,
    /// The status that says that too many requests wait.
    pub busy_status: u16,
    /// How long a connection may be silent between requests, and a request's head may take.
    pub idle: Duration,
    /// How long requests in flight are waited for at the end.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            connections: 16_384,
            busy_status: 503,
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(30),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    services: Arc<Services>,
    options: ServerOptions,
}

/// What answers requests.
struct Services {
    api: Api,
    grpc: Grpc,
}

impl Server {
    /// Listens on an address; port 0 is any free one.
    pub async fn bind(
        address: SocketAddr,
        registry: Registry,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let grpc = Grpc::new(registry.clone(), options.body);
        let api = Api { registry, body: options.body, busy: options.busy_status };
        Ok(Self { listener, services: Arc::new(Services { api, grpc }), options })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is ready; then takes nobody new, and ends when those in flight are answered.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(self.options.connections));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match Arc::clone(&room).try_acquire_owned() {
                    Ok(place) => self.connect(stream, &graceful, place),
                    Err(_) => warn!(%peer, "refused: too many connections"),
                },
                Err(error) => {
                    // Such as no more file descriptors: others may end.
                    warn!(%error, "cannot take a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.listener);
        if tokio::time::timeout(self.options.drain, graceful.shutdown()).await.is_err() {
            warn!("requests were still in flight at the end");
        }
    }

    fn connect(
        &self,
        stream: TcpStream,
        graceful: &GracefulShutdown,
        place: tokio::sync::OwnedSemaphorePermit,
    ) {
        // Answers are small and complete: waiting for more of them only delays.
        let _ = stream.set_nodelay(true);
        let services = Arc::clone(&self.services);
        let service = service_fn(move |request: Request<Incoming>| {
            let services = Arc::clone(&services);
            async move { Ok::<_, Infallible>(services.answer(request).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.options.idle);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.options.idle)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(4 * STREAM_WINDOW);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        // It ends by its own timeouts, or with the server.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended");
            }
            drop(place);
        });
    }
}

impl Services {
    /// REST and gRPC are told apart by what a request says it holds.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            let answer = self.api.answer(request).await;
            return answer.map(|body| Body::new(Full::new(Bytes::from(body))));
        }
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        let answered = match service {
            INFERENCE => self.grpc.inference.clone().call(request).await,
            HEALTH => self.grpc.health.clone().call(request).await,
            other => {
                Ok(Status::unimplemented(format!("there is no service \"{other}\"")).into_http())
            }
        };
        let Ok(answer) = answered;
        answer
    }
}
