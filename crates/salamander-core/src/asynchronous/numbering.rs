//! Which names an epoch has: a plan may leave slices empty, and those have no name that anybody could apply.

use super::Applied;
use crate::plan::{MicroBatch, Plan};
use crate::progress::StepCount;
use crate::ranges::Ranges;

/// The names of an epoch, the same in every epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    slices: u32,
    steps: u64,
    all: Ranges,
}

impl Numbering {
    /// The names of a plan.
    pub fn of(plan: &Plan) -> Self {
        let slices = (plan.aggregation * u64::from(plan.slices)) as u32;
        let per_step = u64::from(slices);
        let mut names = Self { slices, steps: plan.steps(), all: Ranges::default() };
        let full = plan.records / plan.step_records();
        // Steps without an empty slice are one range, however many there are.
        let is_dense = plan.micro_batches(0, 0, plan.aggregation).len() as u64 == per_step;
        let dense = if is_dense { full } else { 0 };
        names.all.add(0..dense * per_step);
        for step in dense..plan.steps() {
            for slice in plan.micro_batches(0, step, plan.aggregation) {
                names.all.insert(names.number(slice.name));
            }
        }
        names
    }

    /// Slices of a step, over all its batches: what [`Applied::new`] wants.
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The numbers of all names of an epoch.
    pub fn all(&self) -> &Ranges {
        &self.all
    }

    /// The number of a name within its epoch.
    pub fn number(&self, name: MicroBatch) -> u64 {
        name.step.saturating_mul(u64::from(self.slices)).saturating_add(u64::from(name.k))
    }

    /// The name with this number.
    pub fn name(&self, epoch: u64, number: u64) -> MicroBatch {
        let slices = u64::from(self.slices);
        MicroBatch { epoch, step: number / slices, k: (number % slices) as u32 }
    }

    /// Whether an epoch has this name.
    pub fn contains(&self, name: MicroBatch) -> bool {
        name.k < self.slices && self.all.contains(self.number(name))
    }

    /// How many steps from the beginning of the run, of so many epochs, are completely in a set.
    pub fn complete_steps(&self, applied: &Applied, epochs: u64) -> StepCount {
        let first = |epoch| applied.lacks(epoch, &self.all).first().map(|number| (epoch, number));
        StepCount(match (applied.pruned()..epochs).find_map(first) {
            Some((epoch, number)) => epoch * self.steps + self.name(epoch, number).step,
            None => epochs * self.steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_micro_batch_of_a_plan_has_a_name(
            records in 1u64..300, batch in 1u64..40, aggregation in 1u64..4, slices in 1u32..9,
        ) {
            let plan = Plan { records, batch, aggregation, slices };
            let names = Numbering::of(&plan);
            let steps = (0..plan.steps()).flat_map(|step| plan.micro_batches(7, step, aggregation));
            let expected: Vec<MicroBatch> = steps.map(|slice| slice.name).collect();
            let found: Vec<MicroBatch> = names.all().iter().map(|n| names.name(7, n)).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert!(expected.iter().all(|name| names.contains(*name)));
            prop_assert_eq!(names.all().len(), expected.len() as u64);
        }
    }
    #[test]
    fn steps_are_complete_up_to_the_first_gap() {
        let names = Numbering::of(&Plan { records: 23, batch: 4, aggregation: 1, slices: 3 });
        let mut applied = Applied::everything(3, 1);
        assert_eq!(names.complete_steps(&applied, 3).0, 6);
        for number in 0..7 {
            applied.insert(names.name(1, number));
        }
        assert_eq!(names.complete_steps(&applied, 3).0, 8);
        assert_eq!(names.complete_steps(&Applied::everything(3, 3), 3).0, 18);
    }
}
