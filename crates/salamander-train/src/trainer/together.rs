//! Where the members of a generation meet: the sum of a pass, a validation, a checkpoint's barrier.

use std::time::Instant;

use salamander_core::elastic::Work;
use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metrics, number};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Trainer;
use crate::Error;
use crate::bucket::{Layout, digest};
use crate::step::{StepSum, finite};
use crate::trial::Trial;

/// What a member says beside its gradients.
#[derive(Serialize, Deserialize)]
struct PassSide {
    tally: Tally,
    #[serde(with = "number")]
    loss: f64,
    metrics: Metrics,
    used: Vec<bool>,
    running: f64,
    overflow: bool,
    stop: bool,
    /// What moves its parameters.
    mover: String,
}

/// A pass of all members.
pub(super) struct Reduced {
    pub(super) sum: StepSum,
    /// Of the sum's bits.
    pub(super) digest: u64,
    /// Whether one of them wants the run to end.
    pub(super) stop: bool,
}

impl<T: Trial> Trainer<T> {
    /// The sum over all members.
    pub(super) fn reduce(&mut self, pass: usize, own: StepSum) -> Result<Reduced, Error> {
        let stop = self.exchange.wants_stop();
        if self.place.size == 1 {
            self.exchange.working(Work::Computing, own.tally.applied);
            return Ok(Reduced { sum: own, digest: 0, stop });
        }
        let started = Instant::now();
        self.exchange.working(Work::Exchanging, own.tally.applied);
        let layout = Layout::of(&*self.state.model, &self.state.passes[pass]);
        let StepSum { gradient, tally, metrics, loss, running: kept, overflow } = own;
        let setup = &self.prepared.setup;
        let gradient = gradient.into_host(setup.experiment.optimizations.gradient_compression)?;
        let used = layout.used(&gradient);
        let (running, mover) = (kept.records, self.mover.clone());
        let side = PassSide { used, tally, loss, metrics, running, overflow, stop, mover };
        let sides: Vec<PassSide> = self.meet(&format!("pass {pass}"), &side)?;
        let mut all = StepSum::default();
        let mut used = vec![false; side.used.len()];
        let (mut running, mut stop) = (0.0, false);
        for side in &sides {
            all.tally.merge(&side.tally);
            all.loss += side.loss;
            all.metrics.merge(&side.metrics);
            used.iter_mut().zip(&side.used).for_each(|(any, own)| *any |= own);
            running += side.running;
            all.overflow |= side.overflow;
            stop |= side.stop;
        }
        let scaled = self.course.loss_scale().is_some();
        let mut fill = |bucket: &mut [f32]| layout.fill(bucket, &gradient, &kept);
        let sums = self.exchange.sum(layout.len(), &mut fill)?;
        let digest = digest(sums);
        // All members have these bits, so that all of them skip the step or none.
        all.overflow |= scaled && !finite(sums);
        (all.gradient, all.running) = layout.read(sums, &used, running);
        // All members must come to the same bits: different devices may round differently, the host does not.
        if sides.iter().all(|side| side.mover == self.mover) {
            all.gradient = all.gradient.near(&self.prepared.setup.device);
        }
        self.timings.exchange += started.elapsed();
        self.exchange.working(Work::Computing, 0);
        Ok(Reduced { sum: all, digest, stop })
    }

    /// Everybody's words, in the order of ranks, if all members are at the same point.
    pub(super) fn meet<S: Serialize + DeserializeOwned>(
        &mut self,
        point: &str,
        own: &S,
    ) -> Result<Vec<S>, Error> {
        let unfit = |error: serde_json::Error| Error::Invalid(format!("{point}: {error}"));
        let bytes = serde_json::to_vec(&(point, own)).map_err(unfit)?;
        let mut all = Vec::new();
        for (rank, bytes) in self.exchange.gather(&bytes)?.iter().enumerate() {
            let apart = |found: String| {
                let reason = "the workers' callbacks must come to the same decisions";
                Error::Invalid(format!("worker {rank} is {found}: {reason}"))
            };
            let (theirs, value): (String, S) = serde_json::from_slice(bytes)
                .map_err(|error| apart(format!("not at \"{point}\" ({error})")))?;
            if theirs != point {
                return Err(apart(format!("at \"{theirs}\", this one at \"{point}\"")));
            }
            all.push(value);
        }
        Ok(all)
    }

    /// Brings the rows of tables to the state after the last step. Others see them too, so all members must have
    /// committed the step: meeting them at the same version proves it.
    pub(super) fn move_rows(&mut self) -> Result<(), Error> {
        if self.place.size > 1 && self.state.shares_rows()? {
            self.meet("rows", &())?;
        }
        self.state.advance_rows(self.course.progress().rows)
    }
}
