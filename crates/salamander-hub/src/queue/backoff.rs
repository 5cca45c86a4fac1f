//! When experiments are tried again whose disk was full: at once would use up all their tries within seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ids::ExperimentId;

/// The first back-off, and the longest one.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The back-off of each experiment, twice as long as the one before. A hub that is started anew tries at once.
#[derive(Debug, Default)]
pub(super) struct Backoffs(BTreeMap<ExperimentId, Backoff>);

#[derive(Debug)]
struct Backoff {
    until: Instant,
    length: Duration,
}

impl Backoffs {
    /// It has failed once more: the next back-off is longer.
    pub(super) fn lengthen(&mut self, id: ExperimentId, now: Instant) {
        let length = self.0.get(&id).map_or(SHORTEST, |before| (before.length * 2).min(LONGEST));
        self.0.insert(id, Backoff { until: now + length, length });
    }

    /// Whether it may be tried again.
    pub(super) fn is_due(&self, id: ExperimentId, now: Instant) -> bool {
        self.0.get(&id).is_none_or(|backoff| now >= backoff.until)
    }

    /// It has ended in another way.
    pub(super) fn forget(&mut self, id: ExperimentId) {
        self.0.remove(&id);
    }

    /// Only these are still there.
    pub(super) fn retain(&mut self, is_there: impl Fn(ExperimentId) -> bool) {
        self.0.retain(|id, _| is_there(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_grow_from_a_second_to_a_minute() {
        let (mut backoffs, mut now) = (Backoffs::default(), Instant::now());
        let (id, other) = (ExperimentId(1), ExperimentId(2));
        assert!(backoffs.is_due(id, now));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoffs.lengthen(id, now);
            let length = Duration::from_secs(seconds);
            assert!(!backoffs.is_due(id, now + length - Duration::from_millis(1)), "{seconds}");
            assert!(backoffs.is_due(other, now));
            now += length;
            assert!(backoffs.is_due(id, now), "{seconds}");
        }
        backoffs.forget(id);
        backoffs.lengthen(id, now);
        assert!(backoffs.is_due(id, now + SHORTEST), "it begins anew");
        backoffs.retain(|left| left != id);
        assert!(backoffs.is_due(id, now));
    }
}
