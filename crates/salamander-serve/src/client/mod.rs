//! A client of any server of the Open Inference Protocol, for programs without async: one connection, one question at a
//! time.

mod secure;
mod tensors;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use salamander_data::Row;
use serde_json::Value as Json;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use secure::{ClientTransport, Secure};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may take: a server that says nothing for longer is asked again.
const ANSWER: Duration = Duration::from_secs(300);

/// Who asks, and whom a client trusts.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// What the server wants as a bearer token.
    pub token: Option<String>,
    /// Certificates, as PEM, that the server's has to be signed by; those that the system trusts when absent.
    pub authorities: Option<Vec<u8>>,
    /// The name in the server's certificate; that of its address when absent.
    pub server_name: Option<String>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server was not reached, or has too much to do: later it may work.
    #[error("{reason}")]
    Later {
        /// What happened.
        reason: String,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
    /// It would be refused again.
    #[error("{0}")]
    Refused(String),
}

/// A connection to a server that has a model.
pub struct Client {
    runtime: Runtime,
    /// Host and port.
    authority: String,
    /// For `https`.
    secure: Option<Secure>,
    /// The path before the protocol's own.
    prefix: String,
    model: String,
    token: Option<String>,
    connection: Option<SendRequest<Full<Bytes>>>,
    inputs: Vec<tensors::WantedInput>,
}

impl Client {
    /// For a model at `http[s]://HOST:PORT[/PREFIX]`; nothing is asked yet.
    pub fn new(url: &str, model: &str, options: &ClientOptions) -> Result<Self, String> {
        let (rest, usual_port) = match url.strip_prefix("https://") {
            Some(rest) => (rest, 443),
            None => (url.strip_prefix("http://").unwrap_or(url), 80),
        };
        if rest.contains("://") {
            return Err(format!("{url}: write http://HOST:PORT or https://HOST:PORT"));
        }
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        let authority = match port.is_empty() {
            true => format!("{host}:{usual_port}"),
            false => authority.to_string(),
        };
        let secure = (usual_port == 443).then(|| Secure::new(host, options)).transpose()?;
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            runtime: runtime.map_err(|error| error.to_string())?,
            authority,
            secure,
            prefix,
            model: model.to_string(),
            token: options.token.clone(),
            connection: None,
            inputs: Vec::new(),
        })
    }

    /// Asks what the model takes.
    pub fn connect(&mut self) -> Result<(), ClientError> {
        let path = format!("/v2/models/{}", self.model);
        let metadata = self.call(Method::GET, &path, Bytes::new(), None)?;
        self.inputs = tensors::wanted(&metadata).map_err(ClientError::Refused)?;
        Ok(())
    }

    /// A question about records, to be asked with [`Client::ask`]; the error names the record.
    pub fn question(&self, rows: &[Row<'_>]) -> Result<Question, String> {
        tensors::question(&self.inputs, rows)
    }

    /// The outputs of each record, by their names.
    pub fn ask(&mut self, question: &Question) -> Result<Vec<Json>, ClientError> {
        let path = format!("/v2/models/{}/infer", self.model);
        let answer =
            self.call(Method::POST, &path, question.body.clone(), Some(question.json_bytes))?;
        tensors::answers(&answer, question.records).map_err(ClientError::Refused)
    }

    fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        json_bytes: Option<usize>,
    ) -> Result<Json, ClientError> {
        let Self { runtime, connection, authority, secure, prefix, token, .. } = self;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(HOST, authority.as_str())
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(json) = json_bytes.filter(|json| *json < body.len()) {
            request = request.header("inference-header-content-length", json);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| ClientError::Refused(error.to_string()))?;
        let called = runtime.block_on(async {
            if connection.as_ref().is_none_or(SendRequest::is_closed) {
                let made = timeout(CONNECT, connect(authority, secure.as_ref())).await;
                let slow = |_| later(format!("{authority}: no connection after {CONNECT:?}"));
                *connection = Some(made.map_err(slow)??);
            }
            let Some(sender) = connection else { return Err(later("not connected")) };
            let slow = |_| later(format!("{authority}: no answer after {ANSWER:?}"));
            timeout(ANSWER, call(sender, request)).await.map_err(slow)?
        });
        if matches!(called, Err(ClientError::Later { .. })) {
            self.connection = None;
        }
        called
    }
}

/// Records as a request's body.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub(super) body: Bytes,
    /// Bytes of it that are JSON.
    pub(super) json_bytes: usize,
    /// How many records.
    pub records: usize,
}

fn later(reason: impl ToString) -> ClientError {
    ClientError::Later { reason: reason.to_string(), after: None }
}

async fn connect(
    authority: &str,
    secure: Option<&Secure>,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let stream = TcpStream::connect(authority).await;
    let stream = stream.map_err(|error| later(format!("{authority}: {error}")))?;
    let _ = stream.set_nodelay(true);
    let stream: Box<dyn ClientTransport> = match secure {
        Some(secure) => secure.wrap(stream, authority).await?,
        None => Box::new(stream),
    };
    let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(later)?;
    // It ends with the connection, which this thread's runtime drives while it asks.
    tokio::spawn(driver);
    Ok(sender)
}

async fn call(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Json, ClientError> {
    sender.ready().await.map_err(later)?;
    let answer = sender.send_request(request).await.map_err(later)?;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.map_err(later)?.to_bytes();
    let json: Result<Json, _> = serde_json::from_slice(&body);
    match parts.status.as_u16() {
        200 => {
            json.map_err(|error| ClientError::Refused(format!("the answer is no JSON: {error}")))
        }
        status => {
            let said = json.ok().and_then(|json| json["error"].as_str().map(str::to_string));
            let reason = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
            let reason = format!("{status}: {reason}");
            match status {
                408 | 429 | 500 | 502..=504 | 507 => {
                    let after = parts.headers.get(RETRY_AFTER).and_then(|said| said.to_str().ok());
                    let after = after.and_then(|said| said.parse().ok()).map(Duration::from_secs);
                    Err(ClientError::Later { reason, after })
                }
                _ => Err(ClientError::Refused(reason)),
            }
        }
    }
}
