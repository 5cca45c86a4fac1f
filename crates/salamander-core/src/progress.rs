//! Where training stands: everything besides parameters and optimizer state that a resumed run needs.

use std::collections::BTreeMap;
use std::fmt;

use crate::experiment::Length;
use crate::ledger::{Ledger, Tally};
use crate::loss_scale::Scaler;
use crate::metrics::{Metrics, number};
use crate::plan::Plan;
use crate::schedule::{Plateau, Unit};
use crate::watch::Watch;
use serde::{Deserialize, Serialize};

/// Optimizer steps done since a run began. The number of a step within its epoch is a plain `u64`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct StepCount(pub u64);

impl StepCount {
    /// With one more.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many were done since another count, which may be a later one.
    pub fn since(self, before: StepCount) -> u64 {
        self.0.saturating_sub(before.0)
    }
}

impl fmt::Display for StepCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The progress of a run; saved with every checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimizer steps done: the version of the parameters.
    pub steps: StepCount,
    /// Batches done.
    pub batches: u64,
    /// Records applied.
    pub records: u64,
    /// The epoch that the next step belongs to.
    pub epoch: u64,
    /// Steps done of that epoch.
    pub step: u64,
    /// Which records were applied.
    pub ledger: Ledger,
    /// Training metrics of the epoch so far.
    pub training: Metrics,
    /// Training metrics of the last complete epoch, or of the one that was cut.
    #[serde(with = "crate::metrics::numbers")]
    pub last_training: BTreeMap<String, f64>,
    /// The last validation.
    pub validation: Option<Metrics>,
    /// The state of an on-plateau schedule.
    pub plateau: Plateau,
    /// The best validation so far.
    pub watch: Watch,
    /// Whether a validation, a callback or early stopping ended training.
    pub stopped: bool,
    /// State of callbacks, by name.
    pub callbacks: BTreeMap<String, serde_json::Value>,
    /// Whether an early end was agreed on; the run can go on from here.
    #[serde(default)]
    pub interrupted: bool,
    /// A step whose first passes are committed and whose last ones are not.
    #[serde(default)]
    pub within: Option<Within>,
    /// What is left to do before the next step.
    #[serde(default)]
    pub after: Option<After>,
    /// How the rows of tables come to the state after the last step.
    #[serde(default)]
    pub rows: Option<RowsMove>,
    /// The loss scale and the steps that were skipped for it.
    #[serde(default)]
    pub scaler: Option<Scaler>,
}

/// The move of the rows of tables that belongs to the last step. It is made when all members are known to have
/// committed the step, and making it again does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowsMove {
    /// Steps done with it.
    pub to: StepCount,
    /// The schedule's factor.
    pub factor: f64,
    /// What gradient sums are multiplied by; 0 if the step was skipped.
    pub divisor: f32,
}

/// A step of several passes, in its middle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Within {
    /// The next pass.
    pub pass: usize,
    /// What the passes so far measured.
    pub metrics: Metrics,
    /// What the first pass reports.
    pub first: FirstPass,
}

/// What the first pass of a step says for the whole step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirstPass {
    /// The records.
    pub tally: Tally,
    /// The sum of their losses.
    #[serde(with = "number")]
    pub loss: f64,
    /// The learning rate.
    pub rate: f64,
    /// The gradients' norm before clipping, when clipping needed it.
    pub gradient_norm: Option<f64>,
    /// Whether the gradients of some pass overflowed, so that it moved nothing.
    #[serde(default)]
    pub overflowed: bool,
}

/// What is left to do before the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum After {
    /// A validation, and then the rest of the step's end.
    Validate(StepEnd),
    /// A checkpoint, with the watched value if it was just measured.
    Save(Option<f64>),
}

/// What a step ends besides itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEnd {
    /// Before the first step, only the validation counts.
    pub initial: bool,
    /// The step's epoch.
    pub epoch: u64,
    /// Whether the epoch ends with it.
    pub epoch_done: bool,
    /// Whether it is the last step.
    pub last: bool,
    /// Whether a checkpoint is due anyway.
    pub save: bool,
    /// Whether one is due by time, to recover from.
    #[serde(default)]
    pub recovery: bool,
    /// Whether somebody wants training to end here.
    pub stop: bool,
}

