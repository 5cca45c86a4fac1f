//! ElasticDL's pre-processing layers as plain functions, so that the same code serves a derived example, a
//! reader written by hand and a program that prepares files.
//!
//! Numbers become buckets here; [`hash()`] and [`Vocabulary`] turn words into numbers, and the functions about
//! several values ([`to_ragged`], [`concatenate_with_offset`]) take slices. ElasticDL's `ToNumber` is
//! `#[input(missing = 0.0)]`, and its `ToSparse` is `#[input(ragged, ignore = -1)]`.

mod hash;
mod several;
mod vocabulary;

use std::path::PathBuf;

pub(crate) use hash::fnv1a;
pub use hash::{hash, hash_int, hash_of_column};
pub use several::{IdColumn, concatenate_with_offset, to_ragged};
pub use vocabulary::Vocabulary;

/// Why values could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An id that its column's size does not allow.
    #[error(
        "column {column}: id {id} is not below its size {size}: give the size that the ids need"
    )]
    Id {
        /// Number of the column, from 0.
        column: usize,
        /// The id.
        id: i64,
        /// How many ids the column has.
        size: i64,
    },
    /// Sizes of columns that add up to more than an integer holds.
    #[error("the sizes of {columns} columns add up to more than ids can be")]
    Sizes {
        /// How many columns there are.
        columns: usize,
    },
    /// The vocabulary's file cannot be read.
    #[error("vocabulary {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A line of a vocabulary without a word.
    #[error("{vocabulary}: line {line} is empty: write one word per line")]
    EmptyLine {
        /// The file.
        vocabulary: String,
        /// The line, from 1.
        line: usize,
    },
    /// A word that has two lines of a vocabulary.
    #[error("{vocabulary}: line {line} repeats {word:?} of line {first}: remove one of them")]
    RepeatedLine {
        /// The file.
        vocabulary: String,
        /// The line, from 1.
        line: usize,
        /// Where the word is first.
        first: usize,
        /// The word.
        word: String,
    },
}

/// `(x - mean) / std`, and zero where `std` is zero: a column that never changes says nothing.
///
/// [`Stats::normaliser`](crate::stats::Stats::normaliser) gives mean and standard deviation of a column.
///
/// ```
/// use salamander_data::preprocess::normalise;
///
/// let heights = [150.0, 170.0, 190.0];
/// assert_eq!(heights.map(|x| normalise(x, 170.0, 10.0)), [-2.0, 0.0, 2.0]);
/// assert_eq!(normalise(5.0, 5.0, 0.0), 0.0);
/// ```
pub fn normalise(x: f32, mean: f32, std: f32) -> f32 {
    if std == 0.0 { 0.0 } else { (x - mean) / std }
}

/// The bucket of a number: how many boundaries are at most `x`. The boundaries are ascending; `n` of them
/// make `n + 1` buckets. What is not a number falls into bucket 0.
///
/// ```
/// use salamander_data::preprocess::discretise;
///
/// let ages = [3.0, 18.0, 24.9, 80.0];
/// assert_eq!(ages.map(|x| discretise(x, &[18.0, 25.0])), [0, 1, 1, 2]);
/// ```
pub fn discretise(x: f32, boundaries: &[f32]) -> i64 {
    boundaries.partition_point(|&boundary| boundary <= x) as i64
}

/// The logarithm of `x` to `base` (above 1), rounded: buckets for counts and amounts of money. Numbers below
/// 1, and what is not a number, fall into bucket 0.
///
/// ```
/// use salamander_data::preprocess::log_round;
///
/// let clicks = [0.0, 1.0, 20.0, 980.0];
/// assert_eq!(clicks.map(|x| log_round(x, 10.0)), [0, 0, 1, 3]);
/// ```
pub fn log_round(x: f32, base: f32) -> i64 {
    if x.is_nan() || x < 1.0 || base <= 1.0 {
        return 0;
    }
    // In f64, because a logarithm in f32 would round 1,000 to the base 10 only by luck.
    let x = f64::from(x.min(f32::MAX));
    (x.ln() / f64::from(base).ln()).round() as i64
}

/// The number itself, rounded (halves away from zero) and kept within `0..=max`. What is not a number
/// becomes 0. An embedding of it needs `max + 1` rows.
///
/// ```
/// use salamander_data::preprocess::round_identity;
///
/// let rooms = [1.2, 1.6, -3.0, 700.0];
/// assert_eq!(rooms.map(|x| round_identity(x, 5)), [1, 2, 0, 5]);
/// ```
pub fn round_identity(x: f32, max: i64) -> i64 {
    // `as` saturates, and makes 0 of what is not a number.
    (x.round() as i64).min(max).max(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn odd_numbers_have_a_bucket_too() {
        let check = |x: f32, expected: (i64, i64, i64)| {
            let found = (discretise(x, &[0.0, 1.0]), log_round(x, 2.0), round_identity(x, 9));
            assert_eq!(found, expected, "{x}");
        };
        check(f32::NAN, (0, 0, 0));
        check(f32::NEG_INFINITY, (0, 0, 0));
        check(f32::INFINITY, (2, 128, 9));
        check(-0.0, (1, 0, 0));
        check(0.5, (1, 0, 1));
        check(3.0, (2, 2, 3));
        assert_eq!(log_round(8.0, 1.0), 0);
        assert_eq!(discretise(7.0, &[]), 0);
    }

    #[test]
    fn logarithms_of_powers_are_whole() {
        for power in 0..30 {
            assert_eq!(log_round(10f32.powi(power), 10.0), i64::from(power));
        }
    }

    proptest! {
        #[test]
        fn larger_numbers_have_no_smaller_bucket(a in any::<f32>(), b in any::<f32>()) {
            prop_assume!(a <= b);
            prop_assert!(discretise(a, &[-1.0, 0.0, 5.0]) <= discretise(b, &[-1.0, 0.0, 5.0]));
            prop_assert!(log_round(a, 3.0) <= log_round(b, 3.0));
            prop_assert!(round_identity(a, 50) <= round_identity(b, 50));
        }
    }
}
