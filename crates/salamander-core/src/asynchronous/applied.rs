//! Which pushes a partition has applied: the truth about what is done, kept where the parameters are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::MicroBatch;
use crate::ranges::Ranges;

/// A set of names. Names become numbers, `step * slices + k` within their epoch, so that a finished epoch is a single
/// range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    slices: u32,
    /// Every name of an epoch below this one is in the set.
    pruned: u64,
    epochs: BTreeMap<u64, Ranges>,
}

impl Applied {
    /// The empty set of names of steps with so many slices.
    pub fn new(slices: u32) -> Self {
        Self::everything(slices, 0)
    }

    /// All names of epochs below.
    pub fn everything(slices: u32, below: u64) -> Self {
        Self { slices: slices.max(1), pruned: below, epochs: BTreeMap::new() }
    }

    /// Names of epochs below this one count as applied and are not kept.
    pub fn pruned(&self) -> u64 {
        self.pruned
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
        name.epoch >= self.pruned && self.epochs.entry(name.epoch).or_default().insert(number)
    }

    /// Whether a name is in the set.
    pub fn contains(&self, name: MicroBatch) -> bool {
        let Some(number) = self.number(name) else { return false };
        let within = |ranges: &Ranges| ranges.contains(number);
        name.epoch < self.pruned || self.epochs.get(&name.epoch).is_some_and(within)
    }

    /// Names in the set, without those that were pruned.
    pub fn len(&self) -> u64 {
        self.epochs.values().map(Ranges::len).sum()
    }

    /// Whether nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.pruned == 0 && self.epochs.values().all(Ranges::is_empty)
    }

    /// The names that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Applied) -> Applied {
        let mut both = Applied::everything(self.slices, self.pruned.min(other.pruned));
        let epochs = self.epochs.keys().chain(other.epochs.keys());
        for &epoch in epochs.filter(|epoch| **epoch >= both.pruned) {
            let ranges = match (epoch < self.pruned, epoch < other.pruned) {
                (true, _) => other.epoch(epoch),
                (_, true) => self.epoch(epoch),
                _ => self.epoch(epoch).intersect(&other.epoch(epoch)),
            };
            if !ranges.is_empty() {
                both.epochs.insert(epoch, ranges);
            }
        }
        both
    }

    /// Those of an epoch's names, given by their numbers, that are not in the set.
    pub fn lacks(&self, epoch: u64, names: &Ranges) -> Ranges {
        match self.epochs.get(&epoch) {
            _ if epoch < self.pruned => Ranges::default(),
            Some(ranges) => names.without(ranges),
            None => names.clone(),
        }
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
            numbers.extend([*epoch, ranges.as_slice().len() as u64]);
            numbers.extend(ranges.as_slice().iter().flat_map(|range| [range.start, range.end]));
        }
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The set in bytes that [`encode`](Applied::encode) made; none for any others.
    pub fn decode(bytes: &[u8]) -> Option<Applied> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let slices = u32::try_from(words.next()?).ok().filter(|slices| *slices > 0)?;
        let mut set = Applied::everything(slices, words.next()?);
        for _ in 0..words.next()? {
            let epoch = words.next()?;
            let follows = set.epochs.last_key_value().is_none_or(|(last, _)| *last < epoch);
            (follows && epoch >= set.pruned).then_some(())?;
            let mut ranges = Vec::new();
            for _ in 0..words.next()? {
                ranges.push(words.next()?..words.next()?);
            }
            set.epochs.insert(epoch, Ranges::from_sorted(ranges)?);
        }
        words.next().is_none().then_some(set)
    }

    fn epoch(&self, epoch: u64) -> Ranges {
        self.epochs.get(&epoch).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const SLICES: u32 = 3;

    fn name((epoch, number): (u64, u64)) -> MicroBatch {
        let slices = u64::from(SLICES);
        MicroBatch { epoch, step: number / slices, k: (number % slices) as u32 }
    }

    fn first(numbers: u64) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.add(0..numbers);
        ranges
    }

    fn names() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..3, 0u64..40), 0..80)
    }

    fn of(names: &[(u64, u64)], pruned: u64) -> (Applied, HashSet<(u64, u64)>) {
        let mut applied = Applied::new(SLICES);
        for at in names {
            applied.insert(name(*at));
        }
        applied.prune(pruned);
        let all = (0..pruned).flat_map(|epoch| (0..60).map(move |number| (epoch, number)));
        (applied, names.iter().copied().chain(all).collect())
    }

    proptest! {
        #[test]
        fn names_are_kept_like_in_a_hash_set(add in names(), pruned in 0u64..3) {
            let mut applied = Applied::new(SLICES);
            let mut set = HashSet::new();
            for at in &add {
                prop_assert_eq!(applied.insert(name(*at)), set.insert(*at));
            }
            prop_assert_eq!(applied.len(), set.len() as u64);
            applied.prune(pruned);
            let (_, set) = of(&add, pruned);
            for at in (0..4).flat_map(|epoch| (0..45).map(move |number| (epoch, number))) {
                prop_assert_eq!(applied.contains(name(at)), set.contains(&at));
                prop_assert_eq!(applied.clone().insert(name(at)), !set.contains(&at));
            }
            for epoch in 0..4 {
                let lacks = applied.lacks(epoch, &first(42));
                let expected = (0..42).filter(|number| !set.contains(&(epoch, *number)));
                prop_assert!(lacks.iter().eq(expected));
            }
        }

        #[test]
        fn both_is_an_intersection(
            (one, other) in (names(), names()), (low, high) in (0u64..4, 0u64..4),
        ) {
            let ((one, first), (other, second)) = (of(&one, low), of(&other, high));
            let both = one.intersect(&other);
            prop_assert_eq!(&both, &other.intersect(&one));
            for at in (0..4).flat_map(|epoch| (0..45).map(move |number| (epoch, number))) {
                let expected = first.contains(&at) && second.contains(&at);
                prop_assert_eq!(both.contains(name(at)), expected);
            }
        }

        #[test]
        fn sets_survive_encoding(names in names(), pruned in 0u64..3) {
            let (set, _) = of(&names, pruned);
            prop_assert_eq!(Applied::decode(&set.encode()), Some(set.clone()));
            let json = serde_json::to_string(&set).expect("it is plain data");
            prop_assert_eq!(serde_json::from_str::<Applied>(&json).expect("it was written"), set);
        }

        #[test]
        fn any_bytes_are_a_sound_set_or_none(words in prop::collection::vec(0u64..9, 0..30)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if let Some(set) = Applied::decode(&bytes) {
                prop_assert_eq!(set.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_name_without_a_place_in_a_step_is_never_new() {
        let mut set = Applied::new(SLICES);
        assert!(!set.insert(MicroBatch { epoch: 0, step: 1, k: SLICES }));
        assert!(!set.insert(MicroBatch { epoch: 0, step: u64::MAX, k: 0 }));
        assert!(set.is_empty());
    }

    #[test]
    fn a_finished_epoch_is_one_range() {
        let mut set = Applied::new(SLICES);
        (0..60).rev().for_each(|number| assert!(set.insert(name((1, number)))));
        assert_eq!(set.encode().len(), 8 * (3 + 2 + 2));
        assert!(set.lacks(1, &first(61)).iter().eq([60]));
    }
}
