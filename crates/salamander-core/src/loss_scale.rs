//! Loss scaling: small types lose small gradients, so the loss is multiplied before the backward pass and the gradients
//! are divided after it ([Micikevicius et al.](https://arxiv.org/abs/1710.03740)). The factor finds itself: a step whose
//! gradients overflow is skipped and the factor halved, and after many good steps it is doubled.
//!
//! All members of a run hold the same scaler and decide from what they all received, so they decide the same.

use serde::{Deserialize, Serialize};

/// No factor is larger: sums of many records must stay far below what f32 can hold.
const LARGEST: f64 = (1u64 << 24) as f64;
/// No factor is smaller: an overflow here is not the factor's fault.
const SMALLEST: f64 = 1.0 / 1024.0;
/// Overflows one after the other that are tolerated. Halving has long reached its end by then.
const TOLERATED: u64 = 50;

/// How the loss is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossScale {
    /// The first factor: a power of two, so that scaling itself rounds nothing. It multiplies the sum over records, so
    /// 1024 with batches of 64 is what 65536 is to a mean.
    pub initial: f64,
    /// Good steps after which the factor is doubled.
    pub growth_interval: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { initial: 1024.0, growth_interval: 2000 }
    }
}

impl LossScale {
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), String> {
        let power = self.initial.is_normal() && self.initial.to_bits() & ((1 << 52) - 1) == 0;
        if !power || !(SMALLEST..=LARGEST).contains(&self.initial) {
            return Err(format!("initial: write a power of two from {SMALLEST} to {LARGEST}"));
        }
        match self.growth_interval {
            0 => Err("growth_interval: must be at least 1".to_string()),
            _ => Ok(()),
        }
    }
}

/// The factor in force, and what it has met. Part of every checkpoint and of what joiners receive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaler {
    /// What the loss is multiplied by.
    pub scale: f64,
    /// Steps that were skipped because their gradients overflowed.
    pub skipped: u64,
    /// Good steps since the factor last changed.
    good: u64,
    /// Overflows since the last good step.
    row: u64,
}

/// Gradients overflow whatever the factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the gradients of {0} steps in a row are not finite, whatever the loss scale: compute in bf16 or f32 \
     (optimizations.mixed_precision), or lower the learning rate"
)]
pub struct Hopeless(pub u64);

impl Scaler {
    /// The state before the first step.
    pub fn new(rule: &LossScale) -> Self {
        Self { scale: rule.initial, skipped: 0, good: 0, row: 0 }
    }

    /// The state after a step, which is skipped if its gradients overflowed.
    pub fn after(mut self, rule: &LossScale, overflow: bool) -> Result<Self, Hopeless> {
        if overflow {
            (self.good, self.row, self.skipped) = (0, self.row + 1, self.skipped + 1);
            self.scale = (self.scale / 2.0).max(SMALLEST);
            return if self.row > TOLERATED { Err(Hopeless(self.row)) } else { Ok(self) };
        }
        (self.good, self.row) = (self.good + 1, 0);
        if self.good >= rule.growth_interval {
            (self.good, self.scale) = (0, (self.scale * 2.0).min(LARGEST));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors after each of these steps, `x` being an overflow.
    fn check(rule: LossScale, steps: &str, expected: &[f64]) -> Scaler {
        let mut scaler = Scaler::new(&rule);
        let mut scales = Vec::new();
        for step in steps.chars() {
            scaler = scaler.after(&rule, step == 'x').expect("hope");
            scales.push(scaler.scale);
        }
        assert_eq!(scales, expected, "{steps}");
        scaler
    }

    fn rule(initial: f64, growth_interval: u64) -> LossScale {
        LossScale { initial, growth_interval }
    }

    #[test]
    fn overflow_halves_and_good_steps_double() {
        let end = check(rule(8.0, 2), "x..x...", &[4.0, 4.0, 8.0, 4.0, 4.0, 8.0, 8.0]);
        assert_eq!(end.skipped, 2);
    }

    #[test]
    fn an_overflow_starts_the_count_of_good_steps_again() {
        check(rule(8.0, 3), "..x...", &[8.0, 8.0, 4.0, 4.0, 4.0, 8.0]);
    }

    #[test]
    fn factors_stay_within_their_bounds() {
        check(rule(LARGEST, 1), "..", &[LARGEST, LARGEST]);
        check(rule(SMALLEST, 1), "xx.", &[SMALLEST, SMALLEST, 2.0 * SMALLEST]);
    }

    #[test]
    fn overflow_without_end_is_hopeless() {
        let rule = rule(LARGEST, 1);
        let mut scaler = Scaler::new(&rule);
        for _ in 0..TOLERATED {
            scaler = scaler.after(&rule, true).expect("tolerated");
        }
        assert_eq!(scaler.after(&rule, true), Err(Hopeless(TOLERATED + 1)));
        let saved = scaler.after(&rule, false).expect("a good step");
        assert!(saved.after(&rule, true).is_ok());
    }

    #[test]
    fn a_state_survives_json_bit_for_bit() {
        let state = check(rule(8.0, 9), "x..", &[4.0; 3]);
        let text = serde_json::to_string(&state).expect("written");
        assert_eq!(serde_json::from_str::<Scaler>(&text).expect("read"), state);
    }

    #[test]
    fn wrong_rules_are_named() {
        let wrong = |rule: LossScale| rule.validate().expect_err("wrong");
        for initial in [0.0, -2.0, 3.0, f64::NAN, f64::INFINITY, 2.0 * LARGEST] {
            assert!(wrong(rule(initial, 1)).starts_with("initial: write a power of two"));
        }
        assert_eq!(wrong(rule(1.0, 0)), "growth_interval: must be at least 1");
        assert_eq!(LossScale::default().validate(), Ok(()));
    }
}
