//! Schedulers: how far each trial goes.

mod brackets;
mod flat;
mod halving;
mod median;
mod noise;
mod pasha;
mod population;
mod rung;

use std::fmt::Debug;

use crate::{Ending, TrialId};

pub use brackets::Bracket;
pub(crate) use brackets::{Adaptive, Brackets, brackets, default_rungs};
pub(crate) use flat::{FlatScheduler, TrialCount};
pub(crate) use halving::rung_lengths;
pub(crate) use median::Median;
pub use median::MedianRule;
pub(crate) use pasha::Pasha;
pub(crate) use population::Population;
pub use population::PopulationRule;
pub use rung::Divisor;

/// What a scheduler wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The trial trains on to this length.
    Go { trial: TrialId, until: u64, reason: String },
    /// The trial waits with its checkpoint.
    Pause { trial: TrialId, reason: String },
    /// The trial is over.
    Stop { trial: TrialId, reason: String },
    /// The trial goes on as a copy of another, with other hyperparameters.
    Copy { trial: TrialId, from: TrialId, until: u64, reason: String },
    /// There is room for another trial of this bracket.
    New { bracket: usize },
}

/// How far each trial goes. Scores are so that less is better and nothing is not a number.
pub(crate) trait Scheduler: Debug + Send {
    /// The brackets of the first trials, one for each.
    fn begin(&mut self) -> Vec<usize>;
    /// The length at which a new trial of a bracket is looked at first.
    fn first_length(&self, bracket: usize) -> u64;
    /// A trial was made.
    fn created(&mut self, trial: TrialId, bracket: usize);
    /// A running trial was measured.
    fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision>;
    /// A trial ended without being told to.
    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision>;
    /// How much of the search is done, 0 to 1, where the scheduler knows better than the count of trials.
    fn progress(&self) -> Option<f64> {
        None
    }
}
