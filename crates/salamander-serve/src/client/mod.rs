//! A client of any server of the Open Inference Protocol, for programs without async: one connection, one question at a
//! time.

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
    /// The path before the protocol's own.
    prefix: String,
    model: String,
    token: Option<String>,
    connection: Option<SendRequest<Full<Bytes>>>,
    inputs: Vec<tensors::WantedInput>,
}

impl Client {
    /// For a model at `http://HOST:PORT[/PREFIX]`; nothing is asked yet.
    pub fn new(url: &str, model: &str, token: Option<String>) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        if rest.contains("://") {
            return Err(format!("{url}: write http://HOST:PORT"));
        }
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = match authority.contains(':') {
            true => authority.to_string(),
            false => format!("{authority}:80"),
        };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            runtime: runtime.map_err(|error| error.to_string())?,
            authority,
            prefix,
            model: model.to_string(),
            token,
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
        let Self { runtime, connection, authority, prefix, token, .. } = self;
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
        let called = runtime.block_on(call(connection, authority, request));
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

async fn call(
    connection: &mut Option<SendRequest<Full<Bytes>>>,
    authority: &str,
    request: Request<Full<Bytes>>,
) -> Result<Json, ClientError> {
    if connection.as_ref().is_none_or(SendRequest::is_closed) {
        let stream = TcpStream::connect(authority).await;
        let stream = stream.map_err(|error| later(format!("{authority}: {error}")))?;
        let _ = stream.set_nodelay(true);
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(later)?;
        // It ends with the connection, which this thread's runtime drives while it asks.
        tokio::spawn(driver);
        *connection = Some(sender);
    }
    let Some(sender) = connection else { return Err(later("not connected")) };
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
