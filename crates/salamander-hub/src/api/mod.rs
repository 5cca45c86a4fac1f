//! The API: what a hub answers over HTTP. Handlers only parse, ask the store on a thread for that, and answer.
//!
//! # Layout
//! - [`router`]: all routes, to which others may add theirs; `reply`: errors, ETags, parameters
//! - `openapi`: the API's own description; `figures`: for Prometheus; `files`: of checkpoints
//! - `read`: everything that is looked at, `look`: what such routes have in common; `events`: what is followed
//! - `write`: what is changed; `access`: by whom, `attempts`: who only guesses, `audit`: who did what
//! - `upkeep`: what goes, budgets, webhooks; `remote`: runs of other machines; `live`: what is being done right now
//! - `pipelines`: those that are run beside the runs

mod access;
mod attempts;
mod audit;
mod curve_bytes;
mod events;
mod figures;
mod files;
mod live;
mod look;
mod openapi;
mod pipelines;
mod read;
mod remote;
mod reply;
mod upkeep;
mod write;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use tokio::sync::Semaphore;

use crate::create::Programs;
use crate::hub::Hub;
pub use access::{Access, Guard, PeerAddress};
pub use files::CheckpointFile;
use look::look;
pub use read::RunCurves;
pub use upkeep::{Lineage, SourceCheckpoint, Webhooks};

/// The largest body of a request: experiment files are far smaller.
const BODY: usize = 2 << 20;
/// The largest file that another machine sends as a whole, and some more.
const FILE: usize = 17 << 20;
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
    /// Slots of this machine; none: nothing is started here.
    pub slots: Option<u32>,
    streams: Arc<Semaphore>,
    /// A number of its own, so that no answer is mistaken for that of a hub that was here before.
    life: u64,
}

impl Api {
    /// For a hub.
    pub fn new(hub: Hub, guard: Guard, programs: Arc<Programs>) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        // The keys of such a state are random.
        let life = RandomState::new().hash_one(std::process::id());
        Self { hub, guard: Arc::new(guard), programs, slots: None, streams, life }
    }

    /// For a hub that starts experiments in so many slots.
    #[must_use]
    pub fn with_slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }
}

/// All routes of the API. More may be merged into it: `guarded` puts them behind the same login.
pub fn router(api: &Api) -> Router {
    let read = Router::new()
        .route("/api/v1/experiments", look(read::experiments).post(write::create))
        .route(
            "/api/v1/experiments/{id}",
            look(read::experiment).patch(write::change_experiment).delete(write::delete_experiment),
        )
        .route("/api/v1/experiments/{id}/{action}", post(write::act))
        .route("/api/v1/experiments/{id}/gc", post(upkeep::collect))
        .route("/api/v1/experiments/{id}/lineage", get(upkeep::lineage))
        .route("/api/v1/experiments/{id}/config", look(read::config))
        .route("/api/v1/experiments/{id}/checkpoints", look(read::experiment_checkpoints))
        .route("/api/v1/experiments/{id}/logs", look(read::experiment_logs))
        .route("/api/v1/runs", look(read::runs))
        .route("/api/v1/runs/{id}", look(read::run))
        .route("/api/v1/runs/{id}/kill", post(upkeep::kill_run))
        .route("/api/v1/runs/{id}/scale", post(live::scale))
        .route("/api/v1/runs/{id}/members", get(live::members))
        .route("/api/v1/runs/{id}/profile", get(live::profile))
        .route("/api/v1/cluster", get(live::cluster))
        .route("/api/v1/pipelines", get(pipelines::list))
        .route("/api/v1/pipelines/{name}", get(pipelines::one))
        .route("/api/v1/experiments/{id}/usage", get(upkeep::usage).put(upkeep::allow))
        .route("/api/v1/remote-runs", post(remote::begin))
        .route(
            "/api/v1/remote-runs/{uid}/files",
            put(remote::write).layer(DefaultBodyLimit::max(FILE)),
        )
        .route("/api/v1/remote-runs/{uid}/alive", post(remote::hear))
        .route("/api/v1/webhooks", get(upkeep::webhooks).post(upkeep::add_webhook))
        .route("/api/v1/webhooks/{id}", delete(upkeep::remove_webhook))
        .route("/api/v1/runs/{id}/summary", look(read::summary))
        .route("/api/v1/runs/{id}/metrics", look(read::metrics))
        .route("/api/v1/metric-names", look(read::metric_names))
        .route("/api/v1/runs/{id}/curves", look(read::run_curves))
        .route("/api/v1/runs/{id}/validations", look(read::validations))
        .route("/api/v1/runs/{id}/checkpoints", look(read::checkpoints))
        .route("/api/v1/runs/{id}/checkpoints/{name}", look(read::checkpoint).delete(files::delete))
        .route("/api/v1/runs/{id}/checkpoints/{name}/files", get(files::list))
        .route("/api/v1/runs/{id}/checkpoints/{name}/files/{*path}", get(files::send))
        .route("/api/v1/runs/{id}/logs", look(read::run_logs))
        .route("/api/v1/runs/{id}/logs/follow", get(events::follow_logs))
        .route("/api/v1/curves", look(read::curves))
        .route("/api/v1/curves/binary", get(curve_bytes::curves))
        .route("/api/v1/logs", look(read::search_logs))
        .route("/api/v1/models", look(read::models).post(write::create_model))
        .route(
            "/api/v1/models/{name}",
            look(read::model).patch(write::move_model).delete(write::delete_model),
        )
        .route("/api/v1/models/{name}/versions", post(write::register))
        .route("/api/v1/models/{name}/versions/{version}", delete(write::delete_version))
        .route("/api/v1/models/{name}/aliases", post(write::alias))
        .route("/api/v1/tokens", post(write::create_token))
        .route("/api/v1/audit", get(audit::audit))
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
