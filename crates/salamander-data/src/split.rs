//! Divides records into parts and evens out classes, by pure functions of labels and a seed, so that a split
//! can be made again anywhere without storing it.

use std::collections::BTreeMap;

use salamander_core::seed::{Rng, derive};

/// Why records cannot be divided.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No shares at all.
    #[error("no shares: give one for each part, such as 0.8 and 0.2")]
    NoShares,
    /// A share that is negative or no number.
    #[error("share {share} of part {part}: give a number that is not negative")]
    Share {
        /// The part, from 0.
        part: usize,
        /// Its share.
        share: f64,
    },
    /// Shares that divide nothing.
    #[error("the shares add up to {0}: give at least one above zero, and none beyond bounds")]
    Sum(f64),
}

/// Divides the numbers `0..records` at random into parts with these shares, which need not add up to 1. Every
/// number is in exactly one part, the parts are sorted, and their sizes are within one record of the shares.
///
/// ```
/// use salamander_data::split::split;
///
/// let parts = split(10, &[0.8, 0.2], 42)?;
/// assert_eq!((parts[0].len(), parts[1].len()), (8, 2));
/// assert_eq!(parts, split(10, &[0.8, 0.2], 42)?);
/// # Ok::<(), salamander_data::split::Error>(())
/// ```
pub fn split(records: u64, shares: &[f64], seed: u64) -> Result<Vec<Vec<u64>>, Error> {
    let shares = checked(shares)?;
    let mut parts = vec![Vec::new(); shares.len()];
    let mut left = Deal::new(&shares);
    left.deal((0..records).collect(), Rng::new(derive(seed, &[0])), &mut parts);
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

/// Divides records by their labels, so that every part has every class in the same proportion as far as whole
/// records allow. Each class is divided within one record of the shares, and so are the records as a whole up
/// to one record per part. Otherwise like [`split`].
///
/// ```
/// use salamander_data::split::stratified_split;
///
/// let labels = [0, 0, 0, 0, 1, 1];
/// let parts = stratified_split(&labels, &[0.5, 0.5], 7)?;
/// let ones = |part: &[u64]| part.iter().filter(|&&record| labels[record as usize] == 1).count();
/// assert_eq!((ones(&parts[0]), ones(&parts[1])), (1, 1));
/// # Ok::<(), salamander_data::split::Error>(())
/// ```
pub fn stratified_split(labels: &[u64], shares: &[f64], seed: u64) -> Result<Vec<Vec<u64>>, Error> {
    let shares = checked(shares)?;
    let mut parts = vec![Vec::new(); shares.len()];
    let mut left = Deal::new(&shares);
    for (class, records) in classes(labels) {
        left.deal(records, Rng::new(derive(seed, &[1, class])), &mut parts);
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

/// How many records of each class each part gets, as [`stratified_split`] divides classes of these sizes: for those who
/// divide records that no memory holds.
///
/// ```
/// use salamander_data::split::stratified_counts;
///
/// assert_eq!(stratified_counts(&[4, 2], &[0.5, 0.5])?, [[2, 2], [1, 1]]);
/// # Ok::<(), salamander_data::split::Error>(())
/// ```
pub fn stratified_counts(classes: &[u64], shares: &[f64]) -> Result<Vec<Vec<u64>>, Error> {
    let shares = checked(shares)?;
    let mut left = Deal::new(&shares);
    Ok(classes.iter().map(|records| left.counts(*records)).collect())
}

/// All records, with repetitions of the rarer classes so that each class occurs as often as the most frequent.
/// A record is repeated as often as any other of its class, give or take one. The result is sorted: shuffling
/// is the order's business.
///
/// ```
/// use salamander_data::split::oversample;
///
/// let records = oversample(&[0, 0, 0, 0, 1, 1], 7);
/// assert_eq!(records, [0, 1, 2, 3, 4, 4, 5, 5]);
/// ```
pub fn oversample(labels: &[u64], seed: u64) -> Vec<u64> {
    let classes = classes(labels);
    let most = classes.values().map(Vec::len).max().unwrap_or(0);
    let mut out = Vec::with_capacity(most * classes.len());
    for (class, mut records) in classes {
        // Whole rounds give every record as often; the rest is drawn without putting back.
        for _ in 0..most / records.len() {
            out.extend_from_slice(&records);
        }
        let rest = most % records.len();
        shuffle(&mut records, &mut Rng::new(derive(seed, &[2, class])));
        out.extend_from_slice(&records[..rest]);
    }
    out.sort_unstable();
    out
}

/// The records of each class, in order of the classes.
fn classes(labels: &[u64]) -> BTreeMap<u64, Vec<u64>> {
    let mut classes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (record, &label) in labels.iter().enumerate() {
        classes.entry(label).or_default().push(record as u64);
    }
    classes
}

/// Shares that add up to one.
fn checked(shares: &[f64]) -> Result<Vec<f64>, Error> {
    if shares.is_empty() {
        return Err(Error::NoShares);
    }
    if let Some(part) = shares.iter().position(|share| share.is_nan() || *share < 0.0) {
        return Err(Error::Share { part, share: shares[part] });
    }
    let sum: f64 = shares.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return Err(Error::Sum(sum));
    }
    Ok(shares.iter().map(|share| share / sum).collect())
}

/// Deals classes out one after the other and remembers what each part is still owed, so that the roundings of
/// many small classes do not all favour the same part.
struct Deal<'a> {
    shares: &'a [f64],
    owed: Vec<f64>,
}

impl Deal<'_> {
    fn new(shares: &[f64]) -> Deal<'_> {
        Deal { shares, owed: vec![0.0; shares.len()] }
    }

    fn deal(&mut self, mut records: Vec<u64>, mut rng: Rng, parts: &mut [Vec<u64>]) {
        shuffle(&mut records, &mut rng);
        let counts = self.counts(records.len() as u64);
        let mut records = records.into_iter();
        for (part, count) in parts.iter_mut().zip(counts) {
            part.extend(records.by_ref().take(count as usize));
        }
        debug_assert_eq!(records.len(), 0, "every record is dealt");
    }

    /// How many of the next class's records each part gets.
    fn counts(&mut self, records: u64) -> Vec<u64> {
        let exact: Vec<f64> = self.shares.iter().map(|share| share * records as f64).collect();
        // The least that is within one record of the share; a part without share gets nothing. The
        // sum of rounded products could pass the number of records by an error of the last digit.
        let mut counts: Vec<u64> =
            exact.iter().map(|exact| (exact + 1e-9).floor() as u64).collect();
        let mut rest = records.saturating_sub(counts.iter().sum());
        for (owed, (exact, count)) in self.owed.iter_mut().zip(exact.iter().zip(&counts)) {
            *owed += exact - *count as f64;
        }
        let mut taken = vec![false; self.shares.len()];
        while rest > 0 {
            let Some(part) = self.most_owed(&taken) else { break };
            taken[part] = true;
            counts[part] += 1;
            self.owed[part] -= 1.0;
            rest -= 1;
        }
        counts
    }

    /// The part that is owed most among those that have had none of this class's rest; the first of equals.
    fn most_owed(&self, taken: &[bool]) -> Option<usize> {
        let parts = (0..taken.len()).filter(|&part| !taken[part] && self.shares[part] > 0.0);
        parts.reduce(|best, part| if self.owed[part] > self.owed[best] { part } else { best })
    }
}

