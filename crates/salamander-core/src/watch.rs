//! The watched metric: which validation was the best, and when waiting for a better one ends.

use serde::{Deserialize, Serialize};

/// When to stop before the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    /// Validations without improvement that are tolerated.
    pub patience: u64,
    /// An improvement smaller than this does not count.
    #[serde(default)]
    pub min_delta: f64,
}

/// The best validation so far. Part of every checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    best: Option<f64>,
    waited: u64,
}

/// What a validation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It is the best so far.
    pub best: bool,
    /// There has been no improvement for too long.
    pub stop: bool,
}

impl Watch {
    /// Takes a validation's value, negated by the caller where bigger is better. NaN is never best.
    pub fn observe(&mut self, value: f64, stop: Option<EarlyStop>) -> Verdict {
        let best = !value.is_nan() && self.best.is_none_or(|best| value < best);
        let delta = stop.map_or(0.0, |stop| stop.min_delta);
        let enough = !value.is_nan() && self.best.is_none_or(|best| value < best - delta);
        self.waited = if enough { 0 } else { self.waited + 1 };
        if best {
            self.best = Some(value);
        }
        Verdict { best, stop: stop.is_some_and(|stop| self.waited > stop.patience) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_after_patience_and_keeps_the_best() {
        let stop = Some(EarlyStop { patience: 1, min_delta: 0.01 });
        let mut watch = Watch::default();
        let verdicts: Vec<(bool, bool)> = [1.0, 0.5, f64::NAN, 0.495, 0.6]
            .into_iter()
            .map(|value| watch.observe(value, stop))
            .map(|verdict| (verdict.best, verdict.stop))
            .collect();
        assert_eq!(
            verdicts,
            [(true, false), (true, false), (false, false), (true, true), (false, true)]
        );
        assert_eq!(watch.best, Some(0.495));
    }
}
