//! Learning-rate schedules as data: a pure function of how far training is, except on-plateau, whose
//! small state is part of the checkpoint.

use serde::{Deserialize, Serialize};

use crate::progress::Extent;

/// What a schedule counts in.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Batches of the global batch size.
    Batch,
    /// Passes over the data.
    Epoch,
    /// Optimizer steps: differ from batches when gradients are aggregated.
    #[default]
    Step,
}

/// A schedule: an optional linear warm-up, then a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// What `warmup` and the curve count in.
    #[serde(default)]
    pub by: Unit,
    /// Units over which the rate rises linearly from a small share to the whole; the curve starts
    /// after them.
    #[serde(default)]
    pub warmup: u64,
    /// The curve.
    #[serde(default)]
    pub curve: Curve,
}

/// The shape of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Curve {
    /// The optimizer's rate throughout.
    #[default]
    Constant,
    /// Times `gamma` every so many units.
    Step {
        /// Units between two drops.
        every: u64,
        /// The factor of a drop.
        gamma: f64,
    },
    /// Times `gamma` each unit.
    Exponential {
        /// The factor.
        gamma: f64,
    },
    /// Half a cosine down to a share of the rate.
    Cosine {
        /// Units of the way down; the whole training when absent.
        #[serde(default)]
        over: Option<u64>,
        /// The share of the rate that is left at the end.
        #[serde(default)]
        floor: f64,
    },
    /// A straight line down to a share of the rate.
    Linear {
        /// Units of the way down; the whole training when absent.
        #[serde(default)]
        over: Option<u64>,
        /// The share of the rate that is left at the end.
        #[serde(default)]
        floor: f64,
    },
    /// Up to the optimizer's rate and far down again, both along a cosine
    /// (<https://arxiv.org/abs/1708.07120>).
    OneCycle {
        /// Units of the cycle; the whole training when absent.
        #[serde(default)]
        over: Option<u64>,
        /// The share of the cycle spent rising.
        #[serde(default = "rising")]
        rising: f64,
        /// The rate starts at 1/`start` of its peak.
        #[serde(default = "start")]
        start: f64,
        /// And ends at 1/`end` of its start.
        #[serde(default = "end")]
        end: f64,
    },
    /// Times `factor` when the watched metric has not improved for `patience` validations.
    Plateau {
        /// The factor of a drop.
        #[serde(default = "factor")]
        factor: f64,
        /// Validations without improvement that are tolerated.
        #[serde(default = "patience")]
        patience: u64,
        /// The relative improvement that counts.
        #[serde(default = "threshold")]
        threshold: f64,
    },
}

fn rising() -> f64 {
    0.3
}
fn start() -> f64 {
    25.0
}
fn end() -> f64 {
    1e4
}
fn factor() -> f64 {
    0.1
}
fn patience() -> u64 {
    10
}
fn threshold() -> f64 {
    1e-4
}

impl Schedule {
    /// Whether the rate depends on how long the whole training is.
    pub fn needs_length(&self) -> bool {
        matches!(
            self.curve,
            Curve::Cosine { over: None, .. }
                | Curve::Linear { over: None, .. }
                | Curve::OneCycle { over: None, .. }
        )
    }

    /// The factor on the optimizer's rate after `done`, when training ends at `total`.
    pub fn factor(&self, done: Extent, total: Extent, plateau: &Plateau) -> f64 {
        let at = done.in_unit(self.by);
        if at < self.warmup {
            return (at + 1) as f64 / (self.warmup + 1) as f64;
        }
        let at = (at - self.warmup) as f64;
        let whole = total.in_unit(self.by).saturating_sub(self.warmup);
        let along = |over: Option<u64>| (at / over.unwrap_or(whole).max(1) as f64).min(1.0);
        match self.curve {
            Curve::Constant => 1.0,
            Curve::Step { every, gamma } => gamma.powf((at / every.max(1) as f64).floor()),
            Curve::Exponential { gamma } => gamma.powf(at),
            Curve::Linear { over, floor } => 1.0 - (1.0 - floor) * along(over),
            Curve::Cosine { over, floor } => ease(1.0, floor, along(over)),
            Curve::OneCycle { over, rising, start, end } => {
                let at = along(over);
                if at < rising {
                    ease(1.0 / start, 1.0, at / rising)
                } else {
                    ease(1.0, 1.0 / (start * end), (at - rising) / (1.0 - rising))
                }
            }
            Curve::Plateau { .. } => plateau.factor,
        }
    }
}

/// From `a` to `b` along half a cosine.
fn ease(a: f64, b: f64, along: f64) -> f64 {
    b + (a - b) * (1.0 + (std::f64::consts::PI * along).cos()) / 2.0
}

/// What on-plateau remembers between validations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plateau {
    /// What the rate is multiplied by.
    pub factor: f64,
    /// The best value so far; smaller is better.
    pub best: Option<f64>,
    /// Validations since then.
    pub waited: u64,
}

impl Default for Plateau {
    fn default() -> Self {
        Self { factor: 1.0, best: None, waited: 0 }
    }
}

impl Plateau {
    /// Takes a validation's value of the watched metric; smaller values are better here.
    pub fn observe(&mut self, schedule: &Schedule, value: f64) {
        let Curve::Plateau { factor, patience, threshold } = schedule.curve else {
            return;
        };
        let better = self.best.is_none_or(|best| value < best - best.abs() * threshold);
        if better {
            self.best = Some(value);
            self.waited = 0;
            return;
        }
        self.waited += 1;
        if self.waited > patience {
            self.factor *= factor;
            self.waited = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::StepCount;

    fn check(curve: Curve, warmup: u64, expected: &[(u64, f64)]) {
        let schedule = Schedule { by: Unit::Step, warmup, curve };
        let total = Extent { steps: StepCount(100), ..Extent::default() };
        for (step, factor) in expected {
            let done = Extent { steps: StepCount(*step), ..Extent::default() };
            let got = schedule.factor(done, total, &Plateau::default());
            assert!((got - factor).abs() < 1e-9, "{curve:?} at {step}: {got}, not {factor}");
        }
    }

    #[test]
    fn curves_pass_through_their_points() {
        check(Curve::Constant, 0, &[(0, 1.0), (99, 1.0)]);
        check(Curve::Constant, 3, &[(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0)]);
        check(Curve::Step { every: 10, gamma: 0.5 }, 0, &[(9, 1.0), (10, 0.5), (25, 0.25)]);
        check(Curve::Exponential { gamma: 0.9 }, 2, &[(2, 1.0), (4, 0.81)]);
        check(Curve::Cosine { over: None, floor: 0.0 }, 0, &[(0, 1.0), (50, 0.5), (100, 0.0)]);
        check(Curve::Cosine { over: Some(10), floor: 0.1 }, 0, &[(5, 0.55), (50, 0.1)]);
        let cycle = Curve::OneCycle { over: None, rising: 0.25, start: 10.0, end: 100.0 };
        check(cycle, 0, &[(0, 0.1), (25, 1.0), (100, 0.001)]);
    }

    #[test]
    fn plateau_drops_after_patience() {
        let curve = Curve::Plateau { factor: 0.5, patience: 1, threshold: 0.0 };
        let schedule = Schedule { curve, ..Schedule::default() };
        let mut plateau = Plateau::default();
        let mut factors = Vec::new();
        for value in [1.0, 0.9, 0.9, 0.9, 0.8, 0.8, 0.8] {
            plateau.observe(&schedule, value);
            factors.push(schedule.factor(Extent::default(), Extent::default(), &plateau));
        }
        assert_eq!(factors, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]);
    }
}
