//! How noisy trials' curves are: by how much those differ that keep changing places.

use std::collections::HashMap;

use crate::TrialId;

/// So many neighbours on either side are compared with a trial: whoever changes places is near.
pub(super) const NEIGHBOURS: usize = 16;
/// The part of the differences that the estimate covers.
const COVERED: f64 = 0.9;

/// What all trials measured, and which differences among them mean nothing (<https://arxiv.org/abs/2207.06940>,
/// section 4.2): two trials that were in one order, then in the other, and then in the first again are as good as each
/// other, so that a difference like theirs is noise.
#[derive(Clone, Debug, Default)]
pub(super) struct RankingNoise {
    /// Lengths and scores of each trial, as they came.
    curves: HashMap<TrialId, Vec<(u64, f64)>>,
    /// Differences at the top rung, in order.
    differences: Vec<f64>,
    /// What was known before the top rung was raised.
    before: f64,
}

impl RankingNoise {
    /// Less than this is no difference.
    pub(super) fn level(&self) -> f64 {
        let Some(last) = self.differences.len().checked_sub(1) else { return self.before };
        let place = COVERED * last as f64;
        let (low, part) = (place.floor() as usize, place.fract());
        let high = (low + 1).min(last);
        self.differences[low] + part * (self.differences[high] - self.differences[low])
    }

    /// A trial was measured.
    pub(super) fn measured(&mut self, trial: TrialId, length: u64, score: f64) {
        self.curves.entry(trial).or_default().push((length, score));
    }

    /// What a trial measured at a length.
    pub(super) fn score_at(&self, trial: TrialId, length: u64) -> Option<f64> {
        let curve = self.curves.get(&trial)?;
        curve.iter().rev().find(|(at, _)| *at == length).map(|(_, score)| *score)
    }

    /// A trial has come to the top rung, where these are near it.
    pub(super) fn arrived(&mut self, trial: TrialId, near: &[TrialId]) {
        for other in near.iter().filter(|other| **other != trial) {
            let (Some(a), Some(b)) = (self.curves.get(&trial), self.curves.get(other)) else {
                continue;
            };
            if let Some(difference) = swapped_back(a, b) {
                let place = self.differences.partition_point(|known| *known < difference);
                self.differences.insert(place, difference);
            }
        }
    }

    /// The top rung is another one.
    pub(super) fn raised(&mut self) {
        self.before = self.level();
        self.differences.clear();
    }
}

/// How far two trials are apart where both were measured last, if they changed places and back again on the way.
fn swapped_back(a: &[(u64, f64)], b: &[(u64, f64)]) -> Option<f64> {
    let at = |length: u64| b.iter().rev().find(|(other, _)| *other == length).map(|(_, s)| *s);
    let mut last: Option<(bool, f64)> = None;
    let mut was_opposite = false;
    for (length, score) in a.iter().rev() {
        let Some(other) = at(*length) else { continue };
        let is_less = *score < other;
        match last {
            None => last = Some((is_less, (score - other).abs())),
            Some((now, _)) if is_less != now => was_opposite = true,
            Some((_, difference)) if was_opposite => {
                return Some(difference).filter(|difference| difference.is_finite());
            }
            Some(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_change_places_and_back_are_noisy() {
        let check = |a: &[f64], b: &[f64], expected| {
            let curve = |scores: &[f64]| -> Vec<(u64, f64)> {
                scores.iter().enumerate().map(|(at, score)| (at as u64, *score)).collect()
            };
            assert_eq!(swapped_back(&curve(a), &curve(b)), expected, "{a:?} {b:?}");
        };
        check(&[1.0, 3.0, 1.0], &[2.0, 2.0, 1.5], Some(0.5));
        check(&[1.0, 3.0], &[2.0, 2.0, 9.0], None);
        check(&[1.0, 1.0, 1.0], &[2.0, 2.0, 2.0], None);
        check(&[1.0, 3.0, 3.0], &[2.0, 2.0, 2.0], None);
    }

    #[test]
    fn the_level_covers_nine_of_ten_and_outlives_a_raise() {
        let mut noise = RankingNoise::default();
        assert_eq!(noise.level(), 0.0);
        let trials: Vec<TrialId> = (1..=3).map(TrialId).collect();
        for (length, scores) in
            [[1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 1.5, 3.0]].iter().enumerate()
        {
            for (trial, score) in trials.iter().zip(scores) {
                noise.measured(*trial, length as u64, *score);
            }
        }
        noise.arrived(trials[1], &trials);
        assert_eq!(noise.level(), 0.5);
        noise.raised();
        assert_eq!(noise.level(), 0.5);
        assert_eq!(noise.score_at(trials[0], 1), Some(2.0));
    }
}
