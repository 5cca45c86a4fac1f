//! The API from Rust, for programs without async: what the command line uses.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use salamander_core::experiment::Budget;
use salamander_files::{Durability, PendingFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::runtime::{Builder, Runtime};

use crate::Error;
use crate::api::{CheckpointFile, Lineage, RunCurves, Webhooks};
use crate::create::CreateRequest;
use crate::gc::{CollectRequest, Collection};
use crate::ids::{ExperimentId, RunId};
use crate::store::checkpoints::Checkpoint;
use crate::store::experiments::Experiment;
use crate::store::limits::Usage;
use crate::store::logs::{LogLine, LogPage, LogQuery};
use crate::store::models::{ModelRow, ModelVersion};
use crate::store::page::{ListQuery, Page};
use crate::store::runs::{Run, Validation};
use crate::store::webhooks::Webhook;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub, by its address.
pub struct HubClient {
    base: Url,
    token: Option<String>,
    http: reqwest::Client,
    runtime: Runtime,
}

impl HubClient {
    /// For a hub such as `http://127.0.0.1:7070`; nothing is sent yet.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, Error> {
        let wrong = |error: &dyn ToString| {
            Error::Invalid(format!("{url:?} is no hub's address: {}", error.to_string()))
        };
        let base = Url::parse(url).map_err(|error| wrong(&error))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(wrong(&"it begins with http:// or https://"));
        }
        // Whoever was first has the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
        // A hub closes connections that are silent for 10 s.
        let http = http.pool_idle_timeout(Duration::from_secs(5)).build();
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            base,
            token,
            http: http.map_err(|error| wrong(&error))?,
            runtime: runtime.map_err(|error| wrong(&error))?,
        })
    }

    /// A page of experiments.
    pub fn experiments(&self, query: &ListQuery) -> Result<Page<Experiment>, Error> {
        self.get("api/v1/experiments", query)
    }

    /// One experiment.
    pub fn experiment(&self, id: ExperimentId) -> Result<Experiment, Error> {
        self.get(&format!("api/v1/experiments/{id}"), &())
    }

    /// Puts a new experiment into the queue.
    pub fn create(&self, request: &CreateRequest) -> Result<Experiment, Error> {
        self.post("api/v1/experiments", request)
    }

    /// `pause`, `activate`, `cancel`, `kill`, `archive` or `unarchive`.
    pub fn act(&self, id: ExperimentId, action: &str) -> Result<Experiment, Error> {
        self.post(&format!("api/v1/experiments/{id}/{action}"), &serde_json::json!({}))
    }

    /// Removes an experiment with its folder.
    pub fn delete_experiment(&self, id: ExperimentId) -> Result<(), Error> {
        self.delete::<Json>(&format!("api/v1/experiments/{id}")).map(drop)
    }

    /// Changes labels, description or priority: `{"add_labels", "remove_labels", "description", "priority"}`.
    pub fn change(&self, id: ExperimentId, changes: &Json) -> Result<Experiment, Error> {
        self.send(Method::PATCH, &format!("api/v1/experiments/{id}"), &Json::Null, Some(changes))
    }

    /// Removes the checkpoints of an experiment that its policy does not keep.
    pub fn collect(&self, id: ExperimentId, request: &CollectRequest) -> Result<Collection, Error> {
        self.post(&format!("api/v1/experiments/{id}/gc"), request)
    }

    /// Ends a trial at once.
    pub fn kill_run(&self, id: RunId) -> Result<Run, Error> {
        self.post(&format!("api/v1/runs/{id}/kill"), &serde_json::json!({}))
    }

    /// What an experiment may use, and has used.
    pub fn usage(&self, id: ExperimentId) -> Result<Usage, Error> {
        self.get(&format!("api/v1/experiments/{id}/usage"), &())
    }

    /// Gives an experiment another budget.
    pub fn allow(&self, id: ExperimentId, budget: &Budget) -> Result<Usage, Error> {
        let body = serde_json::to_value(budget).unwrap_or_default();
        let path = format!("api/v1/experiments/{id}/usage");
        self.send(Method::PUT, &path, &Json::Null, Some(&body))
    }

    /// Who is told of ends.
    pub fn webhooks(&self) -> Result<Webhooks, Error> {
        self.get("api/v1/webhooks", &())
    }

    /// Adds an address that is told of ends: of these, or of all.
    pub fn add_webhook(&self, url: &str, states: &[String]) -> Result<Webhook, Error> {
        self.post("api/v1/webhooks", &serde_json::json!({"url": url, "states": states}))
    }

    /// Removes one.
    pub fn remove_webhook(&self, id: &str) -> Result<(), Error> {
        self.delete::<Json>(&format!("api/v1/webhooks/{}", segment(id))).map(drop)
    }

    /// What an experiment starts from, and what starts from it.
    pub fn lineage(&self, id: ExperimentId) -> Result<Lineage, Error> {
        self.get(&format!("api/v1/experiments/{id}/lineage"), &())
    }

    /// Registers a checkpoint as the next version of a model.
    pub fn register(
        &self,
        model: &str,
        run: RunId,
        checkpoint: &str,
    ) -> Result<ModelVersion, Error> {
        let body = serde_json::json!({"run": run, "checkpoint": checkpoint});
        self.post(&format!("api/v1/models/{}/versions", segment(model)), &body)
    }

    /// Its file.
    pub fn config(&self, id: ExperimentId) -> Result<String, Error> {
        let answer: Json = self.get(&format!("api/v1/experiments/{id}/config"), &())?;
        let missing = || Error::NotFound(format!("experiment {id} has no file"));
        answer["config"].as_str().map(str::to_string).ok_or_else(missing)
    }

    /// The checkpoints of all its trials, the best first.
    pub fn experiment_checkpoints(&self, id: ExperimentId) -> Result<Vec<Checkpoint>, Error> {
        self.get(&format!("api/v1/experiments/{id}/checkpoints"), &())
    }

    /// What its command printed.
    pub fn experiment_logs(&self, id: ExperimentId, query: &LogQuery) -> Result<LogPage, Error> {
        self.get(&format!("api/v1/experiments/{id}/logs"), query)
    }

    /// A page of runs.
    pub fn runs(&self, query: &ListQuery) -> Result<Page<Run>, Error> {
        self.get("api/v1/runs", query)
    }

    /// One run.
    pub fn run(&self, id: RunId) -> Result<Run, Error> {
        self.get(&format!("api/v1/runs/{id}"), &())
    }

    /// What a run wrote at its end.
    pub fn summary(&self, id: RunId) -> Result<Json, Error> {
        self.get(&format!("api/v1/runs/{id}/summary"), &())
    }

    /// Its validations.
    pub fn validations(&self, id: RunId) -> Result<Vec<Validation>, Error> {
        self.get(&format!("api/v1/runs/{id}/validations"), &())
    }

    /// Curves of a run, of so many stretches each.
    pub fn curves(&self, id: RunId, metrics: &[&str], points: usize) -> Result<RunCurves, Error> {
        let query = [("metrics", metrics.join(",")), ("points", points.to_string())];
        self.get(
            &format!("api/v1/runs/{id}/curves"),
            &serde_json::json!(query.into_iter().collect::<std::collections::BTreeMap<_, _>>()),
        )
    }

    /// Its checkpoints.
    pub fn checkpoints(&self, id: RunId) -> Result<Vec<Checkpoint>, Error> {
        self.get(&format!("api/v1/runs/{id}/checkpoints"), &())
    }

    /// Fetches a checkpoint into a folder, which appears whole or not at all; gives its files.
    pub fn download(&self, run: RunId, name: &str, folder: &Path) -> Result<u64, Error> {
        let place = format!("api/v1/runs/{run}/checkpoints/{}/files", segment(name));
        let files: Vec<CheckpointFile> = self.get(&place, &())?;
        let mut beside = folder.as_os_str().to_owned();
        beside.push(".part");
        let pending = PendingFolder::create(Path::new(&beside)).map_err(Error::io(folder))?;
        for file in &files {
            let parts: Vec<String> = file.path.split('/').map(segment).collect();
            if file.path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(Error::Remote(format!("the hub names a file {:?}", file.path)));
            }
            let path = Path::new(&beside).join(&file.path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(Error::io(parent))?;
            }
            self.fetch(&format!("{place}/{}", parts.join("/")), &path)?;
        }
        pending.commit(folder, Durability::Synced).map_err(Error::io(folder))?;
        Ok(files.iter().map(|file| file.bytes).sum())
    }

    fn fetch(&self, place: &str, path: &Path) -> Result<(), Error> {
        let request = self.request(Method::GET, place, &Json::Null, None)?;
        let mut out = File::create(path).map_err(Error::io(path))?;
        let hub = self.base.as_str();
        self.runtime.block_on(async {
            let mut response = request.send().await.map_err(|error| silent(hub, error))?;
            if !response.status().is_success() {
                return answer::<Json>(hub, response).await.map(drop);
            }
            while let Some(piece) = response.chunk().await.map_err(|error| silent(hub, error))? {
                out.write_all(&piece).map_err(Error::io(path))?;
            }
            Ok(())
        })
    }

    /// Deletes a checkpoint.
    pub fn delete_checkpoint(&self, run: RunId, name: &str) -> Result<(), Error> {
        let place = format!("api/v1/runs/{run}/checkpoints/{}", segment(name));
        self.delete::<Json>(&place).map(drop)
    }

    /// Lines of its logs.
    pub fn logs(&self, id: RunId, query: &LogQuery) -> Result<LogPage, Error> {
        self.get(&format!("api/v1/runs/{id}/logs"), query)
    }

    /// Lines of all logs with these words.
    pub fn search_logs(&self, query: &LogQuery) -> Result<Vec<LogLine>, Error> {
        self.get("api/v1/logs", query)
    }

    /// All models.
    pub fn models(&self) -> Result<Vec<ModelRow>, Error> {
        self.get("api/v1/models", &())
    }

    /// One model.
    pub fn model(&self, name: &str) -> Result<ModelRow, Error> {
        self.get(&format!("api/v1/models/{}", segment(name)), &())
    }

    /// Gives a model another name.
    pub fn move_model(&self, name: &str, to: &str) -> Result<ModelRow, Error> {
        let body = serde_json::json!({"name": to});
        let path = format!("api/v1/models/{}", segment(name));
        self.send(Method::PATCH, &path, &Json::Null, Some(&body))
    }

    /// Names a version of a model, or takes the name away.
    pub fn alias_model(
        &self,
        name: &str,
        alias: &str,
        version: Option<i64>,
    ) -> Result<ModelRow, Error> {
        let body = serde_json::json!({"alias": alias, "version": version});
        self.post(&format!("api/v1/models/{}/aliases", segment(name)), &body)
    }

    /// Deletes a model, or one version of it; gives what the hub says.
    pub fn delete_model(&self, name: &str, version: Option<i64>) -> Result<Json, Error> {
        let place = version.map_or(String::new(), |version| format!("/versions/{version}"));
        self.delete(&format!("api/v1/models/{}{place}", segment(name)))
    }

    /// The version that `NAME@ALIAS`, `NAME@VERSION` or `NAME`, the newest, stands for.
    pub fn model_version(&self, reference: &str) -> Result<ModelVersion, Error> {
        let (name, which) = reference.split_once('@').unwrap_or((reference, ""));
        self.model(name)?.version(which).cloned()
    }

    /// Asks for something; the fields of `query` that are not null become parameters.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, Error> {
        let query = serde_json::to_value(query).unwrap_or_default();
        self.send(Method::GET, path, &query, None)
    }

    /// Changes something.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        let body = serde_json::to_value(body).unwrap_or_default();
        self.send(Method::POST, path, &Json::Null, Some(&body))
    }

    /// Removes something.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.send(Method::DELETE, path, &Json::Null, None)
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &Json,
        body: Option<&Json>,
    ) -> Result<T, Error> {
        let request = self.request(method, path, query, body)?.timeout(PATIENCE);
        let hub = self.base.as_str();
        self.runtime.block_on(async {
            let response = request.send().await.map_err(|error| silent(hub, error))?;
            answer(hub, response).await
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &Json,
        body: Option<&Json>,
    ) -> Result<RequestBuilder, Error> {
        if leads_elsewhere(path) {
            return Err(Error::Invalid(format!("{path}: no place of a hub")));
        }
        let mut url = self.base.join(path).map_err(|error| Error::Invalid(error.to_string()))?;
        for (name, value) in query.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            url.query_pairs_mut().append_pair(name, &text);
        }
        let mut request = self.http.request(method, url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        Ok(request)
    }
}

fn silent(hub: &str, error: reqwest::Error) -> Error {
    let error = error.without_url();
    Error::Remote(format!("the hub at {hub} does not answer: {}", chain(&error)))
}

async fn answer<T: DeserializeOwned>(hub: &str, response: Response) -> Result<T, Error> {
    let status = response.status();
    let broken = |error: &dyn ToString| {
        Error::Remote(format!("the hub at {hub} answers nonsense: {}", error.to_string()))
    };
    let bytes = response.bytes().await.map_err(|error| broken(&error.without_url()))?;
    if status.is_success() {
        return serde_json::from_slice(&bytes).map_err(|error| broken(&error));
    }
    let told: Json = serde_json::from_slice(&bytes).unwrap_or_default();
    // Calls of MLflow's are refused in its words.
    let reason = match told["error"].as_str().or(told["message"].as_str()) {
        Some(reason) => reason.to_string(),
        None => format!("{status}: {}", String::from_utf8_lossy(&bytes).trim()),
    };
    Err(match status {
        StatusCode::BAD_REQUEST => Error::Invalid(reason),
        StatusCode::UNAUTHORIZED => Error::Unauthorized(reason),
        StatusCode::FORBIDDEN => Error::Forbidden(reason),
        StatusCode::NOT_FOUND => Error::NotFound(reason),
        StatusCode::CONFLICT => Error::Conflict(reason),
        _ => Error::Remote(format!("the hub at {hub}: {reason}")),
    })
}

/// An error with all its reasons.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}

/// Whether an address with this path would be another one: a name such as `..` cannot be written in any way.
fn leads_elsewhere(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().to_ascii_lowercase();
    path.replace("%2e", ".").split(['/', '\\']).any(|part| matches!(part, "." | ".."))
}

/// A name as one part of a path.
pub(crate) fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_to_another_place() {
        for name in ["..", ".", "%2E%2e", "..?x", "..\\x"] {
            assert!(leads_elsewhere(&format!("api/v1/models/{name}")), "{name}");
        }
        for name in ["../experiments/3", "a/../../b", "...", "a.b", "..a", "x?y=../z"] {
            assert!(!leads_elsewhere(&format!("api/v1/models/{}", segment(name))), "{name}");
        }
        assert_eq!(segment("../experiments/3"), "..%2Fexperiments%2F3");
    }
}
