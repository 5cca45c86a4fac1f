//! REST: the Open Inference Protocol, v1's `:predict` and TorchServe's addresses, over a registry.
//!
//! # Layout
//! - `routes`: all addresses; this file: which call answers which; `torchserve`: calls that change what is served
//! - `body`, `query`, `infer`, `json`: requests and answers; `records`, `form`: what older clients send
//! - `models`, `statistics`: what is told about models

mod body;
mod form;
mod infer;
mod json;
mod models;
mod query;
mod records;
mod routes;
mod statistics;
mod torchserve;

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value as Json, json};

use crate::engine::{InferRequest, InferResponse, Registry};
use crate::input::Input;
use crate::page;
use crate::refusal::Refusal;
use crate::settings::LiveSettings;
use body::ReadBody;
pub(crate) use body::{BodyReader, SLOWEST, TakenRoom};
use query::Query;

/// What the server calls itself.
pub(crate) const SERVER: &str = "salamander";
/// The parts of the protocol beyond its core.
pub(crate) const EXTENSIONS: [&str; 6] = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
    "trace",
    "logging",
];

/// REST over a registry.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) registry: Registry,
    /// Reads bodies within their bounds.
    pub(crate) bodies: BodyReader,
    /// The status that says that too many wait.
    pub(crate) busy: u16,
    /// What clients change besides models.
    pub(crate) settings: LiveSettings,
    /// Whether calls are answered here that change what is served.
    pub(crate) changes: bool,
}

type Answered = Result<Response<Vec<u8>>, Refusal>;

