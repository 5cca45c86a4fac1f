//! The management calls of TorchServe that people script: list, describe, register, scale, unregister, set a default.
//! Workers are not what this server has; calls about them are answered with a sentence that says so.

use hyper::{Method, Response, StatusCode};
use serde_json::{Value as Json, json};

use super::query::Query;
use super::{Answered, Api, ok};
use crate::engine::{ModelStatus, Registry, ServedVersion};
use crate::refusal::Refusal;

/// Models of a page of the list, as many as TorchServe has.
const PAGE: usize = 100;

/// All models, so many at a time.
pub(super) fn list(registry: &Registry, query: &Query) -> Answered {
    let number = |name: &str| match query.get(name).map(str::parse::<usize>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Refusal::Invalid(format!("{name} is no whole number"))),
    };
    let limit = number("limit")?.unwrap_or(PAGE).clamp(1, PAGE);
    let first = number("next_page_token")?.unwrap_or(0);
    let names = registry.names();
    let page = names.iter().skip(first).take(limit);
    let models: Vec<Json> = page.map(|name| json!({"modelName": name, "modelUrl": name})).collect();
    let next = first.saturating_add(models.len());
    let mut answer = json!({"models": models});
    if next < names.len() {
        answer["nextPageToken"] = next.to_string().into();
    }
    ok(&answer)
}

/// The default version of a model, one by its name, or all of them.
pub(super) fn describe(registry: &Registry, model: &str, version: Option<&str>) -> Answered {
    if version != Some("all") {
        let found = registry.version(model, version)?;
        let default = registry.version(model, None).is_ok_and(|other| other.name == found.name);
        return ok(&json!([description(model, &found, default)]));
    }
    let one = |ModelStatus { version, is_default, .. }| {
        version.map(|version| description(model, &version, is_default))
    };
    ok(&registry.versions(model)?.into_iter().filter_map(one).collect())
}

fn description(model: &str, version: &ServedVersion, default: bool) -> Json {
    json!({
        "modelName": model,
        "modelVersion": version.name,
        "modelUrl": model,
        "runtime": super::SERVER,
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": 1,
        "maxBatchDelay": 0,
        "loadedAtStartup": true,
        "default": default,
        "workers": [{"id": "0", "status": "READY", "gpu": false}],
        "jobQueueStatus": {"pendingRequests": version.waiting()},
    })
}

impl Api {
    /// A call that changes what is served.
    pub(super) async fn manage(&self, method: &Method, path: &[&str], query: &Query) -> Answered {
        self.may_change()?;
        match (method.as_str(), path) {
            ("POST", ["models"]) => self.register(query).await,
            ("PUT", ["models", model, version, "set-default"]) => {
                self.registry.set_default(model, version)?;
                status(200, format!("version {version} is now the default one of model {model}"))
            }
            ("PUT", ["models", model]) => self.scale(model, None, query),
            ("PUT", ["models", model, version]) => self.scale(model, Some(version), query),
            ("DELETE", ["models", model]) => {
                self.registry.unregister(model, None)?;
                status(200, format!("Model \"{model}\" unregistered"))
            }
            ("DELETE", ["models", model, version]) => {
                self.registry.unregister(model, Some(version))?;
                status(200, format!("Model \"{model}\" Version: {version} unregistered"))
            }
            _ => Err(super::unknown(path)),
        }
    }

    async fn register(&self, query: &Query) -> Answered {
        let Some(url) = query.get("url").map(str::to_string) else {
            return Err(Refusal::Invalid(
                "say what to register: POST /models?url=RUN, an exported folder or model:NAME@ALIAS"
                    .to_string(),
            ));
        };
        let name = query.get("model_name").map(str::to_string);
        let registry = self.registry.clone();
        let registered =
            tokio::task::spawn_blocking(move || registry.register(name.as_deref(), &url));
        let registered = registered.await.map_err(|error| Refusal::Failed(error.to_string()))?;
        let (name, version) = registered?;
        status(
            200,
            format!("Model \"{name}\" Version: {version} registered with 1 initial workers"),
        )
    }

    /// Nothing is done: a model has one thread that computes, which uses as many cores as it was given.
    fn scale(&self, model: &str, version: Option<&str>, query: &Query) -> Answered {
        self.registry.version(model, version)?;
        for name in ["min_worker", "max_worker"] {
            if query.get(name).is_some_and(|workers| workers.parse::<u32>().is_err()) {
                return Err(Refusal::Invalid(format!("{name} is no whole number")));
            }
        }
        let code = if query.get("synchronous") == Some("true") { 200 } else { 202 };
        status(
            code,
            format!(
                "model {model} has no workers to scale: its thread uses the cores that `serve --threads` gave it"
            ),
        )
    }
}

fn status(code: u16, text: String) -> Answered {
    let answer = ok(&json!({"status": text}))?;
    let (mut parts, body) = answer.into_parts();
    parts.status = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    Ok(Response::from_parts(parts, body))
}

/// What TorchServe calls an error.
pub(super) fn error_type(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound(_) => "ModelNotFoundException",
        Refusal::Conflict(_) => "ConflictStatusException",
        Refusal::Method(_) => "MethodNotAllowedException",
        Refusal::Busy(_) | Refusal::Unavailable(_) => "ServiceUnavailableException",
        Refusal::Failed(_) => "InternalServerException",
        _ => "BadRequestException",
    }
}
