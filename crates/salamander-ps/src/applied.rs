//! Sets of micro-batch names: which pushes a partition has applied, in as many ranges as there are
//! gaps and not in as many bits as there are names.

use std::collections::BTreeMap;
use std::ops::Range;

use salamander_core::plan::MicroBatch;
use serde::{Deserialize, Serialize};

/// A set of names. Names become numbers, `step * slices + k` within their epoch, so that a finished
/// epoch is a single range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    slices: u32,
    /// Every name of an epoch below this one is in the set.
    pruned: u64,
    epochs: BTreeMap<u64, Vec<Range<u64>>>,
}

impl Applied {
    /// The empty set of names of steps with so many slices.
    pub fn new(slices: u32) -> Self {
        Self { slices: slices.max(1), pruned: 0, epochs: BTreeMap::new() }
    }

    /// Slices of a step.
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// The number of a name within its epoch; none when it has no place in a step.
    pub fn number(&self, name: MicroBatch) -> Option<u64> {
        let first = name.step.checked_mul(u64::from(self.slices))?;
        (name.k < self.slices).then_some(())?;
        first.checked_add(u64::from(name.k)).filter(|number| *number < u64::MAX)
    }

    /// Adds a name; tells whether it is new. A name that has no place in a step never is.
    pub fn insert(&mut self, name: MicroBatch) -> bool {
        let Some(number) = self.number(name) else { return false };
        if name.epoch < self.pruned {
            return false;
        }
        let ranges = self.epochs.entry(name.epoch).or_default();
        let after = ranges.partition_point(|range| range.start <= number);
        if after > 0 && number < ranges[after - 1].end {
            return false;
        }
        let joins_left = after > 0 && ranges[after - 1].end == number;
        let joins_right = ranges.get(after).is_some_and(|right| right.start == number + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                ranges[after - 1].end = ranges[after].end;
                ranges.remove(after);
            }
            (true, false) => ranges[after - 1].end += 1,
            (false, true) => ranges[after].start -= 1,
            (false, false) => ranges.insert(after, number..number + 1),
        }
        true
    }

    /// Whether a name is in the set.
    pub fn contains(&self, name: MicroBatch) -> bool {
        let Some(number) = self.number(name) else { return false };
        let within = |ranges: &Vec<Range<u64>>| {
            let after = ranges.partition_point(|range| range.start <= number);
            after > 0 && number < ranges[after - 1].end
        };
        name.epoch < self.pruned || self.epochs.get(&name.epoch).is_some_and(within)
    }

    /// Names in the set, without those that were pruned.
    pub fn len(&self) -> u64 {
        self.epochs.values().flatten().map(|range| range.end - range.start).sum()
    }

    /// Whether nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.pruned == 0 && self.epochs.values().all(Vec::is_empty)
    }

    /// The names that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Applied) -> Applied {
        let mut both = Applied::new(self.slices);
        both.pruned = self.pruned.min(other.pruned);
        let epochs = self.epochs.keys().chain(other.epochs.keys());
        for &epoch in epochs.filter(|epoch| **epoch >= both.pruned) {
            let ranges = intersect(self.ranges(epoch), other.ranges(epoch));
            if !ranges.is_empty() {
                both.epochs.insert(epoch, ranges);
            }
        }
        both
    }

    /// The numbers of an epoch's first `names` names that are not in the set.
    pub fn missing(&self, epoch: u64, names: u64) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut next = 0;
        for range in self.ranges(epoch) {
            if range.start >= names {
                break;
            }
            if next < range.start {
                missing.push(next..range.start);
            }
            next = range.end;
        }
        if next < names {
            missing.push(next..names);
        }
        missing
    }

    /// Forgets the names of epochs below, which count as applied from then on.
    pub fn prune(&mut self, below: u64) {
        self.pruned = self.pruned.max(below);
        self.epochs = self.epochs.split_off(&self.pruned);
    }

    /// The set as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut numbers = vec![u64::from(self.slices), self.pruned, self.epochs.len() as u64];
        for (epoch, ranges) in &self.epochs {
            numbers.extend([*epoch, ranges.len() as u64]);
            numbers.extend(ranges.iter().flat_map(|range| [range.start, range.end]));
        }
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The set in bytes that [`encode`](Applied::encode) made; none for any others.
    pub fn decode(bytes: &[u8]) -> Option<Applied> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let slices = u32::try_from(words.next()?).ok().filter(|slices| *slices > 0)?;
        let mut set = Applied { slices, pruned: words.next()?, epochs: BTreeMap::new() };
        for _ in 0..words.next()? {
            let epoch = words.next()?;
            let follows = set.epochs.last_key_value().is_none_or(|(last, _)| *last < epoch);
            (follows && epoch >= set.pruned).then_some(())?;
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for _ in 0..words.next()? {
                let range = words.next()?..words.next()?;
                let apart = ranges.last().is_none_or(|last| last.end < range.start);
                (apart && range.start < range.end).then_some(())?;
                ranges.push(range);
            }
            set.epochs.insert(epoch, ranges);
        }
        words.next().is_none().then_some(set)
    }

    /// The ranges of an epoch; a pruned epoch is one that has everything.
    fn ranges(&self, epoch: u64) -> &[Range<u64>] {
        const EVERYTHING: &[Range<u64>] = &[Range { start: 0, end: u64::MAX }];
        match epoch < self.pruned {
            true => EVERYTHING,
            false => self.epochs.get(&epoch).map_or(&[], Vec::as_slice),
        }
    }
}

