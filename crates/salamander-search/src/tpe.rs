//! The tree-structured Parzen estimator (<https://arxiv.org/abs/2304.11127>): draws where good trials are dense and bad
//! ones are not. All hyperparameters together (multivariate), and trials under way of which nothing is known yet count
//! as bad (constant liar). What was tried already is not tried again while there is something else.
//!
//! Draws alone seldom hit what differs from a good trial in one value of many, and that is where the next better one
//! often is. So the neighbours of the best are weighed beside them, as SMAC searches around its best
//! (<https://arxiv.org/abs/2109.09831>).

use salamander_core::seed::{Rng, derive};

use crate::density::{AxisModel, Density};
use crate::machine::TrialId;
use crate::space::{LocatedPoint, Space, SpacePoint};

/// Points that are drawn, of which the most promising is taken.
const CANDIDATES: usize = 24;
/// How often that many are drawn until one of them was not tried before.
const ROUNDS: usize = 8;
/// So many of the best have their neighbours weighed.
const SEARCHED_AROUND: usize = 3;
/// The part of the trials that counts as good.
const GOOD: f64 = 0.15;
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
    /// What is drawn, with its place in a point.
    pub(crate) axes: &'a [(usize, AxisModel)],
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
        if (scored as u64) < self.startup.max(2) || self.axes.is_empty() {
            return (random, "drawn at random, to begin with");
        }
        let order = ranked(observations);
        let (good, bad) = split(observations, &order);
        let models: Vec<&AxisModel> = self.axes.iter().map(|(_, model)| model).collect();
        let good = Density::new(&models, &good, &weights(good.len()));
        let bad = Density::new(&models, &bad, &weights(bad.len()));
        let mut rng = Rng::new(derive(seed, &[trial.0, 0x7470_6531]));
        let mut best: Option<(bool, f64, SpacePoint)> = None;
        let best_seen = order.iter().take(SEARCHED_AROUND).map(|index| observations[*index].at);
        let mut near: Vec<SpacePoint> =
            best_seen.flat_map(|at| neighbours(&random, self.axes, at)).collect();
        for _ in 0..ROUNDS {
            let drawn = |rng: &mut Rng| {
                let mut point = random.clone();
                for ((index, _), place) in self.axes.iter().zip(good.draw(rng)) {
                    point[*index] = Some(place);
                }
                point
            };
            let points: Vec<SpacePoint> = (0..CANDIDATES).map(|_| drawn(&mut rng)).collect();
            for point in points.into_iter().chain(std::mem::take(&mut near)) {
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

/// What differs from a point in one value.
fn neighbours(
    random: &SpacePoint,
    axes: &[(usize, AxisModel)],
    at: &LocatedPoint,
) -> Vec<SpacePoint> {
    let mut point = random.clone();
    for ((index, _), place) in axes.iter().zip(at) {
        // What is not there may come into being by the change: then it is drawn.
        point[*index] = place.or(point[*index]);
    }
    let mut all = Vec::new();
    for ((index, model), place) in axes.iter().zip(at) {
        for beside in place.map_or(Vec::new(), |place| model.neighbours(place)) {
            let mut changed = point.clone();
            changed[*index] = Some(beside);
            all.push(changed);
        }
    }
    all
}

/// The trials of which something is known, the best first. Those that went furthest come before others, as their scores
/// can be trusted most.
fn ranked(observations: &[Observation<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..observations.len()).filter(|index| observations[*index].score.is_some()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&observations[*a], &observations[*b]);
        let score = |seen: &Observation<'_>| seen.score.unwrap_or(f64::INFINITY);
        b.length.cmp(&a.length).then(score(a).total_cmp(&score(b)))
    });
    order
}

/// The best trials and the others, each in the order of their making.
fn split<'a>(
    observations: &[Observation<'a>],
    order: &[usize],
) -> (Vec<&'a LocatedPoint>, Vec<&'a LocatedPoint>) {
    let take = (libm::ceil(GOOD * order.len() as f64) as usize).min(FRESH);
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
