//! The tree-structured Parzen estimator (<https://arxiv.org/abs/2304.11127>): draws where good trials are dense and bad
//! ones are not. All hyperparameters together (multivariate), and trials under way count as bad (constant liar). What
//! was tried already is not tried again while there is something else.

use salamander_core::seed::{Rng, derive};

use crate::density::{AxisModel, Density};
use crate::machine::TrialId;
use crate::space::{LocatedPoint, Space, SpacePoint};

/// Points that are drawn, of which the most promising is taken.
const CANDIDATES: usize = 24;
/// How often that many are drawn until one of them was not tried before.
const ROUNDS: usize = 8;
/// The most trials that count as good, and how many of the newest count in full.
const FRESH: usize = 25;

/// A trial that can be learned from.
pub(crate) struct Observation<'a> {
    pub(crate) at: &'a LocatedPoint,
    /// How far it has come.
    pub(crate) length: u64,
    /// Less is better; `None`: nothing is known, or nothing good.
    pub(crate) score: Option<f64>,
}

/// The estimator.
pub(crate) struct Tpe<'a> {
    pub(crate) space: &'a Space,
    pub(crate) startup: u64,
}

impl Tpe<'_> {
    /// The point of a trial, and how it was found.
    pub(crate) fn propose(
        &self,
        seed: u64,
        trial: TrialId,
        observations: &[Observation<'_>],
    ) -> (SpacePoint, &'static str) {
        let scored = observations.iter().filter(|seen| seen.score.is_some()).count();
        let random = self.space.random(seed, trial.0);
        let axes: Vec<(usize, AxisModel)> = self
            .space
            .drawn()
            .map(|(index, _, distribution)| (index, AxisModel::new(distribution)))
            .collect();
        if (scored as u64) < self.startup.max(2) || axes.is_empty() {
            return (random, "drawn at random, to begin with");
        }
        let (good, bad) = split(observations);
        let models: Vec<&AxisModel> = axes.iter().map(|(_, model)| model).collect();
        let good = Density::new(&models, &good, &weights(good.len()));
        let bad = Density::new(&models, &bad, &weights(bad.len()));
        let mut rng = Rng::new(derive(seed, &[trial.0, 0x7470_6531]));
        let mut best: Option<(bool, f64, SpacePoint)> = None;
        for _ in 0..ROUNDS {
            for _ in 0..CANDIDATES {
                let mut point = random.clone();
                for ((index, _), place) in axes.iter().zip(good.draw(&mut rng)) {
                    point[*index] = Some(place);
                }
                let at = self.space.locate(&point);
                let is_new = !observations.iter().any(|seen| *seen.at == at);
                let gain = good.log_density(&at) - bad.log_density(&at);
                let is_better =
                    best.as_ref().is_none_or(|(new, most, _)| (is_new, gain) > (*new, *most));
                if is_better {
                    best = Some((is_new, gain, point));
                }
            }
            if best.as_ref().is_some_and(|(is_new, ..)| *is_new) {
                break;
            }
        }
        let point = best.map_or(random, |(_, _, point)| point);
        (point, "drawn near the best trials")
    }
}

/// The best trials and the others, each in the order of their making. Those that went furthest come first, as their
/// scores can be trusted most.
fn split<'a>(observations: &[Observation<'a>]) -> (Vec<&'a LocatedPoint>, Vec<&'a LocatedPoint>) {
    let mut order: Vec<usize> =
        (0..observations.len()).filter(|index| observations[*index].score.is_some()).collect();
    let scored = order.len();
    order.sort_by(|a, b| {
        let (a, b) = (&observations[*a], &observations[*b]);
        let score = |seen: &Observation<'_>| seen.score.unwrap_or(f64::INFINITY);
        b.length.cmp(&a.length).then(score(a).total_cmp(&score(b)))
    });
    let take = scored.div_ceil(10).min(FRESH);
    let mut is_good = vec![false; observations.len()];
    order.iter().take(take).for_each(|index| is_good[*index] = true);
    let chosen = |good: bool| {
        let chosen = observations.iter().zip(&is_good).filter(|(_, is)| **is == good);
        chosen.map(|(seen, _)| seen.at).collect()
    };
    (chosen(true), chosen(false))
}

/// Old trials count less: a ramp up to the newest, which count in full.
fn weights(count: usize) -> Vec<f64> {
    let old = count.saturating_sub(FRESH);
    let ramp = |index: usize| match (index < old, old) {
        (false, _) => 1.0,
        (true, 1) => 1.0 / count as f64,
        (true, _) => {
            let first = 1.0 / count as f64;
            first + (1.0 - first) * index as f64 / (old - 1) as f64
        }
    };
    (0..count).map(ramp).collect()
}
