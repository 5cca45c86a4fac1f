//! The API: what a hub answers over HTTP. Handlers only parse, ask the store on a thread for that, and answer.
//!
//! # Layout
//! - [`router`]: all routes, to which others may add theirs; `reply`: errors, ETags, parameters
//! - `openapi`: the API's own description; `figures`: for Prometheus; `files`: of checkpoints
//! - `read`: everything that is looked at; `events`: what is followed; `write`: what is changed; `access`: by whom
//! - `upkeep`: what goes, budgets, webhooks; `remote`: runs of other machines

mod access;
mod events;
mod figures;
mod files;
mod openapi;
mod read;
mod remote;
mod reply;
mod upkeep;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use tokio::sync::Semaphore;

use crate::create::Programs;
use crate::hub::Hub;
pub use access::{Access, Guard};
pub use files::CheckpointFile;
pub use read::RunCurves;
pub use upkeep::{Lineage, SourceCheckpoint, Webhooks};

/// The largest body of a request: experiment files are far smaller.
const BODY: usize = 2 << 20;
/// Streams of events at a time; more are told to come back later.
const STREAMS: usize = 512;

/// What handlers share.
#[derive(Clone)]
pub struct Api {
    /// The hub.
    pub hub: Hub,
    /// Who may do what.
    pub guard: Arc<Guard>,
    /// What experiments may be started with.
    pub programs: Arc<Programs>,
    streams: Arc<Semaphore>,
}

impl Api {
    /// For a hub.
    pub fn new(hub: Hub, guard: Guard, programs: Arc<Programs>) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        Self { hub, guard: Arc::new(guard), programs, streams }
    }
}

/// All routes of the API. More may be merged into it: `guarded` puts them behind the same login.
pub fn router(api: &Api) -> Router {
    let read = Router::new()
        .route("/api/v1/experiments", get(read::experiments).post(write::create))
        .route(
            "/api/v1/experiments/{id}",
            get(read::experiment).patch(write::change_experiment).delete(write::delete_experiment),
        )
        .route("/api/v1/experiments/{id}/{action}", post(write::act))
        .route("/api/v1/experiments/{id}/gc", post(upkeep::collect))
        .route("/api/v1/experiments/{id}/lineage", get(upkeep::lineage))
        .route("/api/v1/experiments/{id}/config", get(read::config))
        .route("/api/v1/experiments/{id}/checkpoints", get(read::experiment_checkpoints))
        .route("/api/v1/experiments/{id}/logs", get(read::experiment_logs))
        .route("/api/v1/runs", get(read::runs))
        .route("/api/v1/runs/{id}", get(read::run))
        .route("/api/v1/runs/{id}/kill", post(upkeep::kill_run))
        .route("/api/v1/experiments/{id}/usage", get(upkeep::usage).put(upkeep::allow))
        .route("/api/v1/remote-runs", post(remote::begin))
        .route("/api/v1/remote-runs/{uid}/files", put(remote::write))
        .route("/api/v1/remote-runs/{uid}/alive", post(remote::hear))
        .route("/api/v1/webhooks", get(upkeep::webhooks).post(upkeep::add_webhook))
        .route("/api/v1/webhooks/{id}", delete(upkeep::remove_webhook))
        .route("/api/v1/runs/{id}/summary", get(read::summary))
        .route("/api/v1/runs/{id}/metrics", get(read::metrics))
        .route("/api/v1/runs/{id}/curves", get(read::run_curves))
        .route("/api/v1/runs/{id}/validations", get(read::validations))
        .route("/api/v1/runs/{id}/checkpoints", get(read::checkpoints))
        .route("/api/v1/runs/{id}/checkpoints/{name}", get(read::checkpoint).delete(files::delete))
        .route("/api/v1/runs/{id}/checkpoints/{name}/files", get(files::list))
        .route("/api/v1/runs/{id}/checkpoints/{name}/files/{*path}", get(files::send))
        .route("/api/v1/runs/{id}/logs", get(read::run_logs))
        .route("/api/v1/runs/{id}/logs/follow", get(events::follow_logs))
        .route("/api/v1/curves", get(read::curves))
        .route("/api/v1/logs", get(read::search_logs))
        .route("/api/v1/models", get(read::models).post(write::create_model))
        .route("/api/v1/models/{name}", get(read::model).delete(write::delete_model))
        .route("/api/v1/models/{name}/versions", post(write::register))
        .route("/api/v1/models/{name}/versions/{version}", delete(write::delete_version))
        .route("/api/v1/models/{name}/aliases", post(write::alias))
        .route("/api/v1/tokens", post(write::create_token))
        .route("/api/v1/events", get(events::follow))
        .route("/metrics", get(figures::figures))
        .with_state(api.clone());
    Router::new()
        .merge(guarded(api, read))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/api/openapi.json", get(|| async { axum::Json(openapi::document()) }))
        .fallback(reply::no_such_route)
}

/// Puts routes behind the login, and bounds what they are sent.
pub fn guarded(api: &Api, routes: Router) -> Router {
    let guard = from_fn_with_state(Arc::clone(&api.guard), access::check);
    routes.layer(guard).layer(DefaultBodyLimit::max(BODY))
}
