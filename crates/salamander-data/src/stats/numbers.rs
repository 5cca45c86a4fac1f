//! Mean, deviation, range and quantiles of a stream of numbers.

use salamander_core::seed::{Rng, derive};
use serde::{Deserialize, Serialize};

/// Numbers kept for quantiles: with these a quantile is off by less than 2 in 100 ranks nearly always.
const RESERVOIR: usize = 4096;

/// What is known of a column's numbers. Means and squares follow Welford
/// (<https://doi.org/10.1080/00401706.1962.10490022>), and their merging Chan et al.; the quantiles come
/// from a sample of 4,096 numbers, drawn the same way every time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "NumbersFile", into = "NumbersFile")]
pub struct Numbers {
    /// How many finite numbers there are.
    pub count: u64,
    /// How many were infinite or not a number; they are in no other figure.
    pub not_finite: u64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
    /// All numbers, or some of them; read from a file, the median.
    sample: Vec<f64>,
    /// Whether a file says that the median is exact.
    told_exact: bool,
}

/// Numbers as JSON. A file that people write needs `count`, `mean` and `std`.
#[derive(Serialize, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct NumbersFile {
    count: u64,
    not_finite: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Absent where it is beyond all numbers, as for words such as 12e289.
    std: Option<f64>,
    /// What the deviation follows from, to its last bit.
    squares: Option<f64>,
    median: Option<f64>,
    /// False where the median is an estimate.
    median_exact: bool,
}

impl From<Numbers> for NumbersFile {
    fn from(numbers: Numbers) -> NumbersFile {
        let (std, median) = (Some(numbers.std()), numbers.quantile(0.5));
        let median_exact = numbers.quantiles_are_exact();
        let Numbers { count, not_finite, min, max, mean, squares, .. } = numbers;
        let squares = Some(squares);
        NumbersFile { count, not_finite, min, max, mean, std, squares, median, median_exact }
    }
}

impl From<NumbersFile> for Numbers {
    fn from(file: NumbersFile) -> Numbers {
        let NumbersFile { count, not_finite, min, max, mean, median, median_exact, .. } = file;
        let std = file.std.unwrap_or_default();
        let squares = file.squares.unwrap_or(std * std * count as f64);
        let sample = median.into_iter().collect();
        Numbers { count, not_finite, min, max, mean, squares, sample, told_exact: median_exact }
    }
}

