//! The distributions that worlds are made of. Logarithms and cosines are those of Rust's libm, because the
//! machine's own could make another record on another machine.

use std::f64::consts::TAU;

use salamander_core::seed::{self, Rng};

/// A draw from the standard normal distribution (Box-Muller).
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.uniform()));
    radius * libm::cos(TAU * rng.uniform())
}

/// The standard normal number that belongs to some names in a world: a weight of the truth, without a table of
/// weights.
pub(super) fn weight(seed: u64, names: &[u64]) -> f64 {
    normal(&mut Rng::new(seed::derive(seed, names)))
}

/// A number below `values`, where the k-th is about `k^-exponent` as frequent as the first. The exponent is
/// above 0 and not 1.
pub(super) fn power_law(rng: &mut Rng, values: u64, exponent: f64) -> u64 {
    // The inverse of the distribution function of a continuous power law from 1 to values + 1.
    let power = 1.0 - exponent;
    let last = libm::pow((values + 1) as f64, power);
    let drawn = libm::pow(1.0 + rng.uniform() * (last - 1.0), 1.0 / power);
    (drawn as u64).saturating_sub(1).min(values.saturating_sub(1))
}

/// One of several values with their shares, which need not add up to 1: the last takes what is left.
pub(super) fn pick<T: Copy>(rng: &mut Rng, shares: &[(T, f64)]) -> T {
    let (mut left, mut at) = (rng.uniform(), 0);
    while at + 1 < shares.len() && left >= shares[at].1 {
        left -= shares[at].1;
        at += 1;
    }
    shares[at].0
}

/// Whether something happens that does so with this probability.
pub(super) fn happens(rng: &mut Rng, probability: f64) -> bool {
    rng.uniform() < probability
}

/// The probability of a score.
pub(super) fn sigmoid(score: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-score))
}

/// What has to be added to the scores of records so that their probabilities have this mean.
pub(super) fn bias(mean: f64, score: impl Fn(u64) -> f64) -> f64 {
    let scores: Vec<f64> = (0..4096).map(score).collect();
    let (mut low, mut high) = (-50.0, 50.0);
    // Each round halves the range: sixty of them leave less than a float can tell.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let sum: f64 = scores.iter().map(|score| sigmoid(score + middle)).sum();
        if sum < mean * scores.len() as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_mean_and_deviation() {
        let draws: Vec<f64> = (0..20_000).map(|name| weight(5, &[name])).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn frequencies_fall_by_a_power() {
        for exponent in [0.8, 1.1, 1.5] {
            let rng = &mut Rng::new(1);
            let mut counts = vec![0u32; 1000];
            (0..200_000).for_each(|_| counts[power_law(rng, 1000, exponent) as usize] += 1);
            // Between the 10th to 19th and the 100th to 199th the power law shows, whatever the first do.
            let sum = |range: std::ops::Range<usize>| f64::from(counts[range].iter().sum::<u32>());
            let found = (sum(10..20) / 10.0) / (sum(100..200) / 100.0);
            let expected = 10f64.powf(exponent);
            assert!((found / expected - 1.0).abs() < 0.15, "{exponent}: {found} of {expected}");
        }
        assert_eq!(power_law(&mut Rng::new(1), 1, 1.1), 0);
    }

    #[test]
    fn shares_are_kept() {
        let rng = &mut Rng::new(2);
        let shares = [("a", 0.5), ("b", 0.3), ("rest", 0.0)];
        let rest = (0..10_000).filter(|_| pick(rng, &shares) == "rest").count();
        assert!((1800..2200).contains(&rest), "{rest}");
    }

    #[test]
    fn a_bias_moves_the_mean_to_its_place() {
        let score = |name| 2.0 * weight(1, &[name]);
        let bias = bias(0.25, score);
        let mean = (0..4096).map(|name| sigmoid(score(name) + bias)).sum::<f64>() / 4096.0;
        assert!((mean - 0.25).abs() < 1e-9, "{mean}");
    }
}
