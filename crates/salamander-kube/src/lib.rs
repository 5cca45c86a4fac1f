//! A job on Kubernetes: the custom resource, the platform that runs workers as pods, and the operator.
//!
//! The same master leads a run here as on one machine. What is different is who starts processes: [`platform`] attaches
//! to the master as the supervisor of one machine does, and turns its orders into pods. [`operator`] only looks
//! after masters. **Architecture invariant**: nothing talks to a job from outside of its pods but through the
//! API server: the master's pod carries what is wanted of it and how far it came as annotations, so that
//! neither the operator nor a command needs the job's token.
//!
//! # Layout
//! - [`crd`]: the custom resource `TrainingJob`, its schema and rules
//! - [`job`]: a job as both ways of submitting see it; [`experiment`]: the experiment file that its pods read;
//!   [`secrets`]: what only they know
//! - [`contract`]: what operator and image must agree on
//! - [`names`], [`quantity`]: labels, names and exit codes; amounts of memory
//! - [`objects`]: from a job to Kubernetes' objects, as pure functions
//! - [`manifest`]: a job without the operator, as YAML; [`serving`]: models to be served, and [`flow`]: a flow to be
//!   run,
//!   as YAML
//! - [`platform`]: pods in the place of processes; [`progress`], [`milestones`]: what a master tells about itself
//! - [`operator`]: decides what a job needs, and does it
//! - [`client`]: submits, shows, scales, stops and deletes jobs from outside; `logs`: what their pods say;
//!   `object_api`, `pod_calls`: calls that all of these share
//! - [`health`]: the endpoints for probes and metrics; [`member_metrics`]: what workers and servers show there;
//!   [`error`]: what the API server says, made clear

pub mod client;
pub mod contract;
#[allow(unreachable_pub, reason = "the derive of schemas copies public types into functions")]
pub mod crd;
pub mod error;
pub mod experiment;
pub mod flow;
pub mod health;
pub mod job;
mod logs;
pub mod manifest;
pub mod member_metrics;
pub mod milestones;
pub mod names;
mod object_api;
pub mod objects;
pub mod operator;
pub mod platform;
mod pod_calls;
pub mod progress;
pub mod quantity;
pub mod secrets;
pub mod serving;

pub use crd::TrainingJob;
pub use error::Error;