impl Api {
    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Vec<u8>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let headers = parts.headers;
        let path: Vec<&str> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let query = Query::parse(parts.uri.query());
        let answered = match routes::methods(&path) {
            None => Err(unknown(&path)),
            Some(methods) if !methods.contains(&parts.method.as_str()) => {
                Err(Refusal::Method(methods.join(", ")))
            }
            Some(_) => match parts.method {
                Method::GET | Method::HEAD => self.get(&path, &headers, &query),
                Method::OPTIONS => Ok(page::open_api()),
                Method::POST | Method::PUT if path.first() != Some(&"models") => {
                    match self.bodies.read(&headers, body).await {
                        Ok(body) => self.post(&path, &headers, &body).await,
                        Err(refusal) => Err(refusal),
                    }
                }
                _ => self.manage(&parts.method, &path, &query).await,
            },
        };
        let answer = answered.unwrap_or_else(|refusal| {
            let managed = matches!(path.first(), Some(&"models" | &"predictions"));
            self.refused_as(&refusal, managed)
        });
        packed(answer, &headers)
    }

    fn get(&self, path: &[&str], headers: &HeaderMap, query: &Query) -> Answered {
        match path {
            [] if page::is_wanted(headers) => Ok(page::index()),
            [] => ok(&json!({"status": "alive"})),
            ["page", file] => page::file(file).ok_or_else(|| unknown(path)),
            ["openapi.json"] | ["api-description"] => Ok(page::open_api()),
            ["ping"] => ok(&json!({"status": self.health("Healthy", "Unhealthy")})),
            ["healthz"] => ok(&json!({"status": "ok"})),
            ["v2"] => ok(&json!({
                "name": SERVER,
                "version": env!("CARGO_PKG_VERSION"),
                "extensions": EXTENSIONS,
            })),
            ["v2", "health", "live"] => ok(&json!({"live": true})),
            ["readyz"] | ["v2", "health", "ready"] => match self.registry.is_ready() {
                true => ok(&json!({"ready": true})),
                false => Err(Refusal::Unavailable("not all models are ready".to_string())),
            },
            ["metrics"] => Ok(metrics_page(self.registry.metrics())),
            ["v2", "models", "stats"] => ok(&statistics::all(&self.registry)),
            ["v2", "logging"] => ok(&Json::Object(self.settings.log())),
            ["v2", "trace", "setting"] => ok(&Json::Object(LiveSettings::trace())),
            ["v2", "models", model, "trace", "setting"] => {
                self.registry.version(model, None)?;
                ok(&Json::Object(LiveSettings::trace()))
            }
            ["v2", "models", model] => self.metadata(model, None),
            ["v2", "models", model, "versions", version] => self.metadata(model, Some(version)),
            ["v2", "models", model, what] => self.about(model, None, what),
            ["v2", "models", model, "versions", version, what] => {
                self.about(model, Some(version), what)
            }
            ["v1", "models"] => ok(&json!({"models": self.registry.names()})),
            ["v1", "models", model] => {
                let ready = self.registry.version(model, None).is_ok();
                ok(&json!({"name": model, "ready": ready}))
            }
            ["models"] => torchserve::list(&self.registry, query),
            ["models", model] => torchserve::describe(&self.registry, model, None),
            ["models", model, version] => {
                torchserve::describe(&self.registry, model, Some(version))
            }
            _ => Err(unknown(path)),
        }
    }

    async fn post(&self, path: &[&str], headers: &HeaderMap, read: &ReadBody) -> Answered {
        let body = read.bytes.clone();
        match path {
            ["v2", "models", model, "infer"] => self.infer(model, None, headers, read).await,
            ["v2", "models", model, "versions", version, "infer"] => {
                self.infer(model, Some(version), headers, read).await
            }
            ["v2", "repository", "index"] => ok(&models::index(&self.registry, &body)?),
            ["v2", "repository", "models", model, "load"] => {
                self.may_change()?;
                models::check_load(&body)?;
                let (registry, model) = (self.registry.clone(), model.to_string());
                let loaded = tokio::task::spawn_blocking(move || registry.load(&model)).await;
                loaded.map_err(|error| Refusal::Failed(error.to_string()))??;
                ok(&json!({}))
            }
            ["v2", "repository", "models", model, "unload"] => {
                self.may_change()?;
                self.registry.unload(model)?;
                ok(&json!({}))
            }
            ["v2", "logging"] => {
                self.may_change()?;
                self.settings.set_log(models::settings(&body)?)?;
                ok(&Json::Object(self.settings.log()))
            }
            ["v2", "trace", "setting"] => {
                LiveSettings::set_trace(&models::settings(&body)?)?;
                ok(&Json::Object(LiveSettings::trace()))
            }
            ["v2", "models", model, "trace", "setting"] => {
                self.registry.version(model, None)?;
                LiveSettings::set_trace(&models::settings(&body)?)?;
                ok(&Json::Object(LiveSettings::trace()))
            }
            ["v1", "models", call] => match call.strip_suffix(":predict") {
                Some(model) => {
                    let predictions = self.rows(model, None, headers, body).await?;
                    ok(&json!({"predictions": predictions}))
                }
                None => Err(unknown(path)),
            },
            ["predictions", model] => self.predictions(model, None, headers, body).await,
            ["predictions", model, version] => {
                self.predictions(model, Some(version), headers, body).await
            }
            _ => Err(unknown(path)),
        }
    }

    fn health(&self, good: &'static str, bad: &'static str) -> &'static str {
        if self.registry.is_ready() { good } else { bad }
    }

    fn metadata(&self, model: &str, version: Option<&str>) -> Answered {
        let version = self.registry.version(model, version)?;
        let versions = self.registry.version_names(model)?;
        ok(&json::metadata(model, &versions, version.decoder.metadata()))
    }

    fn about(&self, model: &str, version: Option<&str>, what: &str) -> Answered {
        let found = self.registry.version(model, version)?;
        match what {
            "ready" => ok(&json!({"name": model, "ready": true})),
            "config" => ok(&models::config(&self.registry, model, &found)),
            "stats" => ok(&json!({"model_stats": [statistics::one(model, &found)]})),
            _ => Err(unknown(&["v2", "models", model, what])),
        }
    }

    async fn infer(
        &self,
        model: &str,
        version: Option<&str>,
        headers: &HeaderMap,
        read: &ReadBody,
    ) -> Answered {
        self.registry.check_room(model, version)?;
        let ReadBody { bytes, room } = read;
        let infer::ReadRequest { id, input, outputs, binary, timeout } =
            body::apart(bytes.len(), || infer::read(headers, bytes.clone(), room))?;
        let names = outputs.iter().map(|output| output.name.clone()).collect();
        let response = self.registry.infer(InferRequest {
            model: model.to_string(),
            version: version.map(str::to_string),
            input,
            outputs: names,
            timeout,
        });
        let response = response.await?;
        let form = infer::AnswerForm { id: &id, wanted: &outputs, binary };
        infer::write(model, &form, &response)
    }

    /// One JSON value per record.
    async fn rows(
        &self,
        model: &str,
        version: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Vec<Json>, Refusal> {
        self.registry.check_room(model, version)?;
        let version = self.registry.version(model, version)?;
        let metadata = version.decoder.metadata();
        let input = body::apart(body.len(), || records::read_records(headers, body, metadata))?;
        let InferResponse { outputs, .. } = self.ask(model, &version.name, input).await?;
        Ok(json::rows(&outputs))
    }

    async fn ask(
        &self,
        model: &str,
        version: &str,
        input: Input,
    ) -> Result<InferResponse, Refusal> {
        let request = InferRequest {
            model: model.to_string(),
            version: Some(version.to_string()),
            input,
            outputs: Vec::new(),
            timeout: None,
        };
        self.registry.infer(request).await
    }

    /// As TorchServe answers: the value of a single record alone, a list for several, and `predictions` to those who
    /// sent `instances`, as its envelope for KServe does.
    async fn predictions(
        &self,
        model: &str,
        version: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answered {
        let several = matches!(body.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'['));
        let instances = records::has_instances(headers, &body);
        let mut rows = self.rows(model, version, headers, body).await?;
        match (instances, several) {
            (true, _) => ok(&json!({"predictions": rows})),
            (false, true) => ok(&Json::Array(rows)),
            (false, false) => ok(&rows.pop().unwrap_or_default()),
        }
    }

    fn may_change(&self) -> Result<(), Refusal> {
        match self.changes {
            true => Ok(()),
            false => Err(Refusal::Forbidden(
                "what is served is changed at the management address".to_string(),
            )),
        }
    }

    pub(crate) fn refused(&self, refusal: &Refusal) -> Response<Vec<u8>> {
        self.refused_as(refusal, false)
    }

    /// With what TorchServe's clients look for, where they ask.
    fn refused_as(&self, refusal: &Refusal, torchserve: bool) -> Response<Vec<u8>> {
        let status = refusal.status(self.busy);
        let mut body = json!({"error": refusal.to_string()});
        if torchserve {
            body["code"] = status.into();
            body["type"] = torchserve::error_type(refusal).into();
            body["message"] = refusal.to_string().into();
        }
        let mut answer = Response::new(body.to_string().into());
        *answer.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let headers = answer.headers_mut();
        // Exactly this one: kserve's client shows an error's text for no other.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match refusal {
            Refusal::Busy(_) => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Refusal::Method(methods) => {
                if let Ok(methods) = HeaderValue::from_str(methods) {
                    headers.insert(ALLOW, methods);
                }
            }
            _ => {}
        }
        answer
    }
}

