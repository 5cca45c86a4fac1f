//! Searching a cache line of slots at once, with the widest instructions that the CPU has.

use pulp::Arch;

/// Slots of a cache line.
pub(crate) const LINE: usize = 8;

/// How a line is searched.
pub(crate) trait LineSearch: Copy {
    /// A bit for each slot that holds `wanted` once shifted by `bits`.
    fn hits(self, line: &[u64; LINE], bits: u32, wanted: u64) -> u32;
}

/// Something that searches, to be compiled once for each kind of instructions.
pub(crate) trait WithSearch {
    fn run(self, search: impl LineSearch);
}

/// Runs with what the CPU has.
#[inline(always)]
pub(crate) fn dispatch(work: impl WithSearch) {
    match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => pulp::Simd::vectorize(
            simd,
            #[inline(always)]
            || work.run(simd),
        ),
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => pulp::Simd::vectorize(
            simd,
            #[inline(always)]
            || work.run(simd),
        ),
        _ => work.run(Plain),
    }
}

/// The reference, and what other CPUs use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl LineSearch for Plain {
    #[inline(always)]
    fn hits(self, line: &[u64; LINE], bits: u32, wanted: u64) -> u32 {
        let mut hits = 0;
        for (at, slot) in line.iter().enumerate() {
            hits |= u32::from(slot >> bits == wanted) << at;
        }
        hits
    }
}

#[cfg(target_arch = "x86_64")]
impl LineSearch for pulp::x86::V4 {
    #[inline(always)]
    fn hits(self, line: &[u64; LINE], bits: u32, wanted: u64) -> u32 {
        let simd = self.avx512f;
        let found = simd._mm512_srl_epi64(pulp::cast(*line), pulp::cast([u64::from(bits), 0]));
        u32::from(simd._mm512_cmpeq_epi64_mask(found, simd._mm512_set1_epi64(wanted as i64)))
    }
}

#[cfg(target_arch = "x86_64")]
impl LineSearch for pulp::x86::V3 {
    #[inline(always)]
    fn hits(self, line: &[u64; LINE], bits: u32, wanted: u64) -> u32 {
        let (near, far) = line.split_at(LINE / 2);
        let half = |slots: &[u64]| {
            let Ok(slots) = <[u64; LINE / 2]>::try_from(slots) else { return 0 };
            let shift = pulp::cast([u64::from(bits), 0]);
            let found = self.avx2._mm256_srl_epi64(pulp::cast(slots), shift);
            let wanted = self.avx._mm256_set1_epi64x(wanted as i64);
            let equal = self.avx2._mm256_cmpeq_epi64(found, wanted);
            self.avx._mm256_movemask_pd(self.avx._mm256_castsi256_pd(equal)) as u32
        };
        half(near) | half(far) << 4
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct SearchCase {
        line: [u64; LINE],
        bits: u32,
        wanted: u64,
    }

    impl WithSearch for SearchCase {
        fn run(self, search: impl LineSearch) {
            let Self { line, bits, wanted } = self;
            assert_eq!(search.hits(&line, bits, wanted), Plain.hits(&line, bits, wanted));
        }
    }

    proptest! {
        /// Small numbers, so that several slots hit.
        #[test]
        fn wide_instructions_find_what_plain_ones_find(
            line: [u64; LINE], bits in 0u32..54, wanted: u64, near in 0u64..4,
        ) {
            dispatch(SearchCase { line, bits, wanted });
            let close = line.map(|slot| (wanted << bits) ^ (slot & near));
            dispatch(SearchCase { line: close, bits, wanted: (wanted << bits) >> bits });
        }
    }
}
