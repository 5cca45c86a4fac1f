//! A step's sums as one run of numbers: what workers exchange, laid out by module path.

use salamander_core::seed::mix;

use crate::gradients::{GradientSum, ParamGradient};
use crate::params;
use crate::step::Running;
use crate::trial::{Pass, Trial};

/// Where each parameter's gradient and each running value lies. All members have the same one, since it follows
/// from the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    params: Vec<(String, usize)>,
    running: Vec<(String, Vec<usize>)>,
}

impl Layout {
    /// The layout of one pass.
    pub(crate) fn of<T: Trial>(model: &T, pass: &Pass) -> Self {
        let infos = params::list(model);
        let size = |shape: &[usize]| shape.iter().product();
        let moved = infos.iter().filter(|info| info.trainable && pass.moves(&info.path));
        let kept = infos.iter().filter(|info| !info.trainable);
        Self {
            params: moved.map(|info| (info.path.clone(), size(&info.shape))).collect(),
            running: kept.map(|info| (info.path.clone(), info.shape.clone())).collect(),
        }
    }

    /// How many numbers it has.
    pub(crate) fn len(&self) -> usize {
        let params = self.params.iter().map(|(_, size)| size);
        let running = self.running.iter().map(|(_, shape)| shape.iter().product::<usize>());
        params.sum::<usize>() + running.sum::<usize>()
    }

    /// Which parameters some record of this member used.
    pub(crate) fn used(&self, gradient: &[ParamGradient]) -> Vec<bool> {
        let used: Vec<bool> = gradient.iter().map(|param| param.sum.is_some()).collect();
        if used.is_empty() { vec![false; self.params.len()] } else { used }
    }

    /// Lays a part of a member's sums out. What it has not is minus zero, which changes no bit of what it is added to.
    pub(crate) fn fill(&self, bucket: &mut [f32], gradient: &[ParamGradient], running: &Running) {
        let mut rest = bucket;
        let mut put = |size: usize, values: Option<&Vec<f32>>| {
            let here = rest.split_off_mut(..size).expect("a bucket has room for all of it");
            match values {
                Some(values) => here.copy_from_slice(values),
                None => here.fill(-0.0),
            }
        };
        let mut own = gradient.iter();
        for (_, size) in &self.params {
            put(*size, own.next().and_then(|param| param.sum.as_ref()));
        }
        let mut own = running.sums.iter();
        for (_, shape) in &self.running {
            put(shape.iter().product(), own.next().map(|(_, _, values)| values));
        }
    }

    /// Reads the sums of all members. A parameter that no record used has no gradient, which is not a zero gradient.
    pub(crate) fn read(
        &self,
        bucket: &[f32],
        used: &[bool],
        records: f64,
    ) -> (GradientSum, Running) {
        let mut rest = bucket;
        let mut params = Vec::with_capacity(self.params.len());
        for ((path, size), used) in self.params.iter().zip(used) {
            let (here, after) = rest.split_at(*size);
            params.push(ParamGradient { path: path.clone(), sum: used.then(|| here.to_vec()) });
            rest = after;
        }
        let mut sums = Vec::new();
        for (path, shape) in self.running.iter().filter(|_| records > 0.0) {
            let (here, after) = rest.split_at(shape.iter().product());
            sums.push((path.clone(), shape.clone(), here.to_vec()));
            rest = after;
        }
        (GradientSum::from_params(params), Running { records, sums })
    }
}

/// A digest of what was summed: the same at every member that has the same bits.
pub(crate) fn digest(bucket: &[f32]) -> u64 {
    let mut lanes = [0u64; 8];
    let mut chunks = bucket.chunks_exact(8);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_mul(0x0100_0193).wrapping_add(u64::from(value.to_bits()));
        }
    }
    let rest = chunks.remainder().iter().map(|value| u64::from(value.to_bits()));
    lanes.into_iter().chain(rest).fold(0, |state, value| mix(state ^ value))
}

/// A digest of bytes, as fast as they are read: the same for the same bytes.
pub(crate) fn digest_bytes(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; 4];
    let (chunks, rest) = bytes.as_chunks::<32>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            // Odd, so that no word is lost whatever follows it.
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *lane ^= *lane >> 32;
        }
    }
    let tail = rest.iter().map(|byte| u64::from(*byte));
    let length = bytes.len() as u64;
    lanes.into_iter().chain(tail).fold(mix(length), |state, value| mix(state ^ value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_bit_changes_a_digest(mut bytes in prop::collection::vec(any::<u8>(), 1..200), at: usize) {
            let before = digest_bytes(&bytes);
            prop_assert_eq!(digest_bytes(&bytes), before);
            let at = at % (8 * bytes.len());
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_ne!(digest_bytes(&bytes), before);
        }
    }
}
