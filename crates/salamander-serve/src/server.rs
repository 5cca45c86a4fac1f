//! Connections: HTTP/1.1, HTTP/2 and gRPC on one port, encrypted or not, and their orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use salamander_net::Refusals;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tracing::{debug, info, warn};

use crate::engine::Registry;
use crate::grpc::{CountedBody, Grpc, MessageRoom};
use crate::http::{Api, BodyReader};
use crate::page;
use crate::progress::ProgressingStream;
use crate::refusal::Refusal;
use crate::settings::LiveSettings;

/// Bytes of a stream that may be under way: tensors are large, and a small window makes them wait for each other.
const STREAM_WINDOW: u32 = 4 << 20;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

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
    /// The most bytes of all bodies together.
    pub bodies: usize,
    /// How long a connection may be silent between requests; how long a request's head, the first byte of its body and
    /// any progress of its answer may take.
    pub idle: Duration,
    /// How long requests in flight are waited for at the end.
    pub drain: Duration,
    /// What clients have to send as `Authorization: Bearer ..`; probes need none.
    pub token: Option<ServingToken>,
    /// The certificate, for encrypted connections.
    pub tls: Option<Arc<TlsConfig>>,
    /// Whether each request is logged.
    pub access_log: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            bodies: 1 << 30,
            connections: 16_384,
            busy_status: 503,
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(30),
            token: None,
            tls: None,
            access_log: false,
        }
    }
}

/// What encrypted connections are made with: [`tls`] reads one.
pub type TlsConfig = rustls::ServerConfig;

/// A secret that clients share with the server; it is never shown.
#[derive(Clone)]
pub struct ServingToken(String);

impl ServingToken {
    /// From its text, without the spaces and line ends that files have.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.len() {
            ..8 => Err("a token has at least 8 characters".to_string()),
            _ => Ok(Self(text.to_string())),
        }
    }

    /// Takes as long for any other token of this length.
    fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let different = own.iter().zip(given).fold(0, |sum, (own, given)| sum | (own ^ given));
        own.len() == given.len() && different == 0
    }
}

impl std::fmt::Debug for ServingToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What is answered at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Everything.
    All,
    /// Everything but what changes which models are served.
    Inference,
}

/// A server that listens.
pub struct Server {
    listeners: Vec<(TcpListener, Arc<Services>)>,
    registry: Registry,
    bodies: BodyReader,
    settings: LiveSettings,
    options: ServerOptions,
}

/// What answers requests at an address.
struct Services {
    api: Api,
    grpc: Grpc,
    token: Option<ServingToken>,
    settings: LiveSettings,
}

impl Server {
    /// Listens on an address, where everything is answered; port 0 is any free one.
    pub async fn bind(
        address: SocketAddr,
        registry: Registry,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let mut server = Self::new(registry, options);
        server.listen(address, AddressUse::All).await?;
        Ok(server)
    }

    /// Listens on no address yet.
    pub fn new(registry: Registry, options: ServerOptions) -> Self {
        let bodies = BodyReader::new(options.body, options.bodies, options.idle);
        let settings = LiveSettings::new(options.access_log);
        Self { listeners: Vec::new(), registry, bodies, settings, options }
    }

    /// Listens on one more address; the port that it has.
    pub async fn listen(
        &mut self,
        address: SocketAddr,
        answers: AddressUse,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let (options, changes) = (&self.options, answers == AddressUse::All);
        let services = Services {
            grpc: Grpc::new(self.registry.clone(), self.settings.clone(), options.body, changes),
            api: Api {
                registry: self.registry.clone(),
                bodies: self.bodies.clone(),
                busy: options.busy_status,
                settings: self.settings.clone(),
                changes,
            },
            token: options.token.clone(),
            settings: self.settings.clone(),
        };
        let address = listener.local_addr()?;
        self.listeners.push((listener, Arc::new(services)));
        Ok(address)
    }

    /// Where it listened first.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self.listeners.first() {
            Some((listener, _)) => listener.local_addr(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Answers until `stop` is ready; then takes nobody new, and ends when those in flight are answered.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listeners, options, registry, .. } = self;
        registry.begin_to_answer();
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(options.connections));
        let stop = stop.shared();
        let refusals = Refusals::default();
        let context = AcceptContext {
            options: &options,
            graceful: &graceful,
            room: &room,
            refusals: &refusals,
        };
        let accepting = listeners
            .into_iter()
            .map(|(listener, services)| accept(listener, services, context, stop.clone()));
        futures::future::join_all(accepting).await;
        if timeout(options.drain, graceful.shutdown()).await.is_err() {
            warn!("requests were still in flight at the end");
        }
    }
}

/// What decides whether and how a connection is taken: the same at all addresses.
#[derive(Clone, Copy)]
struct AcceptContext<'a> {
    options: &'a ServerOptions,
    graceful: &'a GracefulShutdown,
    /// A permit for each connection that may be open.
    room: &'a Arc<Semaphore>,
    refusals: &'a Refusals,
}

