//! The hub: experiments, trials, checkpoints and models of a team.
//!
//! The folders of runs stay the truth, with a journal of what people said beside them; the store is made from both and
//! can be made again. The queue starts the same program that a person would, with the same command.
//!
//! # Layout
//! - [`Hub`]: the store, the journal, and all that may be said; [`operation`]: what that is
//! - [`store`]: SQLite, or Postgres; [`ingest`]: fills it from folders
//! - [`queue`]: starts experiments; [`CreateRequest`]: what a new one is made from
//! - [`mlflow`]: MLflow's REST API, for its clients
//! - [`api`]: REST and server-sent events on it; [`server`]: listening, TLS, who may do what
//! - [`Daemon`]: all of them together; [`Client`]: the API from Rust
//! - [`page`]: the dashboard; [`ui`]: the dashboard alone

pub mod api;
mod client;
mod create;
mod daemon;
mod error;
mod hub;
pub mod ids;
pub mod ingest;
mod journal;
pub mod log_line;
pub mod mlflow;
pub mod operation;
pub mod page;
pub mod queue;
pub mod server;
pub mod store;
pub mod ui;

pub use client::Client;
pub use create::{CreateRequest, Programs};
pub use daemon::{Daemon, DaemonOptions};
pub use error::Error;
pub use hub::{Hub, OWN_FOLDER, Speaker, now};
pub use ids::{ExperimentId, RunId};
pub use store::{Store, StoreAccess, StoreUrl};
