//! bfloat16 for those who send values of their own: half the bytes, rounded as the sums of rings are.

pub use crate::kernel::{from_bf16 as widen, to_bf16 as round};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_few_digits_come_back() {
        let values = [0.0, -1.5, 3.0e38, f32::INFINITY, 0.007_812_5];
        let (mut rounded, mut widened) = ([0; 5], [0.0; 5]);
        round(&values, &mut rounded);
        widen(&rounded, &mut widened);
        assert_eq!(widened[1], -1.5);
        assert_eq!((widened[0], widened[3], widened[4]), (values[0], values[3], values[4]));
        assert!((widened[2] / values[2] - 1.0).abs() < 1.0 / 256.0);
    }
}