/// Takes those who come to an address until `stop` is ready.
async fn accept(
    listener: TcpListener,
    services: Arc<Services>,
    context: AcceptContext<'_>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(context.room).try_acquire_owned() {
                Ok(place) => {
                    let watcher = context.graceful.watcher();
                    let connection =
                        connect(stream, Arc::clone(&services), context.options, watcher);
                    // It ends by its own timeouts, or with the server.
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(_) => {
                    context.refusals.log(&peer.ip().to_string(), "too many connections at once");
                }
            },
            Err(error) => {
                // Such as no more file descriptors: others may end.
                warn!(%error, "cannot take a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn connect(
    stream: TcpStream,
    services: Arc<Services>,
    options: &ServerOptions,
    watcher: Watcher,
) -> impl Future<Output = ()> + Send + 'static {
    // Answers are small and complete: waiting for more of them only delays.
    let _ = stream.set_nodelay(true);
    let (idle, tls) = (options.idle, options.tls.clone().map(TlsAcceptor::from));
    async move {
        let Some(tls) = tls else { return talk(stream, services, idle, watcher).await };
        match timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => talk(stream, services, idle, watcher).await,
            Ok(Err(error)) => debug!(%error, "a handshake failed"),
            Err(_) => debug!("a handshake took too long"),
        }
    }
}

async fn talk<S>(stream: S, services: Arc<Services>, idle: Duration, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let begun = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let begun = Arc::clone(&begun);
        move |request: Request<Incoming>| {
            begun.store(true, Ordering::Relaxed);
            let services = Arc::clone(&services);
            async move { Ok::<_, Infallible>(services.logged(request).await) }
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(idle)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(4 * STREAM_WINDOW);
    let stream = TokioIo::new(ProgressingStream::new(stream, idle));
    let connection = builder.serve_connection(stream, service).into_owned();
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // Nothing bounds the bytes that tell HTTP/1 from HTTP/2: who never asks must not stay for ever.
    let ended = match timeout(idle, &mut connection).await {
        Ok(ended) => ended,
        Err(_) if begun.load(Ordering::Relaxed) => connection.await,
        Err(_) => return debug!("a connection asked nothing"),
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended");
    }
}

impl Services {
    async fn logged(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.settings.logs_requests() {
            return self.answer(request).await;
        }
        let (since, method) = (Instant::now(), request.method().clone());
        let path = request.uri().path().to_string();
        let answer = self.answer(request).await;
        let (status, ms) = (answer.status().as_u16(), since.elapsed().as_secs_f64() * 1e3);
        info!(%method, path, status, ms, "answered");
        answer
    }

    /// REST and gRPC are told apart by what a request says it holds.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            let answer = match self.may(&request) {
                true => self.api.answer(request).await,
                false => self.api.refused(&Refusal::Unauthorized),
            };
            return answer.map(|body| Body::new(Full::new(Bytes::from(body))));
        }
        if !self.may(&request) {
            return crate::grpc::status(Refusal::Unauthorized).into_http();
        }
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        let answered = match service {
            INFERENCE => {
                let room = Arc::new(MessageRoom::new(self.api.bodies.room()));
                let (mut parts, body) = request.into_parts();
                parts.extensions.insert(Arc::clone(&room));
                let body = CountedBody::new(body, room, self.api.bodies.patience());
                let request = Request::from_parts(parts, body);
                self.grpc.inference.clone().call(request).await
            }
            HEALTH => self.grpc.health.clone().call(request).await,
            other => {
                Ok(Status::unimplemented(format!("there is no service \"{other}\"")).into_http())
            }
        };
        let Ok(answer) = answered;
        answer
    }

    /// Whether a request has the token, or needs none.
    fn may(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        is_open(request.uri().path(), request.headers())
            || given.is_some_and(|given| token.is(given))
    }
}

/// What needs no token: what Kubernetes asks, and the page, which asks for one itself.
fn is_open(path: &str, headers: &HeaderMap) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/ping" | "/v2/health/live" | "/v2/health/ready")
        || (path == "/" && page::is_wanted(headers))
        || path.starts_with("/page/")
        || path.strip_prefix('/').is_some_and(|path| path.starts_with(HEALTH))
}

/// What encrypted connections need: a certificate with those above it, and its key, as PEM.
pub fn tls(certificates: &[u8], key: &[u8]) -> Result<Arc<TlsConfig>, String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole_and_not_shown() {
        let token = ServingToken::new(" secret-word\n").expect("long enough");
        assert!(token.is(b"secret-word"));
        assert!(!token.is(b"secret-wor") && !token.is(b"secret-words") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert!(ServingToken::new("short").is_err());
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let error = tls(b"", b"nothing").expect_err("no key");
        assert!(error.starts_with("the key: "), "{error}");
    }
}
