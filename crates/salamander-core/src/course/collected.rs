//! Steps whose micro-batches are computed by many, in any order, and told one by one.

use serde::{Deserialize, Serialize};

use crate::asynchronous::{Applied, Numbering};
use crate::metrics::Metrics;
use crate::plan::{MicroBatch, Plan};
use crate::progress::{FirstPass, Within};
use crate::report::{Measured, Timings};

/// What was told so far of steps that are not complete. It is kept beside the progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Collected {
    /// Micro-batches that were told.
    counted: Applied,
    /// Steps that are partly told: in `pass`, how many of their micro-batches.
    steps: Vec<((u64, u64), Within)>,
    /// Where the time of all workers went.
    pub timings: Timings,
}

impl Collected {
    /// Nothing was told.
    pub fn new(plan: &Plan) -> Self {
        let counted = Applied::new(Numbering::of(plan).slices());
        Self { counted, steps: Vec::new(), timings: Timings::default() }
    }

    /// Adds a micro-batch; returns its step, if that is complete now.
    pub(super) fn add(
        &mut self,
        plan: &Plan,
        name: MicroBatch,
        measured: &Measured,
    ) -> Option<(Metrics, FirstPass)> {
        let names = plan.micro_batches(name.epoch, name.step, plan.aggregation);
        let is_planned = names.iter().any(|slice| slice.name == name);
        if !is_planned || !self.counted.insert(name) {
            return None;
        }
        self.timings.add(&measured.timings);
        let at = (name.epoch, name.step);
        let index = self.steps.iter().position(|(step, _)| *step == at).unwrap_or_else(|| {
            let (metrics, first) = (Metrics::new(), FirstPass::default());
            self.steps.push((at, Within { pass: 0, metrics, first }));
            self.steps.len() - 1
        });
        let (_, step) = &mut self.steps[index];
        step.pass += 1;
        step.metrics.merge(&measured.metrics);
        step.first.tally.merge(&measured.tally);
        step.first.loss += measured.loss;
        step.first.rate = measured.rate;
        step.first.gradient_norm = measured.gradient_norm.or(step.first.gradient_norm);
        if step.pass < names.len() {
            return None;
        }
        let (_, Within { metrics, first, .. }) = self.steps.swap_remove(index);
        Some((metrics, first))
    }

    /// Steps that will not be told as a whole any more, because their epoch is over: who tells of it later, after the
    /// master was killed, is not heard.
    pub(super) fn rest(&mut self, epoch: u64) -> impl Iterator<Item = (Metrics, FirstPass)> {
        self.counted.prune(epoch + 1);
        self.steps.drain(..).map(|(_, Within { metrics, first, .. })| (metrics, first))
    }
}
