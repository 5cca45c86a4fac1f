//! The calls of MLflow's clients, by their paths below `/api/2.0/mlflow`.
//!
//! # Layout
//! - [`routes`]; `experiments`, `runs`, `search`, `values`, `logged_models`, `registered_models`, `versions`: the calls

mod experiments;
mod logged_models;
mod registered_models;
mod runs;
mod search;
mod values;
mod versions;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::Method;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::asked::Asked;
use super::refusal::MlflowRefusal;
use super::{Mlflow, artifacts};
use crate::Error;

/// The largest body of a call; artifacts are bounded by the disk alone.
const BODY: usize = 16 << 20;

/// A call.
type MlflowCall = fn(&Mlflow, &Asked) -> Result<Value, MlflowRefusal>;

/// All calls; a part of a path in braces is a field.
const CALLS: &[(&str, &str, MlflowCall)] = &[
    ("POST", "experiments/create", experiments::create),
    ("GET", "experiments/get", experiments::get),
    ("GET", "experiments/get-by-name", experiments::get_by_name),
    ("POST", "experiments/search", experiments::search),
    ("GET", "experiments/search", experiments::search),
    ("POST", "experiments/update", experiments::update),
    ("POST", "experiments/delete", experiments::delete),
    ("POST", "experiments/restore", experiments::restore),
    ("POST", "experiments/set-experiment-tag", experiments::set_tag),
    ("POST", "experiments/delete-experiment-tag", experiments::delete_tag),
    ("POST", "experiments/search-datasets", experiments::datasets),
    ("POST", "runs/create", runs::create),
    ("GET", "runs/get", runs::get),
    ("POST", "runs/update", runs::update),
    ("POST", "runs/delete", runs::delete),
    ("POST", "runs/restore", runs::restore),
    ("POST", "runs/search", search::runs),
    ("POST", "runs/log-metric", values::log_metric),
    ("POST", "runs/log-batch", values::log_batch),
    ("POST", "runs/log-parameter", values::log_parameter),
    ("POST", "runs/set-tag", values::set_tag),
    ("POST", "runs/delete-tag", values::delete_tag),
    ("POST", "runs/log-inputs", runs::log_inputs),
    ("POST", "runs/outputs", runs::log_outputs),
    ("POST", "runs/log-model", runs::log_model),
    ("GET", "metrics/get-history", values::history),
    ("GET", "metrics/get-history-bulk", values::history_in_bulk),
    ("GET", "metrics/get-history-bulk-interval", values::history_of_several),
    ("GET", "artifacts/list", runs::list_artifacts),
    ("POST", "logged-models", logged_models::create),
    ("POST", "logged-models/search", logged_models::search),
    ("GET", "logged-models/{model_id}", logged_models::get),
    ("PATCH", "logged-models/{model_id}", logged_models::finalize),
    ("DELETE", "logged-models/{model_id}", logged_models::delete),
    ("PATCH", "logged-models/{model_id}/tags", logged_models::set_tags),
    ("DELETE", "logged-models/{model_id}/tags/{tag_key}", logged_models::delete_tag),
    ("POST", "logged-models/{model_id}/params", logged_models::log_params),
    ("GET", "logged-models/{model_id}/artifacts/directories", logged_models::list_artifacts),
    ("POST", "registered-models/create", registered_models::create),
    ("POST", "registered-models/rename", registered_models::rename),
    ("PATCH", "registered-models/update", registered_models::update),
    ("DELETE", "registered-models/delete", registered_models::delete),
    ("GET", "registered-models/get", registered_models::get),
    ("GET", "registered-models/search", registered_models::search),
    ("POST", "registered-models/get-latest-versions", registered_models::latest_versions),
    ("GET", "registered-models/get-latest-versions", registered_models::latest_versions),
    ("POST", "registered-models/set-tag", registered_models::set_tag),
    ("DELETE", "registered-models/delete-tag", registered_models::delete_tag),
    ("POST", "registered-models/alias", registered_models::set_alias),
    ("DELETE", "registered-models/alias", registered_models::delete_alias),
    ("GET", "registered-models/alias", registered_models::by_alias),
    ("POST", "model-versions/create", versions::create),
    ("GET", "model-versions/get", versions::get),
    ("PATCH", "model-versions/update", versions::update),
    ("DELETE", "model-versions/delete", versions::delete),
    ("GET", "model-versions/search", versions::search),
    ("GET", "model-versions/get-download-uri", versions::download_uri),
    ("POST", "model-versions/transition-stage", versions::transition),
    ("POST", "model-versions/set-tag", versions::set_tag),
    ("DELETE", "model-versions/delete-tag", versions::delete_tag),
];

