//! A rung: what trials measured at one length, best first.

use crate::TrialId;

/// Only one of so many goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisor(pub f64);

impl Divisor {
    /// How many of `all` that is, rounded down.
    pub fn share(self, all: usize) -> usize {
        (all as f64 / self.0).floor() as usize
    }

    /// The same, but at least one.
    pub fn at_least_one(self, all: usize) -> usize {
        self.share(all).max(1)
    }

    /// The greatest `n` with `divisor^n <= value`: counted, because logarithms of 1000 and 243 come out one short.
    pub fn log(self, value: u64) -> u64 {
        let (mut power, mut exponent) = (self.0, 0);
        while power <= value as f64 {
            power *= self.0;
            exponent += 1;
        }
        exponent
    }

    /// `divisor^exponent`.
    pub fn power(self, exponent: u64) -> f64 {
        (0..exponent).fold(1.0, |power, _| power * self.0)
    }
}

/// What was measured at one length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rung {
    pub(crate) length: u64,
    entries: Vec<RungEntry>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RungEntry {
    pub(crate) trial: TrialId,
    pub(crate) score: f64,
    pub(crate) promoted: bool,
}

impl Rung {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, entries: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[RungEntry] {
        &self.entries
    }

    /// Adds a trial before those that are equally good; returns its place, from 0.
    pub(crate) fn insert_before_equals(&mut self, trial: TrialId, score: f64) -> usize {
        let place = self.entries.partition_point(|entry| entry.score < score);
        self.entries.insert(place, RungEntry { trial, score, promoted: false });
        place
    }

    /// Adds a trial after those that are equally good.
    pub(crate) fn insert_after_equals(&mut self, trial: TrialId, score: f64) {
        let place = self.entries.partition_point(|entry| entry.score <= score);
        self.entries.insert(place, RungEntry { trial, score, promoted: false });
    }

    /// The best of the first `top` that was not promoted; now it is.
    pub(crate) fn promote(&mut self, top: usize) -> Option<TrialId> {
        let entry = self.entries.iter_mut().take(top).find(|entry| !entry.promoted)?;
        entry.promoted = true;
        Some(entry.trial)
    }

    /// Takes a trial out, as if it had never been there.
    pub(crate) fn remove(&mut self, trial: TrialId) {
        self.entries.retain(|entry| entry.trial != trial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_whole_numbers() {
        let check = |divisor: f64, value, expected| {
            assert_eq!(Divisor(divisor).log(value), expected, "log_{divisor} {value}");
        };
        check(10.0, 1000, 3);
        check(3.0, 243, 5);
        check(3.0, 242, 4);
        check(4.0, 1, 0);
        check(2.0, 1 << 40, 40);
        check(1.5, 2, 1);
    }
}