/// Puts values in any order, each as probable as every other (Fisher-Yates).
pub(crate) fn shuffle<T>(values: &mut [T], rng: &mut Rng) {
    for last in (1..values.len()).rev() {
        values.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrong_shares_are_refused() {
        let check = |shares: &[f64], expected: &str| {
            assert_eq!(split(10, shares, 0).unwrap_err().to_string(), expected);
        };
        check(&[], "no shares: give one for each part, such as 0.8 and 0.2");
        check(&[0.5, -0.1], "share -0.1 of part 1: give a number that is not negative");
        check(
            &[0.0],
            "the shares add up to 0: give at least one above zero, and none beyond bounds",
        );
        assert!(split(10, &[f64::NAN], 0).is_err());
        assert!(split(10, &[f64::INFINITY], 0).is_err());
    }

    #[test]
    fn seeds_change_the_records_and_not_the_sizes() {
        let (one, two) = (split(100, &[3.0, 1.0], 1).unwrap(), split(100, &[3.0, 1.0], 2).unwrap());
        assert_eq!(one[1].len(), 25);
        assert_eq!(two[1].len(), 25);
        assert_ne!(one, two);
    }

    #[test]
    fn many_small_classes_are_shared_fairly() {
        let labels: Vec<u64> = (0..300).map(|record| record / 3).collect();
        let parts = stratified_split(&labels, &[0.5, 0.5], 3).unwrap();
        assert_eq!((parts[0].len(), parts[1].len()), (150, 150));
        let parts = stratified_split(&labels, &[0.8, 0.1, 0.1], 3).unwrap();
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(sizes, [240, 30, 30]);
    }

    #[test]
    fn nothing_can_be_divided_too() {
        assert_eq!(split(0, &[1.0, 1.0], 0).unwrap().concat().len(), 0);
        assert_eq!(stratified_split(&[], &[1.0], 0).unwrap().concat().len(), 0);
        assert!(oversample(&[], 0).is_empty());
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_part_and_classes_are_even(
            labels in vec(0u64..5, 0..200),
            shares in vec(0.0f64..3.0, 1..5),
            seed in any::<u64>(),
        ) {
            let sum: f64 = shares.iter().sum();
            prop_assume!(sum > 0.01);
            let parts = stratified_split(&labels, &shares, seed).unwrap();
            let mut all: Vec<u64> = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len() as u64).collect::<Vec<_>>());
            for class in 0..5 {
                let of_class = |records: &[u64]| {
                    records.iter().filter(|&&record| labels[record as usize] == class).count()
                };
                let total = labels.iter().filter(|&&label| label == class).count();
                for (part, share) in parts.iter().zip(&shares) {
                    let exact = share / sum * total as f64;
                    prop_assert!((of_class(part) as f64 - exact).abs() < 1.0 + 1e-6);
                }
            }
            prop_assert_eq!(parts, stratified_split(&labels, &shares, seed).unwrap());
        }

        #[test]
        fn oversampled_classes_are_even(labels in vec(0u64..4, 1..100), seed in any::<u64>()) {
            let records = oversample(&labels, seed);
            let count = |of: &dyn Fn(u64) -> bool| records.iter().filter(|&&r| of(r)).count();
            let class_sizes: Vec<usize> = (0..4)
                .map(|class| count(&|record| labels[record as usize] == class))
                .filter(|&size| size > 0)
                .collect();
            prop_assert!(class_sizes.iter().all(|&size| size == class_sizes[0]));
            for record in 0..labels.len() as u64 {
                prop_assert!(count(&|other| other == record) >= 1);
            }
        }
    }
}
