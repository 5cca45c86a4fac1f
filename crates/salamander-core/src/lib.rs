//! The rules of training without the machinery: everything here is plain data and pure functions,
//! so that it builds in seconds and can be simulated, replayed and tested without I/O.
//!
//! # Layout
//! - [`yaml`]: a YAML tree that remembers lines; typed values from it
//! - [`experiment`]: the experiment file, its defaults and its checks
//! - [`hparams`]: hyperparameters of a model
//! - [`order`], [`plan`]: which record comes when, and how an epoch is cut; [`ranges`]: sets of numbers
//! - [`layout`]: the names of a run's files
//! - [`ledger`]: which records were applied
//! - [`loss_scale`]: scaling the loss for small types, and steps that are skipped for it
//! - [`optimizer`], [`schedule`]: optimizers and learning rates as data, with their formulas
//! - [`elastic`]: membership of a distributed run, as pure state machines
//! - [`asynchronous`]: training on parameter servers, as pure state machines
//! - [`metrics`], [`watch`]: metrics that can be merged; best value and early stop
//! - [`course`]: what follows a step, for every strategy; [`progress`]: where training stands
//! - [`report`]: what a run tells about itself; [`callback`]: who is told; [`note`]: what people are told besides
//! - [`status`]: where a run stands
//! - [`environment`]: the environment variables that programs read
//! - [`seed`]: random streams by name
//! - [`tree`]: the order in which the parts of a step are added up
//! - [`words`]: numbers in sentences

pub mod asynchronous;
pub mod callback;
pub mod course;
pub mod elastic;
pub mod environment;
pub mod experiment;
pub mod hparams;
pub mod layout;
pub mod ledger;
pub mod loss_scale;
pub mod metrics;
pub mod note;
pub mod optimizer;
pub mod order;
pub mod plan;
pub mod progress;
pub mod ranges;
pub mod report;
pub mod schedule;
pub mod seed;
pub mod status;
pub mod tree;
pub mod watch;
pub mod words;
pub mod yaml;
