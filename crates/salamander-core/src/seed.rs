//! Random streams as pure functions: the same names always give the same numbers, on any machine
//! and for any number of workers, so nothing random has to be stored or sent.

/// Mixes 64 bits well (the finaliser of SplitMix64, <https://doi.org/10.1145/2714064.2660195>).
pub const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The seed of a named stream: `derive(seed, &[epoch, step, k])`.
pub fn derive(seed: u64, names: &[u64]) -> u64 {
    names.iter().fold(mix(seed), |state, name| mix(state ^ mix(*name)))
}

/// A small generator for augmentation, sampling and tests.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for one named stream.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let value = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// A number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number in `[0, bound)`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: the bias is under 2^-64 per value of the bound.
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A draw from the standard normal distribution (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
