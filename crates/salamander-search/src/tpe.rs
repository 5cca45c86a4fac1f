//! The tree-structured Parzen estimator (<https://arxiv.org/abs/2304.11127>): draws where good trials are dense and bad
//! ones are not. All hyperparameters together (multivariate), and trials under way count as bad (constant liar).

use salamander_core::seed::{Rng, derive};

use crate::machine::TrialId;
use crate::space::{BELOW_ONE, Distribution, Space, SpacePoint};

/// Points that are drawn, of which the most promising is taken.
const CANDIDATES: usize = 24;
/// Older trials count less than so many newest ones.
const FRESH: usize = 25;

/// A trial that can be learned from.
pub(crate) struct Observation<'a> {
    pub(crate) point: &'a SpacePoint,
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
        let axes: Vec<(usize, &Distribution)> =
            self.space.drawn().map(|(index, _, distribution)| (index, distribution)).collect();
        if (scored as u64) < self.startup.max(2) || axes.is_empty() {
            return (random, "drawn at random, to begin with");
        }
        let (good, bad) = self.split(observations);
        let good = Density::new(&axes, &good);
        let bad = Density::new(&axes, &bad);
        let mut rng = Rng::new(derive(seed, &[trial.0, 0x7470_6531]));
        let mut best: Option<(f64, SpacePoint)> = None;
        for _ in 0..CANDIDATES {
            let mut point = random.clone();
            good.draw(&mut point, &mut rng);
            let active = self.space.active(&point);
            let gain = good.log_density(&point, &active) - bad.log_density(&point, &active);
            if best.as_ref().is_none_or(|(most, _)| gain > *most) {
                best = Some((gain, point));
            }
        }
        let point = best.map_or(random, |(_, point)| point);
        (point, "drawn near the best trials")
    }

    /// The best trials and the others, each in the order of their making. Those that went furthest come first, as their
    /// scores can be trusted most.
    fn split<'a>(&self, observations: &'a [Observation<'a>]) -> (Vec<Kernel>, Vec<Kernel>) {
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
        let kernels = |good: bool| {
            let chosen = observations.iter().zip(&is_good).filter(|(_, is)| **is == good);
            chosen
                .map(|(seen, _)| (seen.point.clone(), self.space.active(seen.point)))
                .collect::<Vec<Kernel>>()
        };
        (kernels(true), kernels(false))
    }
}

/// A point and which of its hyperparameters are there.
type Kernel = (SpacePoint, Vec<bool>);

/// A mixture of products of kernels, one around each point and a flat one.
struct Density<'a> {
    axes: &'a [(usize, &'a Distribution)],
    /// By kernel, then axis; the flat one last.
    kernels: Vec<Vec<Axis>>,
    /// Their shares, which add up to 1.
    weights: Vec<f64>,
}

/// A kernel along one axis.
#[derive(Clone, Debug)]
enum Axis {
    /// All values are as likely.
    Flat,
    /// A bell curve within `[0, 1)`.
    Bell { centre: f64, width: f64, mass: f64 },
    /// One value of a list, and all others as likely as each other.
    Choice { index: usize, own: f64, other: f64 },
}

