//! The master's time. A master that was itself stopped, or waited for a slow disk, must not conclude that everybody
//! else was silent, so its clock stands still while it does.

use std::time::{Duration, Instant};

use salamander_core::elastic::Millis;

/// The master looks at its clock far more often than this.
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// Milliseconds in which the master was awake.
#[derive(Debug)]
pub(crate) struct Clock {
    last: Instant,
    awake: Duration,
}

impl Clock {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: now, awake: Duration::ZERO }
    }

    /// Reads the clock.
    pub(crate) fn read(&mut self, now: Instant) -> Millis {
        self.awake += now.saturating_duration_since(self.last).min(LONGEST_STEP);
        self.last = now;
        self.awake.as_millis() as Millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_counts_little() {
        let start = Instant::now();
        let mut clock = Clock::new(start);
        assert_eq!(clock.read(start + Duration::from_millis(20)), 20);
        assert_eq!(clock.read(start + Duration::from_secs(60)), 520);
        assert_eq!(clock.read(start + Duration::from_millis(60_030)), 550);
    }
}
