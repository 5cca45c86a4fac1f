//! The hub: experiments, trials, checkpoints and models of a team.
//!
//! The folders of runs stay the truth, with a journal of what people said beside them; the store is made from both and
//! can be made again. The queue starts the same program that a person would, with the same command.
//!
//! ```no_run
//! use salamander_hub::HubClient;
//! use salamander_hub::store::page::ListQuery;
//!
//! # fn main() -> Result<(), salamander_hub::Error> {
//! let hub = HubClient::new("http://127.0.0.1:7070", None)?;
//! let best = ListQuery {
//!     sort: Some("-metric:validation/accuracy".to_string()),
//!     limit: Some(5),
//!     ..ListQuery::default()
//! };
//! for run in hub.runs(&best)?.items {
//!     println!("{} is {} after {} steps", run.id, run.state, run.steps);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! - [`Hub`]: the store, the journal, and all that may be said; [`operation`]: what that is
//! - [`store`]: SQLite, or Postgres; [`ingest`]: fills it from folders
//! - [`queue`]: starts experiments; [`CreateRequest`]: what a new one is made from
//! - [`gc`]: checkpoints that nobody needs; `source`: those that experiments start from
//! - [`remote`]: runs of other machines
//! - [`mlflow`]: MLflow's REST API, for its clients
//! - [`api`]: REST and server-sent events on it; [`server`]: listening, TLS, who may do what
//! - [`Daemon`]: all of them together; [`HubClient`]: the API from Rust
//! - `webhooks`: tells others of ends; `api::upkeep`: logs that have stayed long enough
//! - [`page`]: the dashboard; [`ui`]: the dashboard alone

pub mod api;
mod client;
mod create;
mod daemon;
mod error;
pub mod gc;
mod hub;
pub mod ids;
pub mod ingest;
mod journal;
pub mod log_line;
pub mod mlflow;
pub mod operation;
pub mod page;
pub mod queue;
pub mod remote;
pub mod server;
mod source;
pub mod store;
pub mod ui;
mod webhooks;

pub use client::HubClient;
pub use create::{CreateRequest, Programs};
pub use daemon::{Daemon, DaemonOptions};
pub use error::Error;
pub use hub::{Hub, OWN_FOLDER, Registration, Speaker, now};
pub use ids::{ExperimentId, RunId};
pub use store::{Store, StoreAccess, StoreUrl};