/// What a body holds, read as each kind of address reads it.
pub(crate) fn decode_all(headers: &HeaderMap, body: Bytes) -> Vec<Input> {
    let Ok(body) = body::unpacked(headers, body) else { return Vec::new() };
    let room = BodyReader::new(1 << 30, 1 << 30, Duration::ZERO).room();
    let read = infer::read(headers, body.clone(), &room).map(|request| request.input);
    let only = crate::model::TensorInfo {
        name: "text".to_string(),
        datatype: crate::tensor::DataType::Bytes,
        shape: vec![1],
        optional: false,
    };
    let metadata = crate::model::Metadata { inputs: vec![only], ..Default::default() };
    let _ = records::has_instances(headers, &body);
    let older = records::read_records(headers, body, &metadata);
    [read, older].into_iter().flatten().collect()
}

fn ok(json: &Json) -> Answered {
    let mut answer = Response::new(json.to_string().into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn metrics_page(page: String) -> Response<Vec<u8>> {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut answer = Response::new(page.into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
    answer
}

fn unknown(path: &[&str]) -> Refusal {
    if let ["v2", "systemsharedmemory" | "cudasharedmemory", ..] = path {
        let reason = "memory is not shared with clients here: send tensors with the request";
        return Refusal::Unsupported(reason.to_string());
    }
    let path = path.join("/");
    Refusal::NotFound(format!("there is nothing at /{path}: GET /v2 tells what this server is"))
}

/// The same answer, compressed where the client takes it and it is worth it.
fn packed(answer: Response<Vec<u8>>, asked: &HeaderMap) -> Response<Vec<u8>> {
    let Some(encoding) = body::Encoding::of_answer(asked, answer.body().len()) else {
        return answer;
    };
    let (mut parts, plain) = answer.into_parts();
    let body = match body::pack(encoding, &plain) {
        Ok(packed) => {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
            packed
        }
        Err(_) => plain,
    };
    Response::from_parts(parts, body)
}