impl Progress {
    /// How far training is.
    pub fn done(&self) -> Extent {
        Extent { batches: self.batches, steps: self.steps, epochs: self.epoch }
    }
}

/// How long a run is, or how far, in every unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Batches.
    pub batches: u64,
    /// Optimizer steps.
    pub steps: StepCount,
    /// Epochs: of a whole run those that it begins, of a part those that are done.
    pub epochs: u64,
}

impl Extent {
    /// The extent of a length over a plan.
    pub fn new(length: Length, plan: &Plan) -> Self {
        let per_epoch = plan.batches();
        let batches = match length {
            Length::Batches(n) => n,
            Length::Records(n) => in_batches(n, plan),
            Length::Epochs(n) => n * per_epoch,
        };
        let (whole, rest) = (batches / per_epoch, batches % per_epoch);
        let steps = StepCount(whole * plan.steps() + rest.div_ceil(plan.aggregation));
        Self { batches, steps, epochs: batches.div_ceil(per_epoch) }
    }

    /// The same, up to the end of the step in which it ends: no step is cut in two.
    pub(crate) fn whole_steps(self, plan: &Plan) -> Self {
        let (whole, rest) = (self.batches / plan.batches(), self.batches % plan.batches());
        let rest = (rest.div_ceil(plan.aggregation) * plan.aggregation).min(plan.batches());
        Self { batches: whole * plan.batches() + rest, ..self }
    }

    pub(crate) fn in_unit(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Batch => self.batches,
            Unit::Epoch => self.epochs,
            Unit::Step => self.steps.0,
        }
    }
}

/// Batches that it takes to see so many records.
fn in_batches(records: u64, plan: &Plan) -> u64 {
    let (epochs, rest) = (records / plan.records, records % plan.records);
    epochs * plan.batches() + rest.div_ceil(plan.batch)
}

/// Whether something periodic is due after a step.
pub fn due(period: Length, before: Extent, after: Extent, plan: &Plan) -> bool {
    let crossed = |n: u64| n > 0 && before.batches / n != after.batches / n;
    match period {
        Length::Batches(n) => crossed(n),
        Length::Records(n) => crossed(n.div_ceil(plan.batch)),
        Length::Epochs(n) => {
            n > 0 && after.epochs > before.epochs && after.epochs.is_multiple_of(n)
        }
    }
}

/// Whether a period means the end of each epoch.
pub fn is_default(period: Length) -> bool {
    matches!(period, Length::Batches(0) | Length::Records(0) | Length::Epochs(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { records: 100, batch: 8, aggregation: 2, slices: 1 }
    }

    #[test]
    fn extents_count_short_steps() {
        // 100 records: 13 batches, 7 steps (the last of one batch).
        let check = |length, batches, steps, epochs| {
            let expected = Extent { batches, steps: StepCount(steps), epochs };
            assert_eq!(Extent::new(length, &plan()), expected);
        };
        check(Length::Epochs(2), 26, 14, 2);
        check(Length::Batches(5), 5, 3, 1);
        check(Length::Batches(16), 16, 9, 2);
        check(Length::Records(100), 13, 7, 1);
        check(Length::Records(101), 14, 8, 2);
    }

    #[test]
    fn periods_are_due_when_crossed() {
        let at = |batches, epochs| Extent { batches, steps: StepCount(batches), epochs };
        assert!(due(Length::Batches(5), at(4, 0), at(6, 0), &plan()));
        assert!(!due(Length::Batches(5), at(5, 0), at(7, 0), &plan()));
        assert!(!due(Length::Batches(0), at(5, 0), at(7, 0), &plan()));
        assert!(due(Length::Epochs(2), at(20, 1), at(22, 2), &plan()));
        assert!(!due(Length::Epochs(2), at(8, 0), at(9, 1), &plan()));
    }
}
