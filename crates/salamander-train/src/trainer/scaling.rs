//! The loss scale in the loop: which factor is in force, what comes after a step, and what a skipped one leaves.

use salamander_core::loss_scale::Scaler;

use super::Trainer;
use crate::Error;
use crate::step::StepSum;
use crate::trial::Trial;

impl<T: Trial> Trainer<T> {
    /// What the loss is multiplied by, if it is.
    pub(super) fn loss_scale(&self) -> Option<f64> {
        self.setup.experiment.optimizations.scaling()?;
        self.progress.scaler.map(|scaler| scaler.scale)
    }

    /// The scaler after a pass. All members come to the same one, since all know whether the pass overflowed.
    pub(super) fn scaler_after(&self, overflow: bool) -> Result<Option<Scaler>, Error> {
        let rule = self.setup.experiment.optimizations.scaling();
        match (rule, self.progress.scaler) {
            (Some(rule), Some(scaler)) => Ok(Some(scaler.after(&rule, overflow)?)),
            (_, kept) => Ok(kept),
        }
    }

    /// What a sum of scaled gradients is multiplied by; nothing is left of one that overflowed.
    pub(super) fn unscaled(&self, sum: &StepSum, divisor: f32) -> f32 {
        match self.loss_scale() {
            Some(_) if sum.overflow => 0.0,
            Some(scale) => (f64::from(divisor) / scale) as f32,
            None => divisor,
        }
    }

    /// Multiplies a sum and holds it to the bound on gradients, if there is one; gives its norm, and what is left to be
    /// multiplied by: without a bound the optimizer does that on its way.
    pub(super) fn bounded(
        &self,
        sum: &mut StepSum,
        divisor: f32,
    ) -> Result<(Option<f64>, f32), Error> {
        if self.clip.is_none() || sum.overflow {
            return Ok((None, divisor));
        }
        sum.gradient.scale(divisor);
        Ok((sum.gradient.clip(self.clip)?, 1.0))
    }
}
