//! The calls of MLflow's REST API that a run needs.

use std::env;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};

use super::batch::{MOST, MetricPoint};
use crate::http;

/// As much of an answer that is an error as is told.
const SHOWN: usize = 300;

/// Why a call did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may work later: nobody answers, or the server is busy.
    #[error("{0}")]
    Away(String),
    /// The server has refused it, and would again.
    #[error("{message} ({code})")]
    Refused {
        /// MLflow's name for the reason, or the status.
        code: String,
        /// What it says.
        message: String,
    },
}

impl Error {
    /// Whether it was refused for this reason.
    pub fn is(&self, reason: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == reason)
    }
}

/// An MLflow server.
pub struct MlflowApi {
    base: Url,
    http: Client,
    credentials: Credentials,
}

enum Credentials {
    None,
    Token(String),
    Basic(String, Option<String>),
}

impl Credentials {
    /// The variables of MLflow's own client.
    fn from_environment() -> Self {
        let get = |name| env::var(name).ok().filter(|value| !value.is_empty());
        match (get("MLFLOW_TRACKING_TOKEN"), get("MLFLOW_TRACKING_USERNAME")) {
            (Some(token), _) => Self::Token(token),
            (None, Some(user)) => Self::Basic(user, get("MLFLOW_TRACKING_PASSWORD")),
            (None, None) => Self::None,
        }
    }
}

impl MlflowApi {
    /// At this address; nothing is sent yet.
    pub fn new(uri: &str) -> Result<Self, Error> {
        let wrong = |message: String| Error::Refused { code: "INVALID_ADDRESS".into(), message };
        let slash = if uri.ends_with('/') { "" } else { "/" };
        let base = Url::parse(&format!("{uri}{slash}"));
        let base = base.map_err(|error| wrong(format!("{uri}: {error}")))?;
        let http = http::client().map_err(|error| wrong(format!("{uri}: {error}")))?;
        Ok(Self { base, http, credentials: Credentials::from_environment() })
    }

    /// The id of an experiment, which is made if it is not there.
    pub async fn experiment(&self, name: &str) -> Result<String, Error> {
        let query = [("experiment_name", name)];
        let found = self.get("api/2.0/mlflow/experiments/get-by-name", &query).await;
        match found {
            Err(error) if error.is("RESOURCE_DOES_NOT_EXIST") => {}
            found => return text(&found?["experiment"]["experiment_id"], "experiment_id"),
        }
        let body = json!({"name": name});
        match self.post("experiments/create", &body).await {
            // Somebody else was faster.
            Err(error) if error.is("RESOURCE_ALREADY_EXISTS") => {
                let query = [("experiment_name", name)];
                let found = self.get("api/2.0/mlflow/experiments/get-by-name", &query).await?;
                text(&found["experiment"]["experiment_id"], "experiment_id")
            }
            made => text(&made?["experiment_id"], "experiment_id"),
        }
    }

    /// The runs with a tag, the oldest first.
    pub async fn runs_with_tag(
        &self,
        experiment: &str,
        tag: &str,
        value: &str,
    ) -> Result<Vec<RunInfo>, Error> {
        let body = json!({
            "experiment_ids": [experiment],
            "filter": format!("tags.`{tag}` = '{value}'"),
            "order_by": ["attributes.start_time ASC", "attributes.run_id ASC"],
            "max_results": 10,
        });
        let found = self.post("runs/search", &body).await?;
        let runs = found["runs"].as_array().into_iter().flatten();
        runs.map(|run| RunInfo::read(&run["info"])).collect()
    }

    /// Makes a run.
    pub async fn create_run(&self, body: &Value) -> Result<RunInfo, Error> {
        RunInfo::read(&self.post("runs/create", body).await?["run"]["info"])
    }

    /// Removes a run that was made twice.
    pub async fn delete_run(&self, run: &str) -> Result<(), Error> {
        self.post("runs/delete", &json!({"run_id": run})).await.map(drop)
    }

    /// Says where a run stands.
    pub async fn update_run(
        &self,
        run: &str,
        status: &str,
        end_time: Option<i64>,
    ) -> Result<(), Error> {
        let mut body = json!({"run_id": run, "status": status});
        if let Some(time) = end_time {
            body["end_time"] = time.into();
        }
        self.post("runs/update", &body).await.map(drop)
    }

    /// Adds points, in as many calls as they need; what the server has already adds nothing.
    pub async fn log_metrics(&self, run: &str, metrics: &[MetricPoint]) -> Result<(), Error> {
        for some in metrics.chunks(MOST) {
            self.post("runs/log-batch", &json!({"run_id": run, "metrics": some})).await?;
        }
        Ok(())
    }

    /// Adds parameters.
    pub async fn log_params(&self, run: &str, params: &[(String, String)]) -> Result<(), Error> {
        let param = |(key, value): &(String, String)| json!({"key": key, "value": value});
        let params: Vec<Value> = params.iter().map(param).collect();
        self.post("runs/log-batch", &json!({"run_id": run, "params": params})).await.map(drop)
    }

