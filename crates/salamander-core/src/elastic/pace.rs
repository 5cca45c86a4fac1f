//! Hanging members and stragglers: who makes the others wait, by the heartbeats of all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Millis, WorkerId};

/// What a worker does right now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Nothing that others wait for.
    #[default]
    Idle,
    /// Reads, computes or applies.
    Computing,
    /// Waits for the others in an exchange.
    Exchanging,
}

impl Work {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Work::Idle => "idle",
            Work::Computing => "computing",
            Work::Exchanging => "exchanging",
        }
    }
}

/// A heartbeat, with what the worker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// What it does.
    pub work: Work,
    /// For how long it has done so.
    pub for_ms: Millis,
    /// Records it has computed.
    pub records: u64,
    /// Milliseconds it spent on them.
    pub compute_ms: Millis,
    /// Milliseconds it spent in exchanges with others.
    #[serde(default)]
    pub exchange_ms: Millis,
    /// Milliseconds of the time it computed that it waited for records.
    #[serde(default)]
    pub data_ms: Millis,
}

/// Why a worker is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The others wait, and it has not come to the exchange for too long.
    Hangs,
    /// It takes many times the others' time per record, again and again.
    Straggles,
}

/// An exchange may take long where links are slow; so many times the time of a hang is too long.
const STUCK: Millis = 5;
/// How much slower than the median is too slow.
const FACTOR: f64 = 4.0;
/// Windows in a row that make a straggler.
const WINDOWS: u32 = 3;
/// The length of a window.
const WINDOW: Millis = 5_000;

#[derive(Clone, Debug)]
struct Track {
    beat: Beat,
    mark: Beat,
    marked: Millis,
    rate: Option<f64>,
    slow: u32,
}

/// The heartbeats of all members.
#[derive(Clone, Debug)]
pub struct Pace {
    hang: Millis,
    tracks: BTreeMap<WorkerId, Track>,
}

impl Pace {
    /// A member that others have waited for so long hangs.
    pub fn new(hang: Millis) -> Self {
        Self { hang, tracks: BTreeMap::new() }
    }

    /// Takes in a heartbeat.
    pub fn beat(&mut self, now: Millis, id: WorkerId, beat: Beat) {
        let track = self.tracks.entry(id).or_insert(Track {
            beat,
            mark: beat,
            marked: now,
            rate: None,
            slow: 0,
        });
        track.beat = beat;
        if now >= track.marked + WINDOW {
            let records = beat.records.saturating_sub(track.mark.records);
            let spent = beat.compute_ms.saturating_sub(track.mark.compute_ms);
            track.rate = (records > 0).then(|| spent as f64 / records as f64);
            (track.mark, track.marked) = (beat, now);
            self.compare(id);
        }
    }

    /// Forgets a worker.
    pub fn forget(&mut self, id: WorkerId) {
        self.tracks.remove(&id);
    }

    /// Others begin a generation: what was last heard of those that are not in it makes nobody hang or straggle.
    pub fn retain(&mut self, is_member: impl Fn(WorkerId) -> bool) {
        self.tracks.retain(|id, _| is_member(*id));
    }

    /// Hanging members and stragglers; each is named once.
    pub fn slow(&mut self) -> Vec<(WorkerId, Slow)> {
        let waits = |track: &Track| track.beat.work == Work::Exchanging;
        let waiting =
            self.tracks.values().any(|track| waits(track) && track.beat.for_ms > self.hang);
        let found: Vec<(WorkerId, Slow)> = self
            .tracks
            .iter()
            .filter_map(|(id, track)| {
                let late = track.beat.work == Work::Computing && track.beat.for_ms > self.hang;
                match () {
                    () if waiting && late => Some((*id, Slow::Hangs)),
                    () if track.slow >= WINDOWS => Some((*id, Slow::Straggles)),
                    () => None,
                }
            })
            .collect();
        found.iter().for_each(|(id, _)| self.forget(*id));
        found
    }

