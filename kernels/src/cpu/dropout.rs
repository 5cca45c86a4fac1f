//! Dropout by a hash of each value's place: no generator has to run in sequence, and the backward pass draws the same
//! mask again instead of keeping it.

use super::tasks::share_pieces;

use super::rows::wide;

/// What one task does: small enough to stay in a core's cache, large enough to be worth a task.
const PIECE: usize = 1 << 15;

/// A mask: which values are kept, and by what those are multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// Keys of the hash.
    pub seed: [u32; 2],
    /// The probability that a value is kept.
    pub keep: f32,
}

/// Drops values in place and scales the others, so that the expected sum stays.
pub fn apply(mask: Mask, values: &mut [f32]) {
    share_pieces(values, PIECE, |piece, values| apply_from(mask, piece * PIECE, values));
}

/// [`apply`] on the calling thread, to values whose first is at the place `first` of all.
pub(crate) fn apply_from(mask: Mask, first: usize, values: &mut [f32]) {
    let first = first as u32;
    let scale = 1.0 / mask.keep;
    let limit = (f64::from(mask.keep) * f64::from(u32::MAX)) as u32;
    wide(
        #[inline(always)]
        || {
            for (at, value) in values.iter_mut().enumerate() {
                let drawn = draw(mask.seed, first.wrapping_add(at as u32));
                let kept = u32::from(drawn <= limit).wrapping_neg();
                *value = f32::from_bits((*value * scale).to_bits() & kept);
            }
        },
    );
}

/// A number that looks random, from a place and two keys.
#[inline(always)]
fn draw(seed: [u32; 2], place: u32) -> u32 {
    mix(mix(place ^ seed[0]).wrapping_add(seed[1]))
}

/// Chris Wellons' `lowbias32` (<https://nullprogram.com/blog/2018/07/31/>): every bit of the result depends on all.
#[inline(always)]
fn mix(value: u32) -> u32 {
    let value = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    let value = (value ^ (value >> 15)).wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seed: [u32; 2], keep: f32, len: usize) -> Vec<bool> {
        let mut values = vec![1.0; len];
        apply(Mask { seed, keep }, &mut values);
        assert!(values.iter().all(|value| *value == 0.0 || *value == 1.0 / keep));
        values.iter().map(|value| *value != 0.0).collect()
    }

    #[test]
    fn the_share_of_kept_values_is_the_probability() {
        for keep in [0.1, 0.5, 0.75] {
            let count = kept([3, 4], keep, 200_000).into_iter().filter(|kept| *kept).count();
            let share = count as f32 / 200_000.0;
            assert!((share - keep).abs() < 0.005, "{share} of the values, not {keep}");
        }
    }

    #[test]
    fn masks_of_different_seeds_are_independent() {
        let pairs = [([1, 2], [1, 3]), ([1, 2], [2, 2]), ([0, 0], [1, 1]), ([256, 0], [512, 0])];
        for (a, b) in pairs {
            let (a, b) = (kept(a, 0.5, 100_000), kept(b, 0.5, 100_000));
            let equal = a.iter().zip(&b).filter(|(a, b)| a == b).count();
            assert!((49_000..51_000).contains(&equal), "{equal} of 100000 agree");
        }
    }

    #[test]
    fn neighbours_and_pieces_are_independent() {
        let mask = kept([7, 8], 0.5, 4 * PIECE);
        for distance in [1, 2, 16, 256, PIECE] {
            let pairs = mask.len() - distance;
            let equal = (0..pairs).filter(|at| mask[*at] == mask[at + distance]).count();
            let share = equal as f64 / pairs as f64;
            assert!((share - 0.5).abs() < 0.01, "{share} agree at distance {distance}");
        }
    }
}