    /// Sets a tag.
    pub async fn set_tag(&self, run: &str, key: &str, value: &str) -> Result<(), Error> {
        let body = json!({"run_id": run, "key": key, "value": value});
        self.post("runs/set-tag", &body).await.map(drop)
    }

    /// Puts a file among a run's artifacts; it takes the place of one of this name.
    pub async fn put_artifact(
        &self,
        run: &RunInfo,
        name: &str,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let Some(root) = run.artifact_root() else {
            return Err(Error::Refused {
                code: "NO_ARTIFACT_PROXY".into(),
                message: format!(
                    "artifacts are at {}, which the server does not pass on (start it with --serve-artifacts)",
                    run.artifact_uri
                ),
            });
        };
        let path = format!("api/2.0/mlflow-artifacts/artifacts/{root}/{name}");
        let request = self.request(Method::PUT, &path)?.timeout(http::patience(bytes.len()));
        let request = request.header(CONTENT_TYPE, "application/octet-stream").body(bytes);
        self.send(request).await.map(drop)
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Error> {
        let mut url = self.url(path)?;
        url.query_pairs_mut().extend_pairs(query);
        self.send(self.http.request(Method::GET, url)).await
    }

    async fn post(&self, call: &str, body: &Value) -> Result<Value, Error> {
        let request = self.request(Method::POST, &format!("api/2.0/mlflow/{call}"))?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        self.send(request).await
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, Error> {
        Ok(self.http.request(method, self.url(path)?))
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        let wrong = |error| Error::Refused {
            code: "INVALID_ADDRESS".into(),
            message: format!("{}{path}: {error}", self.base),
        };
        self.base.join(path).map_err(wrong)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Value, Error> {
        let request = match &self.credentials {
            Credentials::None => request,
            Credentials::Token(token) => request.bearer_auth(token),
            Credentials::Basic(user, password) => request.basic_auth(user, password.as_ref()),
        };
        let away = |error: reqwest::Error| Error::Away(http::reasons(&error));
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(away)?;
        if status.is_success() {
            // Artifacts are answered with nothing.
            return Ok(serde_json::from_slice(&bytes).unwrap_or_default());
        }
        Err(refusal(status, &bytes))
    }
}

/// A run of the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Its id.
    pub id: String,
    /// Where its artifacts are.
    pub artifact_uri: String,
}

impl RunInfo {
    fn read(info: &Value) -> Result<Self, Error> {
        let artifact_uri = info["artifact_uri"].as_str().unwrap_or_default().to_string();
        Ok(Self { id: text(&info["run_id"], "run_id")?, artifact_uri })
    }

    /// The path of its artifacts at the server's own address, if it passes them on.
    fn artifact_root(&self) -> Option<&str> {
        let rest = self.artifact_uri.strip_prefix("mlflow-artifacts:")?;
        let path = match rest.strip_prefix("//") {
            // With the server's name, as in mlflow-artifacts://host:5000/1/...
            Some(named) => named.split_once('/')?.1,
            None => rest,
        };
        Some(path.trim_matches('/'))
    }
}

fn text(value: &Value, name: &str) -> Result<String, Error> {
    let missing = || Error::Refused {
        code: "NO_MLFLOW_SERVER".into(),
        message: format!("the answer has no {name}: is this the address of an MLflow server?"),
    };
    value.as_str().map(str::to_string).ok_or_else(missing)
}

fn refusal(status: StatusCode, bytes: &[u8]) -> Error {
    let said = String::from_utf8_lossy(bytes);
    let json: Value = serde_json::from_str(&said).unwrap_or_default();
    let code = json["error_code"].as_str().map_or_else(|| status.to_string(), str::to_string);
    let message = json["message"].as_str().unwrap_or(&said);
    let message: String = message.chars().take(SHOWN).collect();
    // Those that MLflow's own client tries again.
    match status.as_u16() {
        408 | 429 | 500 | 502 | 503 | 504 => Error::Away(format!("{status}: {message}")),
        _ => Error::Refused { code, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_go_through_the_server_that_passes_them_on() {
        let check = |uri: &str, expected: Option<&str>| {
            let run = RunInfo { id: "a".into(), artifact_uri: uri.into() };
            assert_eq!(run.artifact_root(), expected);
        };
        check("mlflow-artifacts:/1/abc/artifacts", Some("1/abc/artifacts"));
        check("mlflow-artifacts://host:5000/1/abc/artifacts", Some("1/abc/artifacts"));
        check("s3://bucket/1/abc", None);
        check("file:///mlruns/1/abc", None);
    }

    #[test]
    fn what_may_work_later_is_told_from_what_was_refused() {
        let refused = refusal(StatusCode::NOT_FOUND, br#"{"error_code":"X","message":"no"}"#);
        assert_eq!(refused.to_string(), "no (X)");
        assert!(refused.is("X"));
        let away = refusal(StatusCode::SERVICE_UNAVAILABLE, b"busy");
        assert_eq!(away, Error::Away("503 Service Unavailable: busy".into()));
        let page = refusal(StatusCode::NOT_FOUND, "\u{e9}".repeat(9000).as_bytes());
        assert!(page.to_string().len() < 700);
    }
}
