//! The order of an epoch: position to record, computed for any position without the ones before.
//!
//! A keyed permutation takes the place of a shuffled list, so that a worker can start in the middle
//! of an epoch of a billion records at no cost, and every worker agrees without a message.

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

    /// The record at a position; both run from 0 to the number of records.
    pub fn record(&self, position: u64) -> u64 {
        assert!(position < self.records, "position {position} of {} records", self.records);
        match self.shuffle {
            Shuffle::None => position,
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
            for shuffle in [Shuffle::None, Shuffle::Window(width), Shuffle::Full] {
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
