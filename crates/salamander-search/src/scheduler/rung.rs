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
const MOST_TOGETHER: usize = 256;

/// What was measured at one length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rung {
    pub(crate) length: u64,
    /// In order, within and between; none is empty.
    chunks: Vec<RungChunk>,
    count: usize,
}

#[derive(Clone, Debug)]
struct RungChunk {
    entries: Vec<RungEntry>,
    /// How many of them were not promoted.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RungEntry {
    pub(crate) trial: TrialId,
    pub(crate) score: f64,
    pub(crate) promoted: bool,
}

impl Rung {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, chunks: Vec::new(), count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// All of them, the best first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &RungEntry> {
        self.chunks.iter().flat_map(|chunk| &chunk.entries)
    }

    /// Adds a trial before those that are equally good; returns its place, from 0.
    pub(crate) fn insert_before_equals(&mut self, trial: TrialId, score: f64) -> usize {
        self.insert(trial, score, |entry| entry.score < score)
    }

    /// Adds a trial after those that are equally good.
    pub(crate) fn insert_after_equals(&mut self, trial: TrialId, score: f64) {
        self.insert(trial, score, |entry| entry.score <= score);
    }

    fn insert(
        &mut self,
        trial: TrialId,
        score: f64,
        is_before: impl Fn(&RungEntry) -> bool,
    ) -> usize {
        let entry = RungEntry { trial, score, promoted: false };
        self.count += 1;
        // The first whose last entry comes after the new one, or the last.
        let ends_before = |chunk: &RungChunk| chunk.entries.last().is_some_and(&is_before);
        let index = self.chunks.partition_point(ends_before).min(self.chunks.len().max(1) - 1);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(RungChunk { entries: vec![entry], waiting: 1 });
            return 0;
        };
        let within = chunk.entries.partition_point(is_before);
        chunk.entries.insert(within, entry);
        chunk.waiting += 1;
        if chunk.entries.len() > MOST_TOGETHER {
            let upper = RungChunk::new(chunk.entries.split_off(MOST_TOGETHER / 2));
            chunk.waiting -= upper.waiting;
            self.chunks.insert(index + 1, upper);
        }
        self.chunks[..index].iter().map(|chunk| chunk.entries.len()).sum::<usize>() + within
    }

    /// The best of the first `top` that was not promoted; now it is.
    pub(crate) fn promote(&mut self, top: usize) -> Option<TrialId> {
        let mut before = 0;
        for chunk in &mut self.chunks {
            if chunk.waiting > 0 {
                let place = chunk.entries.iter().position(|entry| !entry.promoted)?;
                if before + place >= top {
                    return None;
                }
                chunk.waiting -= 1;
                chunk.entries[place].promoted = true;
                return Some(chunk.entries[place].trial);
            }
            before += chunk.entries.len();
        }
        None
    }

    /// Takes a trial out, as if it had never been there.
    pub(crate) fn remove(&mut self, trial: TrialId) {
        let Some(index) =
            self.chunks.iter().position(|chunk| chunk.entries.iter().any(|e| e.trial == trial))
        else {
            return;
        };
        let mut entries = std::mem::take(&mut self.chunks[index].entries);
        entries.retain(|entry| entry.trial != trial);
        self.count -= 1;
        match entries.is_empty() {
            true => drop(self.chunks.remove(index)),
            false => self.chunks[index] = RungChunk::new(entries),
        }
    }
}

impl RungChunk {
    fn new(entries: Vec<RungEntry>) -> Self {
        let waiting = entries.iter().filter(|entry| !entry.promoted).count();
        Self { entries, waiting }
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
                    rung.insert_after_equals(trial, score);
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
    }
}
