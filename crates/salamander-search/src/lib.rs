//! Hyperparameter search as pure state machines: events in, actions with a reason out; no time, no files, no processes.
//!
//! A *searcher* proposes hyperparameters, a *scheduler* says how far each trial goes, and any pair that makes sense can
//! be combined. Everything is a function of the file, its seed and the order of reports.
//!
//! # Layout
//! - [`space`]: what hyperparameters may become
//! - [`Method`]: the searcher of a file, checked; `scheduler`: how far trials go
//! - `tpe`: draws near the best, by a `density`
//! - [`Search`]: the state machine
//! - [`SearchFile`]: an experiment file that is a search, and the experiments of its trials; [`AskedSearch`]: one that
//!   the command line asks for
//! - [`JournaledSearch`]: nothing follows from an event that is not kept; [`HeardEvent`]: a line of its journal
//! - [`importance`]: which hyperparameters mattered, by a `forest` of regression trees
//! - [`plan`], [`replay`]: what a search would do, without and with known results

mod asked;
mod density;
#[cfg(test)]
mod determined;
#[cfg(test)]
mod endings;
mod file;
mod forest;
mod importance;
mod journal;
mod journaled;
mod machine;
mod method;
mod plan;
mod replay;
mod scheduler;
pub mod space;
mod tpe;
mod trial;
#[cfg(test)]
mod vectors;

pub use asked::{AskedSearch, written};
pub use file::SearchFile;
pub use importance::{Importance, ImportanceError, importance};
pub use journal::HeardEvent;
pub use journaled::{EventLog, JournaledSearch};
pub use machine::{Ending, Instruction, Search, SearchEvent, TrialAction, TrialId};
pub use method::{Method, Proposals, SchedulerRule, units, with_units};
pub use plan::{PlannedTrial, plan};
pub use replay::{CurveError, KnownCurve, replay};
pub use scheduler::{Bracket, Divisor, MedianRule, PopulationRule};
pub use trial::{Trial, TrialState};