impl Numbers {
    /// The standard deviation of these numbers (divided by their count, as a normaliser wants it).
    pub fn std(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).sqrt() }
    }

    /// The number below which a share of all lies: 0.5 gives the median. Exact up to 4,096 numbers, and
    /// always exact for 0 and 1.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.count == 0 || share.is_nan() || self.sample.is_empty() {
            return None;
        }
        if share <= 0.0 {
            return Some(self.min);
        }
        if share >= 1.0 {
            return Some(self.max);
        }
        let mut sample = self.sample.clone();
        let rank = ((sample.len() - 1) as f64 * share).round() as usize;
        let (_, found, _) = sample.select_nth_unstable_by(rank, f64::total_cmp);
        Some(*found)
    }

    /// Whether quantiles are those of all numbers, and not estimates from a sample.
    pub fn quantiles_are_exact(&self) -> bool {
        self.told_exact || self.sample.len() as u64 == self.count
    }

    pub(super) fn observe(&mut self, number: f64) {
        if !number.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.widen(number, number);
        self.count += 1;
        let before = number - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (number - self.mean);
        if self.sample.len() < RESERVOIR {
            self.sample.push(number);
            return;
        }
        // Vitter's algorithm R; the draw is a function of the count, so no generator is kept.
        let place = Rng::new(derive(0, &[self.count])).below(self.count) as usize;
        if let Some(kept) = self.sample.get_mut(place) {
            *kept = number;
        }
    }

    pub(super) fn merge(&mut self, other: &Numbers) {
        self.not_finite += other.not_finite;
        if other.count == 0 {
            return;
        }
        self.widen(other.min, other.max);
        self.merge_samples(other);
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * theirs / (ours + theirs);
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
        self.count += other.count;
    }

    fn widen(&mut self, min: f64, max: f64) {
        let first = self.count == 0;
        self.min = if first { min } else { self.min.min(min) };
        self.max = if first { max } else { self.max.max(max) };
    }

    /// Draws from both samples as from all the numbers they stand for, without putting back.
    fn merge_samples(&mut self, other: &Numbers) {
        let mut rng = Rng::new(derive(1, &[self.count, other.count]));
        let mut piles = [std::mem::take(&mut self.sample), other.sample.clone()];
        let mut weights = [self.count, other.count];
        let merged = (piles[0].len() + piles[1].len()).min(RESERVOIR);
        while self.sample.len() < merged {
            let first = rng.below(weights[0] + weights[1]) < weights[0];
            let pick = if (first && !piles[0].is_empty()) || piles[1].is_empty() { 0 } else { 1 };
            let place = rng.below(piles[pick].len() as u64) as usize;
            self.sample.push(piles[pick].swap_remove(place));
            // One number less to draw from: without putting back, the shares stay unbiased.
            weights[pick] = weights[pick].saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn numbers(values: impl IntoIterator<Item = f64>) -> Numbers {
        let mut numbers = Numbers::default();
        values.into_iter().for_each(|value| numbers.observe(value));
        numbers
    }

    #[test]
    fn small_streams_are_exact() {
        let found = numbers([4.0, 1.0, f64::NAN, 3.0, 2.0, 5.0, f64::INFINITY]);
        assert_eq!((found.count, found.not_finite), (5, 2));
        assert_eq!((found.min, found.max, found.mean, found.std()), (1.0, 5.0, 3.0, 2f64.sqrt()));
        let check = |share: f64, expected: f64| assert_eq!(found.quantile(share), Some(expected));
        check(0.0, 1.0);
        check(0.25, 2.0);
        check(0.5, 3.0);
        check(1.0, 5.0);
        assert_eq!(Numbers::default().quantile(0.5), None);
        assert_eq!(Numbers::default().std(), 0.0);
    }

    #[test]
    fn what_is_beyond_all_numbers_is_read_back() {
        let text = serde_json::to_string(&numbers([1e289, 2.0])).expect("JSON");
        let found: Numbers = serde_json::from_str(&text).expect("numbers");
        assert_eq!((found.count, found.max), (2, 1e289));
    }

    #[test]
    fn far_from_zero_the_deviation_keeps_its_digits() {
        let found = numbers([1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
        assert!((found.std() - 22.5f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn quantiles_of_long_streams_are_near() {
        let whole = numbers((0..200_000).map(f64::from));
        let mut merged = numbers((0..150_000).map(f64::from));
        merged.merge(&numbers((150_000..200_000).map(f64::from)));
        for found in [whole, merged] {
            for share in [0.01, 0.25, 0.5, 0.75, 0.99] {
                let rank = found.quantile(share).unwrap() / 200_000.0;
                assert!((rank - share).abs() < 0.025, "{share}: {rank}");
            }
        }
    }

    proptest! {
        #[test]
        fn merging_is_observing_all(
            first in vec(-1e3f64..1e3, 0..50),
            second in vec(-1e3f64..1e3, 0..50),
        ) {
            let whole = numbers(first.iter().chain(&second).copied());
            let mut merged = numbers(first);
            merged.merge(&numbers(second));
            prop_assert_eq!((merged.count, merged.min, merged.max), (whole.count, whole.min, whole.max));
            prop_assert!((merged.mean - whole.mean).abs() < 1e-9);
            prop_assert!((merged.std() - whole.std()).abs() < 1e-9);
            prop_assert_eq!(merged.quantile(0.5), whole.quantile(0.5));
        }
    }
}
