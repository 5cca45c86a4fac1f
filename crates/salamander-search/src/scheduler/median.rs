//! The median rule (<https://research.google/pubs/pub46180/>): a trial stops whose best is worse than the median of the
//! others' averages at the same length.

use std::collections::BTreeMap;

use super::flat::{TrialCount, full_length};
use super::rung::Rung;
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
    /// For each length at which somebody was measured the averages of all who came so far: a trial is compared with a
    /// hundred thousand as fast as with a few.
    averages: BTreeMap<u64, Rung>,
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
        Self { rule, trials, curves: BTreeMap::new(), averages: BTreeMap::new() }
    }

    /// A trial has come to a length, and with it past others: from now on its average counts there. At the length
    /// itself it does not count before it was compared.
    fn passes(&mut self, trial: TrialId, length: u64) {
        if !self.averages.contains_key(&length) {
            let mut rung = Rung::new(length);
            let others = self.curves.iter().filter(|(other, _)| **other != trial);
            for (other, curve) in others {
                let came = curve.last().is_some_and(|last| last.length >= length);
                let up_to = curve.partition_point(|point| point.length <= length);
                if let Some(average) = average(&curve[..up_to]).filter(|_| came) {
                    rung.insert_after_equals(*other, average);
                }
            }
            self.averages.insert(length, rung);
        }
        let curve = self.curves.get(&trial).map_or(&[][..], Vec::as_slice);
        let (Some(before), Some(average)) = (curve.last(), average(curve)) else { return };
        // One that is measured twice at a length does not come to it again.
        for (_, rung) in self.averages.range_mut(before.length + 1..length.max(before.length + 1)) {
            rung.insert_after_equals(trial, average);
        }
    }

    /// The median of the others' averages up to a length, and how many of them came so far.
    fn median(&self, length: u64) -> (Option<f64>, u64) {
        let Some(averages) = self.averages.get(&length) else { return (None, 0) };
        let (count, at) = (averages.len(), |place: usize| averages.score_at(place));
        let median = match (count, count % 2) {
            (0, _) => None,
            (_, 1) => at(count / 2),
            _ => at(count / 2 - 1).zip(at(count / 2)).map(|(low, high)| (low + high) / 2.0),
        };
        (median, count as u64)
    }
}

/// What a curve was on average.
fn average(curve: &[CurvePoint]) -> Option<f64> {
    let average = curve.last()?.sum / curve.len() as f64;
    // Of two infinite ones with unlike signs.
    Some(if average.is_nan() { f64::INFINITY } else { average })
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
        self.passes(trial, length);
        let curve = self.curves.entry(trial).or_default();
        let before = curve.last().copied();
        let best = before.map_or(score, |before| before.best.min(score));
        let sum = before.map_or(0.0, |before| before.sum) + score;
        curve.push(CurvePoint { length, best, sum });
        let own = average(curve).unwrap_or(f64::INFINITY);
        let stop = match self.median(length) {
            _ if length >= full => Some(full_length(full)),
            (Some(median), others) if length >= grace && others >= min_samples && best > median => {
                Some(format!("stopped at {length}: worse than the median of {others} others"))
            }
            _ => None,
        };
        if let Some(averages) = self.averages.get_mut(&length) {
            averages.insert_after_equals(trial, own);
        }
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
            let curve = self.curves.remove(&trial).unwrap_or_default();
            let came = curve.last().map_or(0, |last| last.length);
            self.averages.range_mut(..=came).for_each(|(_, rung)| rung.remove(trial));
        }
        self.trials.next(0).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::seed::Rng;

    use super::*;

    /// The rule as its paper has it, worked out anew from all curves.
    fn plainly(curves: &BTreeMap<TrialId, Vec<(u64, f64)>>, trial: TrialId, at: u64) -> bool {
        let others = curves.iter().filter(|(other, _)| **other != trial);
        let mut averages: Vec<f64> = others
            .filter(|(_, curve)| curve.last().is_some_and(|last| last.0 >= at))
            .filter_map(|(_, curve)| {
                let up_to: Vec<f64> =
                    curve.iter().filter(|point| point.0 <= at).map(|point| point.1).collect();
                (!up_to.is_empty()).then(|| up_to.iter().sum::<f64>() / up_to.len() as f64)
            })
            .collect();
        averages.sort_by(f64::total_cmp);
        let (count, middle) = (averages.len(), averages.len() / 2);
        let best = curves[&trial].iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let median = |count: usize| match count % 2 {
            0 => (averages[middle - 1] + averages[middle]) / 2.0,
            _ => averages[middle],
        };
        count >= 3 && best > median(count)
    }

    #[test]
    fn trials_are_stopped_as_the_rule_says_at_whatever_lengths_they_are_measured() {
        let rule = MedianRule { length: 40, interval: 4, grace: 0, min_samples: 3 };
        let mut rng = Rng::new(11);
        let mut stopped = 0;
        for _ in 0..20 {
            let mut median = Median::new(rule, TrialCount::new(30, 0, true));
            let mut curves: BTreeMap<TrialId, Vec<(u64, f64)>> = BTreeMap::new();
            let mut running: Vec<TrialId> = (1..=30).map(TrialId).collect();
            running.iter().for_each(|trial| median.created(*trial, 0));
            while !running.is_empty() {
                let index = rng.below(running.len() as u64) as usize;
                let trial = running[index];
                let curve = curves.entry(trial).or_default();
                if rng.below(12) == 0 {
                    curves.remove(&trial);
                    median.ended(trial, Ending::Invalid);
                    running.remove(index);
                    continue;
                }
                let length = curve.last().map_or(0, |last| last.0) + 1 + rng.below(9);
                let score = rng.below(50) as f64 + trial.0 as f64;
                curve.push((length, score));
                let stops = plainly(&curves, trial, length);
                let verdicts = median.report(trial, length, score);
                let is_over = matches!(verdicts[0], Decision::Stop { .. });
                assert_eq!(is_over, stops || length >= 40, "{curves:?}");
                stopped += u32::from(stops && length < 40);
                if is_over {
                    running.remove(index);
                }
            }
        }
        assert!(stopped > 50, "{stopped}");
    }
}
