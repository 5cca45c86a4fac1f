//! Arithmetic on one row that inlines into loops compiled for wide instructions: sums in an order that depends on the
//! length alone, exponentials without a branch.

use pulp::{Arch, NullaryFnOnce};

/// Runs `work` compiled for the widest instructions that the machine has. A closure that is handed to `pulp` as it is
/// may
/// be called through a function of its own, which then has none of them; so mark it `#[inline(always)]`.
#[inline(always)]
pub(crate) fn wide<R>(work: impl FnMut() -> R) -> R {
    Arch::new().dispatch(WideRows(work))
}

struct WideRows<F>(F);

impl<R, F: FnMut() -> R> NullaryFnOnce for WideRows<F> {
    type Output = R;

    #[inline(always)]
    fn call(mut self) -> R {
        (self.0)()
    }
}

/// Sums are taken in this many lanes, whatever the machine's registers hold.
const LANES: usize = 32;

/// The sum of `value(i)` over a row of `len` values.
#[inline(always)]
pub(crate) fn sum_of(len: usize, value: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let whole = len / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += value(start + lane);
        }
    }
    let mut tail = 0.0;
    for at in whole..len {
        tail += value(at);
    }
    folded(lanes, |a, b| a + b) + tail
}

/// All lanes in one, by halves: one after the other would wait for each.
#[inline(always)]
fn folded(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for at in 0..half {
            lanes[at] = join(lanes[at], lanes[at + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of a row.
#[inline(always)]
pub(crate) fn sum(row: &[f32]) -> f32 {
    sum_of(row.len(), |at| row[at])
}

/// The sum of the products of two rows.
#[inline(always)]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let right = &right[..left.len()];
    sum_of(left.len(), |at| left[at] * right[at])
}

/// The largest value of a row; values that are not numbers are passed over.
#[inline(always)]
pub(crate) fn largest(row: &[f32]) -> f32 {
    let greater = |best: f32, value: f32| if value > best { value } else { best };
    let (head, tail) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in head {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = greater(*lane, *value);
        }
    }
    tail.iter().fold(folded(lanes, greater), |best, value| greater(best, *value))
}

/// `e^x` to about one unit in the last place; zero below -87, and never a branch (Cephes' polynomial,
/// <https://www.netlib.org/cephes/>).
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOW: f32 = -87.0;
    const ROUND: f32 = 12_582_912.0;
    let inside = x.clamp(LOW, 88.0);
    // Adding this number rounds to a whole one, whose bits are then the lowest of the sum.
    let shifted = inside * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // Two parts of ln 2, so that the product with a whole number is exact.
    let rest = inside - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let mut sum = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = sum * rest + coefficient;
    }
    let value = sum * rest * rest + rest + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let dropped = u32::from(x < LOW).wrapping_sub(1);
    f32::from_bits((value * power).to_bits() & dropped)
}

/// The normal distribution's share below `x`, and its density times the root of two pi (Abramowitz and Stegun, 7.1.26,
/// which is off by 1e-7 at most).
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    let bell = exp(-0.5 * x * x);
    let t = 1.0 / (1.0 + 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2 * x.abs());
    let mut sum = 1.061_405_4;
    for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        sum = sum * t + coefficient;
    }
    let tail = 0.5 * sum * t * bell;
    (if x < 0.0 { tail } else { 1.0 - tail }, bell)
}

/// Exponentials of a row less `shift`, in place; returns their sum.
#[inline(always)]
pub(crate) fn exponentials(row: &mut [f32], shift: f32) -> f32 {
    for value in row.iter_mut() {
        *value = exp(*value - shift);
    }
    sum(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_right_to_the_last_digits() {
        for step in -8700..8800 {
            let x = step as f32 / 100.0;
            let expected = f64::from(x).exp();
            let off = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(off < 3e-7, "e^{x} is off by {off}");
        }
        assert_eq!((exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert!(exp(1000.0) > 1e38);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_normal_distribution_is_right_to_a_ten_millionth() {
        // From tables of the error function.
        let known = [(0.0, 0.5), (1.0, 0.841_344_8), (-1.0, 0.158_655_25), (2.5, 0.993_790_3)];
        for (x, expected) in known {
            assert!((normal(x).0 - expected).abs() < 2e-7, "{x}: {}", normal(x).0);
        }
        assert!(normal(f32::NAN).0.is_nan());
        assert_eq!((normal(-40.0).0, normal(40.0).0), (0.0, 1.0));
    }

    #[test]
    fn every_value_counts_once() {
        for len in [0, 1, 31, 32, 33, 100] {
            let row: Vec<f32> = (0..len).map(|i| i as f32).collect();
            assert_eq!(sum(&row), (0..len).sum::<usize>() as f32);
            assert_eq!(dot(&row, &row), (0..len).map(|i| i * i).sum::<usize>() as f32);
            assert_eq!(largest(&row), row.last().copied().unwrap_or(f32::NEG_INFINITY));
        }
        assert_eq!(largest(&[f32::NAN, -1.0]), -1.0);
    }
}