fn intersect(left: &[Range<u64>], right: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut l, mut r) = (0, 0);
    let mut both = Vec::new();
    while let (Some(a), Some(b)) = (left.get(l), right.get(r)) {
        let range = a.start.max(b.start)..a.end.min(b.end);
        if range.start < range.end {
            both.push(range);
        }
        *(if a.end < b.end { &mut l } else { &mut r }) += 1;
    }
    both
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SLICES: u32 = 3;

    fn name((epoch, number): (u64, u64)) -> MicroBatch {
        let slices = u64::from(SLICES);
        MicroBatch { epoch, step: number / slices, k: (number % slices) as u32 }
    }

    fn names() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..3, 0u64..40), 0..80)
    }

    fn set_of(names: &[(u64, u64)]) -> Applied {
        let mut set = Applied::new(SLICES);
        names.iter().for_each(|at| {
            set.insert(name(*at));
        });
        set
    }

    proptest! {
        #[test]
        fn it_is_a_set(names in names()) {
            let mut set = Applied::new(SLICES);
            let mut model = BTreeSet::new();
            for at in names {
                prop_assert_eq!(set.insert(name(at)), model.insert(at));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            for epoch in 0..4 {
                let missing = set.missing(epoch, 45);
                for number in 0..45 {
                    let there = model.contains(&(epoch, number));
                    prop_assert_eq!(set.contains(name((epoch, number))), there);
                    prop_assert_eq!(missing.iter().any(|r| r.contains(&number)), !there);
                }
            }
            prop_assert_eq!(Applied::decode(&set.encode()), Some(set));
        }

        #[test]
        fn intersections_hold_what_both_hold(a in names(), b in names(), below in 0u64..3) {
            let (mut left, right) = (set_of(&a), set_of(&b));
            left.prune(below);
            let both = left.intersect(&right);
            for epoch in 0..3 {
                for number in 0..40 {
                    let at = name((epoch, number));
                    prop_assert_eq!(both.contains(at), left.contains(at) && right.contains(at));
                }
            }
        }

        #[test]
        fn any_bytes_decode_or_not(bytes: Vec<u8>) {
            if let Some(set) = Applied::decode(&bytes) {
                prop_assert_eq!(set.encode(), bytes);
            }
        }
    }

    #[test]
    fn finished_epochs_are_one_range() {
        let set = set_of(&(0..3000).map(|number| (0, number)).collect::<Vec<_>>());
        assert_eq!(set.encode().len(), 8 * 7);
    }

    #[test]
    fn pruned_names_count_as_applied() {
        let mut set = set_of(&[(0, 1), (1, 2)]);
        set.prune(1);
        assert!(set.contains(name((0, 7))) && !set.insert(name((0, 7))));
        assert!(set.missing(0, 9).is_empty());
        assert!(set.contains(name((1, 2))) && !set.contains(name((1, 3))));
    }

    #[test]
    fn names_outside_a_step_are_refused() {
        let mut set = Applied::new(SLICES);
        assert!(!set.insert(MicroBatch { epoch: 0, step: 0, k: SLICES }));
        assert!(!set.insert(MicroBatch { epoch: 0, step: u64::MAX, k: 0 }));
    }
}
