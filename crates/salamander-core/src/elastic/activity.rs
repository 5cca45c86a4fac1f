//! What a process does and has done so far, for the heartbeats that the master compares.

use super::{Beat, Millis, Work};

/// The account of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    work: Work,
    since: Millis,
    records: u64,
    computed: Millis,
}

impl Activity {
    /// It turns to this work, and has computed so many more records.
    pub fn turn_to(&mut self, now: Millis, work: Work, records: u64) {
        self.computed += self.computing(now);
        self.records += records;
        (self.work, self.since) = (work, now);
    }

    /// The heartbeat of this moment.
    pub fn beat(&self, now: Millis) -> Beat {
        Beat {
            work: self.work,
            for_ms: now.saturating_sub(self.since),
            records: self.records,
            compute_ms: self.computed + self.computing(now),
        }
    }

    /// How long it has computed since it last turned to something.
    fn computing(&self, now: Millis) -> Millis {
        if self.work == Work::Computing { now.saturating_sub(self.since) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_computing_counts_as_time_spent_on_records() {
        let mut activity = Activity::default();
        activity.turn_to(10, Work::Computing, 0);
        activity.turn_to(40, Work::Exchanging, 5);
        let waiting = Beat { work: Work::Exchanging, for_ms: 20, records: 5, compute_ms: 30 };
        assert_eq!(activity.beat(60), waiting);
        activity.turn_to(60, Work::Computing, 0);
        assert_eq!(activity.beat(67).compute_ms, 37);
    }
}