/// The routes of MLflow, to be put behind the hub's login.
pub fn routes(mlflow: Mlflow) -> Router {
    let mut router = Router::new();
    for prefix in ["/api", "/ajax-api"] {
        router = router
            .route(&format!("{prefix}/2.0/mlflow/{{*call}}"), any(call))
            .route(&format!("{prefix}/2.0/mlflow-artifacts/artifacts"), any(artifacts::handle))
            .route(
                &format!("{prefix}/2.0/mlflow-artifacts/artifacts/{{*path}}"),
                any(artifacts::handle).layer(DefaultBodyLimit::disable()),
            )
            .route(&format!("{prefix}/3.0/mlflow/server-info"), get(server_info))
            .route(&format!("{prefix}/3.0/mlflow/{{*call}}"), any(no_call));
    }
    router.with_state(mlflow)
}

/// Whether a path is one of these routes.
pub(crate) fn is_call(path: &str) -> bool {
    let rest = path.strip_prefix("/ajax-api").or_else(|| path.strip_prefix("/api"));
    rest.is_some_and(|rest| rest.starts_with("/2.0/mlflow") || rest.starts_with("/3.0/mlflow"))
}

/// Answers a call that is not let in, in words that clients understand.
pub(crate) fn refuse(error: Error) -> Response {
    let wait = match &error {
        Error::TooManyLogins { seconds } => Some(*seconds),
        _ => None,
    };
    let mut response = MlflowRefusal::from(error).into_response();
    if let Some(seconds) = wait {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// What clients ask before they decide how to send files.
async fn server_info() -> Json<Value> {
    Json(json!({
        "store_type": null,
        "workspaces_enabled": false,
        "trace_archival_enabled": false,
        "multipart_uploads_enabled": false,
        "multipart_downloads_enabled": false,
        "presigned_upload_run_id_supported": false,
        "presigned_upload_model_id_supported": false,
    }))
}

async fn no_call(request: Request) -> MlflowRefusal {
    MlflowRefusal::no_endpoint(request.uri().path())
}

async fn call(State(mlflow): State<Mlflow>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let path = path.split_once("/mlflow/").map_or(path, |(_, path)| path).trim_matches('/');
    let Some((call, fields)) = find(parts.method.as_str(), path) else {
        return MlflowRefusal::no_endpoint(path).into_response();
    };
    let query = parts.uri.query().unwrap_or_default();
    let asked = match parts.method == Method::GET {
        true => Ok(Asked::from_query(query)),
        false => from_body(body, query).await,
    };
    let asked = match asked {
        Ok(asked) => {
            fields.into_iter().fold(asked, |asked, (name, value)| asked.with(name, &value))
        }
        Err(refusal) => return refusal.into_response(),
    };
    let answered = tokio::task::spawn_blocking(move || call(&mlflow, &asked)).await;
    match answered.unwrap_or_else(|_| Err(Error::Closed.into())) {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Clients send what they delete in a body as well as in the address.
async fn from_body(body: Body, query: &str) -> Result<Asked, MlflowRefusal> {
    let bytes = axum::body::to_bytes(body, BODY).await;
    let large = |_| MlflowRefusal::invalid(format!("the body is larger than {BODY} bytes"));
    let bytes = bytes.map_err(large)?;
    match bytes.is_empty() && !query.is_empty() {
        true => Ok(Asked::from_query(query)),
        false => Asked::from_body(&bytes),
    }
}

/// The call of a path, and the fields that are parts of it.
fn find(method: &str, path: &str) -> Option<(MlflowCall, Vec<(&'static str, String)>)> {
    let parts: Vec<&str> = path.split('/').collect();
    // What is named comes before what is a field.
    let mut found: Vec<_> = CALLS
        .iter()
        .filter(|(wanted, pattern, _)| {
            *wanted == method && pattern.split('/').count() == parts.len()
        })
        .filter_map(|(_, pattern, call)| {
            let mut fields = Vec::new();
            for (wanted, part) in pattern.split('/').zip(&parts) {
                match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(name) => fields.push((name, (*part).to_string())),
                    None if wanted == *part => {}
                    None => return None,
                }
            }
            Some((*call, fields))
        })
        .collect();
    found.sort_by_key(|(_, fields)| fields.len());
    (!found.is_empty()).then(|| found.swap_remove(0))
}

/// A page of what was found: tokens are places in the list.
fn page<T>(
    all: Vec<T>,
    asked: &Asked,
    most: usize,
) -> Result<(Vec<T>, Option<String>), MlflowRefusal> {
    let wanted = match asked.number("max_results")? {
        None => most.min(1000),
        Some(wanted) if wanted > 0 && wanted as u64 <= most as u64 => wanted as usize,
        Some(wanted) => {
            let reason = format!(
                "Invalid value {wanted} for parameter 'max_results' supplied. It must be between 1 and {most}."
            );
            return Err(MlflowRefusal::invalid(reason));
        }
    };
    let begin = match asked.text("page_token") {
        None => 0,
        Some(token) => token
            .parse()
            .map_err(|_| MlflowRefusal::invalid(format!("Invalid page token: {token:?}")))?,
    };
    let next = (all.len() > wanted.saturating_add(begin)).then(|| (begin + wanted).to_string());
    Ok((all.into_iter().skip(begin).take(wanted).collect(), next))
}

/// An answer with a list, and where to go on.
fn listed(name: &str, items: Vec<Value>, next: Option<String>) -> Value {
    let mut answer = json!({name: items});
    if let Some(next) = next {
        answer["next_page_token"] = next.into();
    }
    answer
}

/// Refuses a name that clients may not give: where runs are files such a name is a path, and must be no other one's.
fn named(what: &str, name: &str, most: usize) -> Result<(), MlflowRefusal> {
    let is_sign = |c: char| c.is_alphanumeric() || "_/.- :".contains(c);
    let mut parts = name.split('/');
    let leads_away = name.starts_with("..") || parts.any(|part| matches!(part, "" | "." | ".."));
    if name.chars().all(is_sign) && !leads_away {
        return bounded(what, name, most);
    }
    let reason = format!(
        "Invalid value {name:?} for parameter '{what}' supplied: Names may only contain alphanumerics, \
         underscores (_), dashes (-), periods (.), spaces ( ), colon(:) and slashes (/), and be no path that \
         leads elsewhere."
    );
    Err(MlflowRefusal::invalid(reason))
}

/// As much of a text as is kept: clients are promised that longer ones are cut.
fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text[..end].to_string(),
        None => text,
    }
}

/// Refuses what is longer than clients are promised.
fn bounded(what: &str, text: &str, most: usize) -> Result<(), MlflowRefusal> {
    let length = text.chars().count();
    if length <= most {
        return Ok(());
    }
    let reason = format!("{what} had length {length}, which exceeded length limit of {most}");
    Err(MlflowRefusal::invalid(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_by_their_paths() {
        assert!(find("POST", "runs/create").is_some());
        assert!(find("GET", "runs/create").is_none());
        let (_, fields) = find("DELETE", "logged-models/m-1/tags/k").expect("there");
        assert_eq!(fields, [("model_id", "m-1".to_string()), ("tag_key", "k".to_string())]);
        // The one that is named, not a model called "search".
        assert!(find("POST", "logged-models/search").expect("there").1.is_empty());
        assert!(find("GET", "traces").is_none());
    }

    #[test]
    fn names_are_those_that_files_could_have() {
        for name in ["loss", "val/loss", "a b:c", "x.1-2_3", "validation/top 5", "\u{e9}", "a..b"] {
            assert_eq!(named("Metric name", name, 250), Ok(()), "{name}");
        }
        for name in
            ["a?b", "<b>", "a//b", "/a", "a/", ".", "..", "../a", "..a", "a/../b", "a\nb", ""]
        {
            assert!(named("Metric name", name, 250).is_err(), "{name:?}");
        }
        assert!(named("Metric name", &"x".repeat(251), 250).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_signs() {
        assert_eq!(cut("\u{e9}\u{e9}\u{e9}".to_string(), 2), "\u{e9}\u{e9}");
        assert_eq!(cut("ab".to_string(), 2), "ab");
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let ask = |query: &str| page((0..5).collect(), &Asked::from_query(query), 100);
        assert_eq!(ask("max_results=2"), Ok((vec![0, 1], Some("2".to_string()))));
        assert_eq!(ask("max_results=2&page_token=4"), Ok((vec![4], None)));
        assert_eq!(
            ask("max_results=2&page_token=18446744073709551615").map(|(all, _)| all.len()),
            Ok(0)
        );
        assert!(ask("max_results=0").is_err() && ask("max_results=101").is_err());
        assert!(ask("page_token=x").is_err());
    }
}
