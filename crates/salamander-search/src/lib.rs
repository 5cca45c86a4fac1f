//! Hyperparameter search as pure state machines: events in, actions with a reason out; no time, no files, no processes.
//!
//! A *searcher* proposes hyperparameters, a *scheduler* says how far each trial goes, and any pair that makes sense can
//! be combined. Everything is a function of the file, its seed and the order of reports.
//!
//! # Layout
//! - [`space`]: what hyperparameters may become
//! - [`Method`]: the searcher of a file, checked; `scheduler`: how far trials go; `tpe`: draws near the best
//! - [`Search`]: the state machine
//! - [`SearchFile`]: an experiment file that is a search, and the experiments of its trials
//! - [`plan`], [`replay`]: what a search would do, without and with known results

mod file;
mod journal;
mod machine;
mod method;
mod plan;
mod replay;
mod scheduler;
pub mod space;
mod tpe;
#[cfg(test)]
mod vectors;

pub use file::SearchFile;
pub use machine::{Action, Ending, Event, Search, Trial, TrialId, TrialState, What};
pub use method::{Method, Proposals, Rule, units, with_units};
pub use plan::{PlannedTrial, plan};
pub use replay::{Curve, CurveError, replay};
pub use scheduler::{Bracket, Divisor, MedianRule, PopulationRule};
