//! Numbers and shapes that are the same in every run.

use salamander_kernels::cpu::{ConvShape, PoolShape};

/// A small linear congruential generator: Burn's own is one per process and shared by all tests.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A number from `first` to `last`.
    pub(crate) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.next() as usize % (last - first + 1)
    }

    /// Values from -1 to 1.
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next() as f32 / (1u32 << 30) as f32 - 1.0).collect()
    }

    fn pair(&mut self, first: usize, last: usize) -> [usize; 2] {
        [self.between(first, last), self.between(first, last)]
    }

    fn padding(&mut self, last: usize) -> [(usize, usize); 2] {
        [0; 2].map(|_| (self.between(0, last), self.between(0, last)))
    }

    /// Any convolution that is valid.
    pub(crate) fn conv_shape(&mut self) -> ConvShape {
        loop {
            let groups = self.between(1, 3);
            let shape = ConvShape {
                batch: self.between(1, 5),
                channels_in: groups * self.between(1, 4),
                channels_out: groups * self.between(1, 5),
                size: self.pair(1, 12),
                kernel: self.pair(1, 4),
                stride: self.pair(1, 3),
                padding: self.padding(3),
                dilation: self.pair(1, 3),
                groups,
            };
            if shape.is_valid() {
                return shape;
            }
        }
    }

    /// A convolution whose channels fill vectors, as the direct kernel likes them; every fourth one with something that
    /// it leaves to others.
    pub(crate) fn wide_conv_shape(&mut self) -> ConvShape {
        loop {
            let plain = ConvShape {
                batch: self.between(1, 6),
                channels_in: self.between(1, 36),
                channels_out: 16 * self.between(1, 3) - self.between(0, 3),
                size: self.pair(1, 20),
                kernel: self.pair(1, 5),
                stride: self.pair(1, 2),
                padding: self.padding(3),
                dilation: [1, 1],
                groups: 1,
            };
            let shape = match self.between(0, 7) {
                0 => ConvShape { dilation: [2, 2], ..plain },
                1 => ConvShape { groups: 2, channels_in: 6, channels_out: 32, ..plain },
                _ => plain,
            };
            if shape.is_valid() {
                return shape;
            }
        }
    }

    /// Any pooling that is valid and has no window wholly in the padding, which Burn refuses in part.
    pub(crate) fn pool_shape(&mut self) -> PoolShape {
        loop {
            let kernel = self.pair(1, 4);
            let shape = PoolShape {
                planes: self.between(1, 6),
                size: self.pair(1, 13),
                kernel,
                stride: self.pair(1, 3),
                padding: self.padding(kernel[0].min(kernel[1]) / 2),
                dilation: [1, 1],
            };
            if shape.is_valid() {
                return shape;
            }
        }
    }
}
