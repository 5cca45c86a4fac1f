//! No scheduler: all trials go to the end.

use std::collections::BTreeSet;

use super::{Decision, Scheduler};
use crate::{Ending, TrialId};

/// All trials go to the end.
#[derive(Clone, Debug)]
pub(crate) struct FlatScheduler {
    length: u64,
    trials: TrialCount,
}

/// How many trials there may be, and how many at a time.
#[derive(Clone, Debug)]
pub(crate) struct TrialCount {
    /// Trials in all.
    pub(crate) most: u64,
    /// Trials at a time; 0: no bound.
    pub(crate) concurrent: u64,
    /// Whether a trial whose hyperparameters are invalid makes room for another one.
    pub(crate) replaces_invalid: bool,
    created: u64,
    invalid: BTreeSet<TrialId>,
}

impl TrialCount {
    pub(crate) fn new(most: u64, concurrent: u64, replaces_invalid: bool) -> Self {
        Self { most, concurrent, replaces_invalid, created: 0, invalid: BTreeSet::new() }
    }

    /// How many to begin with.
    pub(crate) fn first(&self) -> u64 {
        match self.concurrent {
            0 => self.most,
            concurrent => concurrent.min(self.most),
        }
    }

    pub(crate) fn created(&mut self) {
        self.created += 1;
    }

    pub(crate) fn invalid(&mut self, trial: TrialId) {
        if self.replaces_invalid {
            self.invalid.insert(trial);
        }
    }

    /// Whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.created - (self.invalid.len() as u64) < self.most
    }

    /// A verdict for the room that there is.
    pub(crate) fn next(&self, bracket: usize) -> Option<Decision> {
        self.has_room().then_some(Decision::New { bracket })
    }
}

impl FlatScheduler {
    pub(crate) fn new(length: u64, trials: TrialCount) -> Self {
        Self { length, trials }
    }
}

impl Scheduler for FlatScheduler {
    fn begin(&mut self) -> Vec<usize> {
        vec![0; self.trials.first() as usize]
    }

    fn first_length(&self, _bracket: usize) -> u64 {
        self.length
    }

    fn created(&mut self, _trial: TrialId, _bracket: usize) {
        self.trials.created();
    }

    fn report(&mut self, trial: TrialId, length: u64, _score: f64) -> Vec<Decision> {
        if length < self.length {
            return Vec::new();
        }
        let stop = Decision::Stop { trial, reason: full_length(self.length) };
        std::iter::once(stop).chain(self.trials.next(0)).collect()
    }

    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        if how == Ending::Invalid {
            self.trials.invalid(trial);
        }
        self.trials.next(0).into_iter().collect()
    }
}

/// Why a trial ends that nobody stopped.
pub(crate) fn full_length(length: u64) -> String {
    format!("trained to its full length, {length}")
}
