//! How an epoch is cut into steps, batches and micro-batches: fixed by the experiment, never by who
//! happens to be alive.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The name of a micro-batch: the atom of work everywhere (leases, pushes, randomness, the ledger).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MicroBatch {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The optimizer step within the epoch, from 0.
    pub step: u64,
    /// The slice of the step, from 0.
    pub k: u32,
}

/// The cut of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Records of an epoch.
    pub records: u64,
    /// The global batch.
    pub batch: u64,
    /// Batches whose gradients are summed before the optimizer steps.
    pub aggregation: u64,
    /// Slices of a batch.
    pub slices: u32,
}

impl Plan {
    /// Records of a full optimizer step.
    pub fn step_records(&self) -> u64 {
        self.batch * self.aggregation
    }

    /// Optimizer steps of an epoch; the last one may be short.
    pub fn steps(&self) -> u64 {
        self.records.div_ceil(self.step_records())
    }

    /// Batches of an epoch; the last one may be short.
    pub fn batches(&self) -> u64 {
        self.records.div_ceil(self.batch)
    }

    /// Batches of one optimizer step.
    pub fn batches_in(&self, step: u64) -> u64 {
        (self.batches() - step * self.aggregation).min(self.aggregation)
    }

    /// The micro-batches of the first `batches` batches of a step, with their positions; empty ones
    /// (of a short last batch) are left out.
    pub fn micro_batches(&self, epoch: u64, step: u64, batches: u64) -> Vec<Slice> {
        let width = self.batch.div_ceil(u64::from(self.slices));
        let mut slices = Vec::new();
        for b in 0..batches.min(self.aggregation) {
            let start = step * self.step_records() + b * self.batch;
            let end = (start + self.batch).min(self.records);
            for j in 0..u64::from(self.slices) {
                let from = start + j * width;
                if from < end {
                    let k = (b * u64::from(self.slices) + j) as u32;
                    let positions = from..(from + width).min(end);
                    slices.push(Slice { name: MicroBatch { epoch, step, k }, positions });
                }
            }
        }
        slices
    }
}

/// A micro-batch and the positions of the epoch's order that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its name.
    pub name: MicroBatch,
    /// Its positions.
    pub positions: Range<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_position_is_in_one_slice(
            records in 1u64..500, batch in 1u64..70, aggregation in 1u64..4, slices in 1u32..9,
        ) {
            let plan = Plan { records, batch, aggregation, slices };
            let mut next = 0;
            let mut batches = 0;
            for step in 0..plan.steps() {
                batches += plan.batches_in(step);
                for slice in plan.micro_batches(0, step, plan.aggregation) {
                    prop_assert_eq!(slice.positions.start, next);
                    next = slice.positions.end;
                }
            }
            prop_assert_eq!(next, records);
            prop_assert_eq!(batches, plan.batches());
        }
    }

    #[test]
    fn names_do_not_depend_on_the_length_of_the_last_batch() {
        let plan = Plan { records: 10, batch: 8, aggregation: 1, slices: 4 };
        let last = plan.micro_batches(2, 1, 1);
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].name, MicroBatch { epoch: 2, step: 1, k: 0 });
        assert_eq!(last[0].positions, 8..10);
    }
}