    /// Whether all members wait for each other, and have done so for far longer than an exchange takes: something
    /// between them takes bytes and does not hand them on. Told once.
    pub fn is_stuck(&mut self) -> bool {
        let waits = |track: &Track| {
            track.beat.work == Work::Exchanging && track.beat.for_ms > STUCK * self.hang
        };
        let stuck = self.tracks.len() > 1 && self.tracks.values().all(waits);
        if stuck {
            self.tracks.clear();
        }
        stuck
    }

    fn compare(&mut self, id: WorkerId) {
        let mut others: Vec<f64> = self
            .tracks
            .iter()
            .filter(|(other, _)| **other != id)
            .filter_map(|(_, t)| t.rate)
            .collect();
        others.sort_by(f64::total_cmp);
        let median = others.get(others.len() / 2).copied();
        let Some(track) = self.tracks.get_mut(&id) else { return };
        let late =
            matches!((track.rate, median), (Some(own), Some(m)) if own > FACTOR * m.max(1e-6));
        track.slow = if late { track.slow + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_others_wait_for_hangs() {
        let mut pace = Pace::new(1_000);
        let wait = Beat { work: Work::Exchanging, for_ms: 1_001, ..Beat::default() };
        pace.beat(0, WorkerId(1), wait);
        pace.beat(0, WorkerId(2), Beat { work: Work::Computing, for_ms: 900, ..Beat::default() });
        assert_eq!(pace.slow(), []);
        pace.beat(0, WorkerId(2), Beat { work: Work::Computing, for_ms: 1_100, ..Beat::default() });
        assert_eq!(pace.slow(), [(WorkerId(2), Slow::Hangs)]);
        assert_eq!(pace.slow(), []);
    }

    #[test]
    fn members_that_all_wait_for_each_other_are_stuck() {
        let mut pace = Pace::new(1_000);
        let waits = |for_ms| Beat { work: Work::Exchanging, for_ms, ..Beat::default() };
        pace.beat(0, WorkerId(1), waits(9_000));
        pace.beat(0, WorkerId(2), waits(4_000));
        assert!(!pace.is_stuck());
        pace.beat(0, WorkerId(2), waits(6_000));
        assert!(pace.is_stuck() && !pace.is_stuck());
    }

    #[test]
    fn one_that_is_no_member_any_more_holds_nobody_up() {
        let beat = |work, for_ms| Beat { work, for_ms, ..Beat::default() };
        // It waited for the others when it was last heard, so that whoever computes for long would seem to hang.
        let mut pace = Pace::new(1_000);
        pace.beat(0, WorkerId(1), beat(Work::Exchanging, 1_001));
        pace.retain(|id| id != WorkerId(1));
        pace.beat(0, WorkerId(2), beat(Work::Computing, 9_000));
        assert_eq!(pace.slow(), []);
        // It computed when it was last heard, so that the others would never be stuck.
        let mut pace = Pace::new(1_000);
        pace.beat(0, WorkerId(1), beat(Work::Computing, 1));
        [2, 3].into_iter().for_each(|id| pace.beat(0, WorkerId(id), beat(Work::Exchanging, 9_000)));
        assert!(!pace.is_stuck());
        pace.retain(|id| id != WorkerId(1));
        assert!(pace.is_stuck());
    }

    #[test]
    fn a_long_step_of_all_is_no_hang() {
        let mut pace = Pace::new(1_000);
        let busy = Beat { work: Work::Computing, for_ms: 9_000, ..Beat::default() };
        (1..4).for_each(|id| pace.beat(0, WorkerId(id), busy));
        assert_eq!(pace.slow(), []);
    }

    #[test]
    fn a_worker_far_slower_than_the_others_straggles() {
        let mut pace = Pace::new(60_000);
        let mut found = Vec::new();
        for second in 0..40u64 {
            for (id, cost) in [(1, 1), (2, 1), (3, 9)] {
                let records = second * 100;
                let compute_ms = records * cost;
                let beat = Beat {
                    work: Work::Computing,
                    for_ms: 1,
                    records,
                    compute_ms,
                    ..Beat::default()
                };
                pace.beat(second * 1_000, WorkerId(id), beat);
            }
            found.extend(pace.slow());
        }
        assert_eq!(found.first(), Some(&(WorkerId(3), Slow::Straggles)));
        assert!(found.iter().all(|(id, _)| *id == WorkerId(3)));
    }
}
