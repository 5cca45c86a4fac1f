//! Sets of numbers as sorted disjoint ranges: as long as there are gaps in them, not as there are numbers.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The ranges, if they are sorted, apart from each other and none is empty.
    pub fn from_sorted(ranges: Vec<Range<u64>>) -> Option<Self> {
        let apart = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        let filled = ranges.iter().all(|range| range.start < range.end);
        (apart && filled).then_some(Self(ranges))
    }

    /// The ranges, in order, none touching another.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least number.
    pub fn first(&self) -> Option<u64> {
        self.0.first().map(|range| range.start)
    }

    /// All numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= number);
        after > 0 && number < self.0[after - 1].end
    }

    /// Adds a number; tells whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        let is_new = !self.contains(number);
        if is_new {
            self.add(number..number + 1);
        }
        is_new
    }

    /// Adds all numbers of a range; tells how many of them were there.
    pub fn add(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        let first = self.0.partition_point(|range| range.end < new.start);
        let last = self.0.partition_point(|range| range.start <= new.end);
        let touched = &self.0[first..last];
        let common =
            |range: &Range<u64>| range.end.min(new.end).saturating_sub(range.start.max(new.start));
        let known = touched.iter().map(common).sum();
        let start = touched.first().map_or(new.start, |range| range.start.min(new.start));
        let end = touched.last().map_or(new.end, |range| range.end.max(new.end));
        self.0.splice(first..last, std::iter::once(start..end));
        known
    }

    /// Takes a number out; tells whether it was there.
    pub fn remove(&mut self, number: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= number);
        if after == 0 || number >= self.0[after - 1].end {
            return false;
        }
        let Range { start, end } = self.0[after - 1];
        let rest = [start..number, number + 1..end].into_iter().filter(|range| !range.is_empty());
        self.0.splice(after - 1..after, rest);
        true
    }

    /// The numbers that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut l, mut r) = (0, 0);
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (self.0.get(l), other.0.get(r)) {
            let range = a.start.max(b.start)..a.end.min(b.end);
            if range.start < range.end {
                both.push(range);
            }
            *(if a.end < b.end { &mut l } else { &mut r }) += 1;
        }
        Self(both)
    }

    /// The numbers that are not in the other set.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for range in &self.0 {
            let mut start = range.start;
            while let Some(cut) = cuts.peek() {
                if cut.start >= range.end {
                    break;
                }
                if start < cut.start {
                    rest.push(start..cut.start);
                }
                start = start.max(cut.end);
                if cut.end > range.end {
                    break;
                }
                cuts.next();
            }
            if start < range.end {
                rest.push(start..range.end);
            }
        }
        Self(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(0u64..50, 0..60)
    }

    fn of(numbers: &[u64]) -> (Ranges, BTreeSet<u64>) {
        let mut ranges = Ranges::default();
        for number in numbers {
            ranges.add(*number..*number + 1);
        }
        (ranges, numbers.iter().copied().collect())
    }

    proptest! {
        #[test]
        fn ranges_are_like_a_set(add in numbers(), remove in numbers(), other in numbers()) {
            let (mut ranges, mut set) = of(&[]);
            for number in add {
                prop_assert_eq!(ranges.insert(number), set.insert(number));
            }
            for number in remove {
                prop_assert_eq!(ranges.remove(number), set.remove(&number));
            }
            prop_assert!(Ranges::from_sorted(ranges.as_slice().to_vec()).is_some());
            prop_assert_eq!(ranges.len(), set.len() as u64);
            prop_assert_eq!(ranges.first(), set.first().copied());
            prop_assert!(ranges.iter().eq(set.iter().copied()));
            let (others, other_set) = of(&other);
            let both: Vec<u64> = ranges.intersect(&others).iter().collect();
            prop_assert!(both.into_iter().eq(set.intersection(&other_set).copied()));
            let rest = ranges.without(&others);
            prop_assert!(Ranges::from_sorted(rest.as_slice().to_vec()).is_some());
            prop_assert!(rest.iter().eq(set.difference(&other_set).copied()));
        }

        #[test]
        fn whole_ranges_are_added_like_their_numbers(
            new in prop::collection::vec((0u64..60, 0u64..12), 0..30),
        ) {
            let (mut ranges, mut set) = of(&[]);
            for (start, length) in new {
                let before = set.len() as u64;
                set.extend(start..start + length);
                let new = set.len() as u64 - before;
                prop_assert_eq!(ranges.add(start..start + length), length - new);
                prop_assert!(ranges.iter().eq(set.iter().copied()));
            }
        }
    }
}
