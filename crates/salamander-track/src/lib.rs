//! What the tools that people have are told of a run: TensorBoard's event files, MLflow, a collector of traces.
//!
//! Nothing here is in the way of a step. A run appends its steps and validations to `metrics.jsonl` in its folder
//! whether anybody looks or not; a sink is a thread that reads that file, as far as it has come, and passes on what is
//! new. So the file is the spool: a server that is away, or a process that is killed, costs no point, and a run that
//! was trained without any of this can be told of afterwards.
//!
//! # Layout
//! - [`Tracker`]: the sinks of a run while it goes on; [`Sinks`]: which ones
//! - [`point`], [`follow`]: a line of the metrics file; the file, followed, and begun again when it was cut
//! - [`tensorboard`]: event files: framing, messages, hyperparameters, pictures
//! - [`mlflow`]: the REST calls, what was told so far, and the sender
//! - [`hub`]: the files of a run, for a hub that does not see its folder
//! - [`traces`]: spans of a run and its epochs for a collector of OpenTelemetry; `http`: what servers are asked with
//! - [`about`]: what else the folder tells of a run

pub mod about;
pub mod follow;
mod http;
pub mod hub;
pub mod mlflow;
pub mod point;
pub mod tensorboard;
pub mod traces;
mod tracker;

pub use tracker::{Patience, Sinks, Tracker};
