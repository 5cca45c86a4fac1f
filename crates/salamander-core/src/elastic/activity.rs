//! What a process does and has done so far: for the heartbeats that the master compares, and for its own metrics.

use std::time::Duration;

use super::{Beat, Millis, Work};
use crate::progress::StepCount;

/// The account of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    work: Work,
    since: Millis,
    records: u64,
    computed: Millis,
    exchanged: Millis,
    /// Waits for records are short, and a part of computing.
    waited: Duration,
}

impl Activity {
    /// It turns to this work, and has computed so many more records.
    pub fn turn_to(&mut self, now: Millis, work: Work, records: u64) {
        self.computed += self.spent_on(Work::Computing, now);
        self.exchanged += self.spent_on(Work::Exchanging, now);
        self.records += records;
        (self.work, self.since) = (work, now);
    }

    /// The heartbeat of this moment.
    pub fn beat(&self, now: Millis) -> Beat {
        Beat {
            work: self.work,
            for_ms: now.saturating_sub(self.since),
            records: self.records,
            compute_ms: self.computed + self.spent_on(Work::Computing, now),
            exchange_ms: self.exchanged + self.spent_on(Work::Exchanging, now),
            data_ms: self.waited.as_millis() as Millis,
        }
    }

    /// So much of the time that it computed was spent on waiting for records.
    pub fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// How long it has done this since it last turned to something.
    fn spent_on(&self, work: Work, now: Millis) -> Millis {
        if self.work == work { now.saturating_sub(self.since) } else { 0 }
    }
}

/// What a worker shows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainingFigures {
    /// Steps of the run that are done, as far as this worker knows.
    pub steps: StepCount,
    /// The epoch of the last one, from 0.
    pub epoch: u64,
    /// Its loss.
    pub loss: f64,
    /// Workers that train together with it, itself included; 0 while it waits for others.
    pub members: u64,
    /// Groups of workers that it has trained in.
    pub generations: u64,
    /// What it does, and has done so far.
    pub beat: Beat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_for_what_it_was_spent_on() {
        let mut activity = Activity::default();
        activity.turn_to(10, Work::Computing, 0);
        activity.turn_to(40, Work::Exchanging, 5);
        let waiting = Beat {
            work: Work::Exchanging,
            for_ms: 20,
            records: 5,
            compute_ms: 30,
            exchange_ms: 20,
            data_ms: 0,
        };
        assert_eq!(activity.beat(60), waiting);
        activity.turn_to(60, Work::Computing, 0);
        (0..4).for_each(|_| activity.waited(Duration::from_micros(600)));
        let beat = activity.beat(67);
        assert_eq!((beat.compute_ms, beat.exchange_ms, beat.data_ms), (37, 20, 2));
    }
}