impl<'a> Density<'a> {
    fn new(axes: &'a [(usize, &'a Distribution)], points: &[Kernel]) -> Self {
        let (count, dims) = (points.len() as f64, axes.len() as f64);
        // Scott's rule on the unit cube; never narrower than a hundredth of it.
        let width = 0.2 * libm::pow(count.max(1.0), -1.0 / (dims + 4.0));
        let width = width.max(1.0 / (1.0 + count).min(100.0)).min(1.0);
        let axis = |(point, active): &Kernel, index: usize, distribution: &Distribution| {
            let Some(place) = point[index].filter(|_| active[index]) else { return Axis::Flat };
            match (distribution.index(place), distribution.choices()) {
                (Some(chosen), Some(choices)) => {
                    let prior = 1.0 / (count + 1.0);
                    let sum = 1.0 + prior * choices as f64;
                    Axis::Choice { index: chosen, own: (1.0 + prior) / sum, other: prior / sum }
                }
                _ => {
                    let centre = match distribution.cell(place) {
                        Some((low, high)) => (low + high) / 2.0,
                        None => place,
                    };
                    let mass = normal_between(-centre / width, (1.0 - centre) / width);
                    Axis::Bell { centre, width, mass }
                }
            }
        };
        let kernel = |point| axes.iter().map(|(index, dist)| axis(point, *index, dist)).collect();
        let mut kernels: Vec<Vec<Axis>> = points.iter().map(kernel).collect();
        kernels.push(vec![Axis::Flat; axes.len()]);
        let mut weights = weights(points.len());
        weights.push(1.0);
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        Self { axes, kernels, weights }
    }

    /// Draws a point.
    fn draw(&self, point: &mut SpacePoint, rng: &mut Rng) {
        let mut left = rng.uniform();
        let chosen = self.weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let kernel = &self.kernels[chosen.unwrap_or(self.kernels.len() - 1)];
        for ((index, distribution), axis) in self.axes.iter().zip(kernel) {
            point[*index] = Some(match axis {
                Axis::Flat => rng.uniform(),
                Axis::Bell { centre, width, .. } => bell(*centre, *width, rng),
                Axis::Choice { index, own, .. } => {
                    let choices = distribution.choices().unwrap_or(1);
                    let chosen = match rng.uniform() < *own {
                        true => *index,
                        false => {
                            let other = rng.below(choices.max(2) as u64 - 1) as usize;
                            if other >= *index { (other + 1).min(choices - 1) } else { other }
                        }
                    };
                    (chosen as f64 + 0.5) / choices as f64
                }
            });
        }
    }

    /// The logarithm of the density at a point, over the hyperparameters that are there.
    fn log_density(&self, point: &SpacePoint, active: &[bool]) -> f64 {
        let here: Vec<Option<AxisPlace>> = self
            .axes
            .iter()
            .map(|(index, distribution)| {
                let place = point[*index].filter(|_| active[*index])?;
                let chosen = distribution.index(place);
                let cell = distribution.cell(place);
                Some(AxisPlace {
                    place,
                    chosen,
                    cell,
                    choices: distribution.choices().unwrap_or(1),
                })
            })
            .collect();
        let of_kernel = |kernel: &Vec<Axis>| -> f64 {
            let pairs = kernel.iter().zip(&here);
            pairs.filter_map(|(axis, here)| here.as_ref().map(|here| axis.log_density(here))).sum()
        };
        let logs: Vec<f64> = self
            .kernels
            .iter()
            .zip(&self.weights)
            .map(|(kernel, weight)| libm::log(*weight) + of_kernel(kernel))
            .collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + libm::log(logs.iter().map(|log| libm::exp(log - most)).sum())
    }
}

/// A place along one axis, and what is the same value there.
struct AxisPlace {
    place: f64,
    chosen: Option<usize>,
    cell: Option<(f64, f64)>,
    choices: usize,
}

impl Axis {
    fn log_density(&self, here: &AxisPlace) -> f64 {
        let density = match (self, here.cell) {
            (Axis::Choice { index, own, other }, _) => {
                if here.chosen == Some(*index) {
                    *own
                } else {
                    *other
                }
            }
            (Axis::Flat, _) if here.chosen.is_some() => 1.0 / here.choices as f64,
            (Axis::Flat, Some((low, high))) => high - low,
            (Axis::Flat, None) => 1.0,
            (Axis::Bell { centre, width, mass }, Some((low, high))) => {
                normal_between((low - centre) / width, (high - centre) / width) / mass
            }
            (Axis::Bell { centre, width, mass }, None) => {
                let away = (here.place - centre) / width;
                let scale = width * libm::sqrt(std::f64::consts::TAU);
                libm::exp(-away * away / 2.0) / (scale * mass)
            }
        };
        libm::log(density.max(1e-300))
    }
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

/// A draw from a bell curve within `[0, 1)`.
fn bell(centre: f64, width: f64, rng: &mut Rng) -> f64 {
    for _ in 0..64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.uniform()));
        let value = centre + width * radius * libm::cos(std::f64::consts::TAU * rng.uniform());
        if (0.0..1.0).contains(&value) {
            return value;
        }
    }
    centre.clamp(0.0, BELOW_ONE)
}

/// The mass of the standard normal distribution between two places.
fn normal_between(low: f64, high: f64) -> f64 {
    let root = std::f64::consts::SQRT_2;
    // From the side on which both are, so that the tails do not vanish.
    match low > 0.0 {
        true => 0.5 * (libm::erfc(low / root) - libm::erfc(high / root)),
        false => 0.5 * (libm::erfc(-high / root) - libm::erfc(-low / root)),
    }
}
