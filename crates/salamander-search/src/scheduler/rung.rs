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

    /// The greatest `n` with `divisor^n <= value`, up to 64: counted, because logarithms of 1000 and 243 come out one
    /// short. No bracket has more rungs, and a divisor near 1 would be counted for ever.
    pub fn log(self, value: u64) -> u64 {
        let (mut power, mut exponent) = (self.0, 0);
        while power <= value as f64 && exponent < 64 {
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

/// So many entries lie together: a new one moves these and no others, so that a rung of a hundred thousand costs no
/// more than a rung of a thousand.
const MOST_TOGETHER: usize = 128;

/// What was measured at one length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rung {
    pub(crate) length: u64,
    /// In order, within and between; none is empty.
    chunks: Vec<Vec<RungEntry>>,
    /// Of each chunk its worst score, its entries, and those of them that were not promoted. Apart from the entries:
    /// whoever looks for a place goes over all of these, which lie together.
    worst: Vec<f64>,
    entries: Vec<u32>,
    waiting: Vec<u32>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RungEntry {
    pub(crate) trial: TrialId,
    pub(crate) score: f64,
    pub(crate) promoted: bool,
}

impl Rung {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// All of them, the best first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &RungEntry> {
        self.chunks.iter().flatten()
    }

    /// The score at a place, from 0.
    pub(crate) fn score_at(&self, place: usize) -> Option<f64> {
        let mut before = 0;
        for (chunk, entries) in self.chunks.iter().zip(&self.entries) {
            match chunk.get(place - before) {
                Some(entry) => return Some(entry.score),
                None => before += *entries as usize,
            }
        }
        None
    }

    /// Whoever is at a place, and so many before it and behind it.
    pub(crate) fn around(&self, place: usize, reach: usize) -> Vec<TrialId> {
        let first = place.saturating_sub(reach);
        let (mut index, mut before) = (0, 0);
        while let Some(entries) = self.entries.get(index)
            && before + *entries as usize <= first
        {
            (index, before) = (index + 1, before + *entries as usize);
        }
        let near = self.chunks[index..].iter().flatten().skip(first - before);
        near.take(place + reach + 1 - first).map(|entry| entry.trial).collect()
    }

    /// Adds a trial before those that are equally good; returns its place, from 0.
    pub(crate) fn insert_before_equals(&mut self, trial: TrialId, score: f64) -> usize {
        self.insert(trial, score, |other| other < score)
    }

    /// Adds a trial after those that are equally good; returns its place, from 0.
    pub(crate) fn insert_after_equals(&mut self, trial: TrialId, score: f64) -> usize {
        self.insert(trial, score, |other| other <= score)
    }

    fn insert(&mut self, trial: TrialId, score: f64, is_before: impl Fn(f64) -> bool) -> usize {
        let entry = RungEntry { trial, score, promoted: false };
        self.count += 1;
        // The first whose worst comes after the new one, or the last.
        let index = self.worst.partition_point(|worst| is_before(*worst));
        let index = index.min(self.chunks.len().max(1) - 1);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.put(0, vec![entry]);
            return 0;
        };
        let within = chunk.partition_point(|other| is_before(other.score));
        chunk.insert(within, entry);
        self.worst[index] = self.worst[index].max(score);
        self.entries[index] += 1;
        self.waiting[index] += 1;
        if chunk.len() > MOST_TOGETHER {
            let mut lower = self.take(index);
            let upper = lower.split_off(MOST_TOGETHER / 2);
            self.put(index, upper);
            self.put(index, lower);
        }
        let before: u32 = self.entries[..index].iter().sum();
        before as usize + within
    }

    /// The best of the first `top` that was not promoted; now it is.
    pub(crate) fn promote(&mut self, top: usize) -> Option<TrialId> {
        let index = self.waiting.iter().position(|waiting| *waiting > 0)?;
        let before: u32 = self.entries[..index].iter().sum();
        let place = self.chunks[index].iter().position(|entry| !entry.promoted)?;
        if before as usize + place >= top {
            return None;
        }
        self.waiting[index] -= 1;
        self.chunks[index][place].promoted = true;
        Some(self.chunks[index][place].trial)
    }

    /// Takes a trial out, as if it had never been there.
    pub(crate) fn remove(&mut self, trial: TrialId) {
        let has = |chunk: &Vec<RungEntry>| chunk.iter().any(|entry| entry.trial == trial);
        let Some(index) = self.chunks.iter().position(has) else { return };
        let mut chunk = self.take(index);
        chunk.retain(|entry| entry.trial != trial);
        self.count -= 1;
        if !chunk.is_empty() {
            self.put(index, chunk);
        }
    }

    fn put(&mut self, index: usize, chunk: Vec<RungEntry>) {
        let waiting = chunk.iter().filter(|entry| !entry.promoted).count();
        let worst = chunk.last().map_or(f64::NEG_INFINITY, |entry| entry.score);
        self.worst.insert(index, worst);
        self.entries.insert(index, chunk.len() as u32);
        self.waiting.insert(index, waiting as u32);
        self.chunks.insert(index, chunk);
    }

    fn take(&mut self, index: usize) -> Vec<RungEntry> {
        self.worst.remove(index);
        self.entries.remove(index);
        self.waiting.remove(index);
        self.chunks.remove(index)
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
        check(1.0 + f64::EPSILON, 2, 64);
    }

    #[test]
    fn a_long_rung_is_what_a_list_would_be() {
        let mut rng = salamander_core::seed::Rng::new(3);
        let (mut rung, mut list): (Rung, Vec<(TrialId, f64, bool)>) = (Rung::new(1), Vec::new());
        for number in 0..5_000 {
            let (trial, score) = (TrialId(number), rng.below(700) as f64);
            match rng.below(4) {
                0 if !list.is_empty() => {
                    let gone = list.remove(rng.below(list.len() as u64) as usize).0;
                    rung.remove(gone);
                }
                1 => {
                    let top = rng.below(list.len() as u64 + 1) as usize;
                    let best = list.iter_mut().take(top).find(|entry| !entry.2);
                    let expected = best.map(|entry| {
                        entry.2 = true;
                        entry.0
                    });
                    assert_eq!(rung.promote(top), expected);
                }
                2 => {
                    let place = list.partition_point(|entry| entry.1 <= score);
                    list.insert(place, (trial, score, false));
                    assert_eq!(rung.insert_after_equals(trial, score), place);
                }
                _ => {
                    let place = list.partition_point(|entry| entry.1 < score);
                    list.insert(place, (trial, score, false));
                    assert_eq!(rung.insert_before_equals(trial, score), place);
                }
            }
        }
        let entries = rung.entries().map(|entry| (entry.trial, entry.score, entry.promoted));
        assert!(list.len() > 4 * MOST_TOGETHER && rung.len() == list.len());
        assert_eq!(entries.collect::<Vec<_>>(), list);
        for (place, entry) in list.iter().enumerate() {
            assert_eq!(rung.score_at(place), Some(entry.1));
            let near = &list[place.saturating_sub(3)..list.len().min(place + 4)];
            let near: Vec<TrialId> = near.iter().map(|entry| entry.0).collect();
            assert_eq!(rung.around(place, 3), near);
        }
        assert_eq!(rung.score_at(list.len()), None);
    }
}
