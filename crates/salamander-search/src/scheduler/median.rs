//! The median rule (<https://research.google/pubs/pub46180/>): a trial stops whose best is worse than the median of the
//! others' averages at the same length.

use std::collections::BTreeMap;

use super::flat::{TrialCount, full_length};
use super::{Decision, Scheduler};
use crate::{Ending, TrialId};

/// When trials are looked at, and when they may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MedianRule {
    /// The whole length of a trial.
    pub length: u64,
    /// The length between two looks at a trial.
    pub interval: u64,
    /// No trial is stopped before.
    pub grace: u64,
    /// No trial is stopped before so many others came as far.
    pub min_samples: u64,
}

/// Stops what is below the median.
#[derive(Clone, Debug)]
pub(crate) struct Median {
    rule: MedianRule,
    trials: TrialCount,
    curves: BTreeMap<TrialId, Vec<CurvePoint>>,
}

/// A trial at one length: its best and the sum of what it measured up to there.
#[derive(Clone, Copy, Debug)]
struct CurvePoint {
    length: u64,
    best: f64,
    sum: f64,
}

impl Median {
    pub(crate) fn new(rule: MedianRule, trials: TrialCount) -> Self {
        Self { rule, trials, curves: BTreeMap::new() }
    }

    /// The median of the others' averages up to a length, and how many of them came so far.
    fn median(&self, trial: TrialId, length: u64) -> (Option<f64>, u64) {
        let others = self.curves.iter().filter(|(other, _)| **other != trial);
        let average = |curve: &Vec<CurvePoint>| {
            let up_to = curve.partition_point(|point| point.length <= length);
            let reached = curve.last().is_some_and(|last| last.length >= length);
            (reached && up_to > 0).then(|| curve[up_to - 1].sum / up_to as f64)
        };
        let mut averages: Vec<f64> = others.filter_map(|(_, curve)| average(curve)).collect();
        averages.sort_unstable_by(f64::total_cmp);
        let count = averages.len();
        let median = match (count, count % 2) {
            (0, _) => None,
            (_, 1) => Some(averages[count / 2]),
            _ => Some((averages[count / 2 - 1] + averages[count / 2]) / 2.0),
        };
        (median, count as u64)
    }
}

impl Scheduler for Median {
    fn begin(&mut self) -> Vec<usize> {
        vec![0; self.trials.first() as usize]
    }

    fn first_length(&self, _bracket: usize) -> u64 {
        self.rule.interval.min(self.rule.length)
    }

    fn created(&mut self, trial: TrialId, _bracket: usize) {
        self.trials.created();
        self.curves.insert(trial, Vec::new());
    }

    fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        let MedianRule { length: full, interval, grace, min_samples } = self.rule;
        let curve = self.curves.entry(trial).or_default();
        let before = curve.last().copied();
        let best = before.map_or(score, |before| before.best.min(score));
        let sum = before.map_or(0.0, |before| before.sum) + score;
        curve.push(CurvePoint { length, best, sum });
        let stop = match self.median(trial, length) {
            _ if length >= full => Some(full_length(full)),
            (Some(median), others) if length >= grace && others >= min_samples && best > median => {
                Some(format!("stopped at {length}: worse than the median of {others} others"))
            }
            _ => None,
        };
        match stop {
            Some(reason) => {
                let stop = Decision::Stop { trial, reason };
                std::iter::once(stop).chain(self.trials.next(0)).collect()
            }
            None => {
                let until = ((length / interval + 1) * interval).min(full);
                let reason = format!("not worse than the median at {length}");
                vec![Decision::Go { trial, until, reason }]
            }
        }
    }

    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        if how == Ending::Invalid {
            self.trials.invalid(trial);
            self.curves.remove(&trial);
        }
        self.trials.next(0).into_iter().collect()
    }
}
