//! The order of an epoch: position to record, computed for any position without the ones before.
//!
//! A keyed permutation takes the place of a shuffled list, so that a worker can start in the middle
//! of an epoch of a billion records at no cost, and every worker agrees without a message.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::seed;

/// How records are put in order for an epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Shuffle {
    /// As in the files.
    None,
    /// Within windows of so many records: reads stay mostly sequential.
    Window(u64),
    /// Within each file, one file after the other: what streamed data needs.
    Partition,
    /// Over all records.
    #[default]
    Full,
}

/// The order of one epoch over a number of records.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    records: u64,
    shuffle: Shuffle,
    key: u64,
}

impl Order {
    /// The order of `epoch` for a run with this `seed`.
    pub fn new(records: u64, shuffle: Shuffle, seed: u64, epoch: u64) -> Self {
        Self { records, shuffle, key: seed::derive(seed, &[ORDER_STREAM, epoch]) }
    }

    /// The record at a position; both run from 0 to the number of records. All of them are one partition.
    pub fn record(&self, position: u64) -> u64 {
        self.record_of(position, |_| 0..self.records)
    }

    /// [`Order::record`] for records in partitions: `partition` gives the records of the one that a record is in. How
    /// many records come behind it plays no part in an order by partition, so that it can be asked for early.
    pub fn record_of(&self, position: u64, partition: impl FnOnce(u64) -> Range<u64>) -> u64 {
        assert!(position < self.records, "position {position} of {} records", self.records);
        match self.shuffle {
            Shuffle::None => position,
            Shuffle::Partition => {
                let Range { start, end } = partition(position);
                let key = seed::derive(self.key, &[start]);
                start + permute(position - start, end - start, key)
            }
            Shuffle::Full => permute(position, self.records, self.key),
            Shuffle::Window(width) => {
                let width = width.max(1);
                let windows = self.records.div_ceil(width);
                let window = self.window(position / width, windows, width);
                let start = window * width;
                let length = width.min(self.records - start);
                start + permute(position % width, length, seed::derive(self.key, &[window]))
            }
        }
    }

    /// Whole windows change places too; a short last window stays last, so that positions keep
    /// dividing evenly.
    fn window(&self, index: u64, windows: u64, width: u64) -> u64 {
        let whole = if self.records.is_multiple_of(width) { windows } else { windows - 1 };
        if index < whole { permute(index, whole, self.key) } else { index }
    }
}

/// Keeps the order's stream apart from the other users of the run's seed.
const ORDER_STREAM: u64 = 0x6f72_6465_7200_0001;
const ROUNDS: u64 = 4;

/// A bijection of `[0, n)`: a Feistel network over the next even power of two, walked along its
/// cycle until it falls inside (at most four tries on average).
fn permute(value: u64, n: u64, key: u64) -> u64 {
    if n <= 1 {
        return value;
    }
    let half = (64 - (n - 1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut value = value;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..ROUNDS {
            let mixed = seed::mix(right ^ seed::mix(key.wrapping_add(round)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        value = (left << half) | right;
        if value < n {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_record_comes_once(records in 1u64..3000, width in 1u64..400, seed: u64, epoch in 0u64..5) {
            for shuffle in [Shuffle::None, Shuffle::Window(width), Shuffle::Partition, Shuffle::Full] {
                let order = Order::new(records, shuffle, seed, epoch);
                let mut seen: Vec<u64> = (0..records).map(|p| order.record(p)).collect();
                seen.sort_unstable();
                prop_assert!(seen.into_iter().eq(0..records), "{:?}", shuffle);
            }
        }
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let take = |seed, epoch| -> Vec<u64> {
            let order = Order::new(1000, Shuffle::Full, seed, epoch);
            (0..1000).map(|p| order.record(p)).collect()
        };
        assert_ne!(take(1, 0), take(1, 1));
        assert_ne!(take(1, 0), take(2, 0));
        assert_eq!(take(1, 0), take(1, 0));
    }

    #[test]
    fn windows_stay_together() {
        let order = Order::new(1000, Shuffle::Window(100), 7, 0);
        for start in (0..1000).step_by(100) {
            let windows: Vec<u64> = (start..start + 100).map(|p| order.record(p) / 100).collect();
            assert!(windows.iter().all(|w| *w == windows[0]));
        }
    }

    #[test]
    fn partitions_stay_in_their_order_and_know_nothing_of_those_behind_them() {
        let partition = |record: u64| match record {
            0..10 => 0..10,
            10..11 => 10..11,
            _ => 11..40,
        };
        let take = |records| -> Vec<u64> {
            let order = Order::new(records, Shuffle::Partition, 7, 0);
            (0..records).map(|position| order.record_of(position, partition)).collect()
        };
        let all = take(40);
        for own in [0..10, 10..11, 11..40] {
            let mut within = all[own.start as usize..own.end as usize].to_vec();
            assert!(own.end - own.start == 1 || !within.is_sorted(), "{within:?}");
            within.sort_unstable();
            assert!(within.into_iter().eq(own));
        }
        assert_eq!(take(11), all[..11]);
        let later = Order::new(40, Shuffle::Partition, 7, 1);
        assert!((0..40).any(|at| later.record_of(at, partition) != all[at as usize]));
    }

    #[test]
    fn neighbours_are_spread_by_a_full_shuffle() {
        let order = Order::new(100_000, Shuffle::Full, 3, 1);
        let far = (0..99_999).filter(|p| order.record(*p).abs_diff(order.record(p + 1)) > 1000);
        assert!(far.count() > 95_000);
    }

    #[test]
    fn large_epochs_cost_nothing() {
        let order = Order::new(u64::MAX / 2, Shuffle::Full, 3, 1);
        assert!(order.record(u64::MAX / 2 - 1) < u64::MAX / 2);
    }
}
