//! The transforms of Winograd's convolution between pixels and the values at its points, for vectors of channels.
//!
//! A side of a tile is evaluated at 0, at two pairs of points and at infinity. The pairs are the roots of a half and of
//! two: with one and two, as in the paper, sums would be rounded three times as coarsely.
#![expect(unsafe_code, reason = "vector instructions; the tests compare with the plain reference")]
#![expect(
    clippy::needless_range_loop,
    reason = "counted loops over small arrays are what the compiler unrolls into registers"
)]

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use super::super::direct::lanes::{LANES, Lanes};

/// Points of a tile's side.
pub(super) const SIDE: usize = 6;

/// Points of a tile.
pub(super) const POINTS: usize = SIDE * SIDE;

/// The powers of the nearer pair of points, and of the farther one.
const NEAR: [f32; 5] = [1.0, FRAC_1_SQRT_2, 0.5, 0.5 * FRAC_1_SQRT_2, 0.25];
const FAR: [f32; 5] = [1.0, SQRT_2, 2.0, 2.0 * SQRT_2, 4.0];

/// One over the products of a point's distances from the others.
const NEAR_SHARE: f32 = -2.0 / 3.0;
const FAR_SHARE: f32 = 1.0 / 6.0;

/// A transform of one side of a tile.
///
/// # Safety
/// Those who call it have the CPU features of the vectors.
pub(super) trait Line<const N: usize, const P: usize> {
    unsafe fn line<L: Lanes>(values: [L; N]) -> [L; P];
}

/// Pixels of the input to points.
pub(super) struct OfInput;
/// Points to pixels of the output.
pub(super) struct ToOutput;
/// Weights to points.
pub(super) struct OfWeights;
/// The transpose of [`ToOutput`]: the output's gradient to points.
pub(super) struct OfGradient;
/// The transpose of [`OfInput`]: gradients at points to those of pixels of the input.
pub(super) struct ToInput;
/// The transpose of [`OfWeights`].
pub(super) struct ToWeights;

impl Line<SIDE, SIDE> for OfInput {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; SIDE]) -> [L; SIDE] {
        // SAFETY: by the caller's promise, here and in all lines below.
        unsafe {
            let times = |value: L, factor: f32, sum: L| value.mul_add(L::splat(factor), sum);
            let even = [times(x[2], -2.0, x[4]), times(x[2], -0.5, x[4])];
            let odd = [times(x[1], -2.0, x[3]), times(x[1], -0.5, x[3])];
            [
                times(x[2], -2.5, x[0].add(x[4])),
                times(odd[0], NEAR[1], even[0]),
                times(odd[0], -NEAR[1], even[0]),
                times(odd[1], FAR[1], even[1]),
                times(odd[1], -FAR[1], even[1]),
                times(x[3], -2.5, x[1].add(x[5])),
            ]
        }
    }
}

impl Line<SIDE, SIDE> for ToInput {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; SIDE]) -> [L; SIDE] {
        // SAFETY: as above.
        unsafe {
            let times = |value: L, factor: f32, sum: L| value.mul_add(L::splat(factor), sum);
            let (near, near_odd) = (x[1].add(x[2]), x[1].sub(x[2]));
            let (far, far_odd) = (x[3].add(x[4]), x[3].sub(x[4]));
            [
                x[0],
                times(near_odd, -FAR[1], times(far_odd, -NEAR[1], x[5])),
                times(x[0], -2.5, times(near, -2.0, far.mul(L::splat(-0.5)))),
                times(near_odd, NEAR[1], times(far_odd, FAR[1], x[5].mul(L::splat(-2.5)))),
                x[0].add(near.add(far)),
                x[5],
            ]
        }
    }
}

/// For each power less than `P` what the two pairs of points add up to.
#[inline(always)]
unsafe fn pairs<L: Lanes, const P: usize>(x: &[L; SIDE], shares: [f32; 2]) -> [L; P] {
    // SAFETY: as above.
    unsafe {
        let near = [x[1].add(x[2]), x[1].sub(x[2])];
        let far = [x[3].add(x[4]), x[3].sub(x[4])];
        let mut sums = [x[0]; P];
        for power in 0..P {
            let factors = [NEAR[power] * shares[0], FAR[power] * shares[1]];
            let far = far[power % 2].mul(L::splat(factors[1]));
            sums[power] = near[power % 2].mul_add(L::splat(factors[0]), far);
        }
        sums[0] = sums[0].add(x[0]);
        sums[P - 1] = sums[P - 1].add(x[5]);
        sums
    }
}

/// For each point the sum over its powers.
#[inline(always)]
unsafe fn powers<L: Lanes, const P: usize>(x: &[L; P], shares: [f32; 2]) -> [L; SIDE] {
    // SAFETY: as above.
    unsafe {
        let mut sums = [[x[0]; 2]; 2];
        for pair in 0..2 {
            let factor = |power: usize| L::splat([NEAR, FAR][pair][power] * shares[pair]);
            let (mut even, mut odd) = (x[0].mul(factor(0)), x[1].mul(factor(1)));
            for power in 2..P {
                if power % 2 == 0 {
                    even = x[power].mul_add(factor(power), even);
                } else {
                    odd = x[power].mul_add(factor(power), odd);
                }
            }
            sums[pair] = [even.add(odd), even.sub(odd)];
        }
        [x[0], sums[0][0], sums[0][1], sums[1][0], sums[1][1], x[P - 1]]
    }
}

impl<const M: usize> Line<SIDE, M> for ToOutput {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; SIDE]) -> [L; M] {
        // SAFETY: as above.
        unsafe { pairs(&x, [1.0; 2]) }
    }
}

impl<const M: usize> Line<M, SIDE> for OfGradient {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; M]) -> [L; SIDE] {
        // SAFETY: as above.
        unsafe { powers(&x, [1.0; 2]) }
    }
}

impl<const R: usize> Line<R, SIDE> for OfWeights {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; R]) -> [L; SIDE] {
        // SAFETY: as above.
        unsafe { powers(&x, [NEAR_SHARE, FAR_SHARE]) }
    }
}

impl<const R: usize> Line<SIDE, R> for ToWeights {
    #[inline(always)]
    unsafe fn line<L: Lanes>(x: [L; SIDE]) -> [L; R] {
        // SAFETY: as above.
        unsafe { pairs(&x, [NEAR_SHARE, FAR_SHARE]) }
    }
}

/// Both sides of a tile.
#[inline(always)]
unsafe fn both<L: Lanes, T: Line<N, P>, const N: usize, const P: usize>(
    values: [[L; N]; N],
) -> [[L; P]; P] {
    // SAFETY: as above.
    unsafe {
        let mut half = [[values[0][0]; P]; N];
        for row in 0..N {
            half[row] = T::line(values[row]);
        }
        let mut whole = [[values[0][0]; P]; P];
        for column in 0..P {
            let mut values = [half[0][0]; N];
            for row in 0..N {
                values[row] = half[row][column];
            }
            let values = T::line(values);
            for row in 0..P {
                whole[row][column] = values[row];
            }
        }
        whole
    }
}

/// Tiles of sixteen channels of one sample: as pixels, and as values at points.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// A vector for each pixel, or for each weight of filters side by side.
    pub(super) pixels: *mut f32,
    /// Height and width in pixels.
    pub(super) size: [usize; 2],
    /// Tiles along both sides.
    pub(super) count: [usize; 2],
    /// A vector for each point of the first tile.
    pub(super) points: *mut f32,
    /// How far points of a tile are from each other.
    pub(super) apart: usize,
    /// How far tiles are from each other at a point.
    pub(super) row: usize,
    /// Added to every pixel, a vector.
    pub(super) bias: *const f32,
}

/// Transforms all tiles.
///
/// # Safety
/// The CPU must have the features of the table that it came from, and all that the tiles name must be valid and nobody
/// else's meanwhile.
pub(super) type TilesFn = unsafe fn(&Tiles);

impl Tiles {
    /// # Safety
    /// As for [`TilesFn`].
    #[inline(always)]
    unsafe fn load<L: Lanes>(&self, tile: usize) -> [[L; SIDE]; SIDE] {
        // SAFETY: by the caller's promise.
        unsafe {
            let from = self.points.add(tile * self.row);
            let mut values = [[L::load(from); SIDE]; SIDE];
            for row in 0..SIDE {
                for column in 0..SIDE {
                    values[row][column] = L::load(from.add((row * SIDE + column) * self.apart));
                }
            }
            values
        }
    }

    /// # Safety
    /// As for [`TilesFn`].
    #[inline(always)]
    unsafe fn store<L: Lanes>(&self, tile: usize, values: [[L; SIDE]; SIDE]) {
        // SAFETY: by the caller's promise.
        unsafe {
            let to = self.points.add(tile * self.row);
            for row in 0..SIDE {
                for column in 0..SIDE {
                    values[row][column].store(to.add((row * SIDE + column) * self.apart));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn pixel(&self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: by the caller's promise.
        unsafe { self.pixels.add((row * self.size[1] + column) * LANES) }
    }
}

/// Pixels to points: tiles of `N` pixels a side, `M` pixels from each other.
#[inline(always)]
pub(super) unsafe fn to_points<L: Lanes, T: Line<N, SIDE>, const N: usize, const M: usize>(
    tiles: &Tiles,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        for y in 0..tiles.count[0] {
            for x in 0..tiles.count[1] {
                let mut values = [[L::splat(0.0); N]; N];
                for row in 0..N {
                    for column in 0..N {
                        values[row][column] = L::load(tiles.pixel(y * M + row, x * M + column));
                    }
                }
                tiles.store(y * tiles.count[1] + x, both::<L, T, N, SIDE>(values));
            }
        }
    }
}

/// Points to pixels of the output, of which those outside of it are left out.
#[inline(always)]
pub(super) unsafe fn to_output<L: Lanes, const M: usize>(tiles: &Tiles) {
    // SAFETY: by the caller's promise.
    unsafe {
        let bias = L::load(tiles.bias);
        for y in 0..tiles.count[0] {
            for x in 0..tiles.count[1] {
                let found: [[L; M]; M] =
                    both::<L, ToOutput, SIDE, M>(tiles.load(y * tiles.count[1] + x));
                let inside = [tiles.size[0] - y * M, tiles.size[1] - x * M];
                for row in 0..M {
                    for column in 0..M {
                        if row < inside[0] && column < inside[1] {
                            let to = tiles.pixel(y * M + row, x * M + column);
                            found[row][column].add(bias).store(to);
                        }
                    }
                }
            }
        }
    }
}

/// Gradients at points, added to those of pixels of the input.
#[inline(always)]
pub(super) unsafe fn to_input<L: Lanes, const M: usize>(tiles: &Tiles) {
    // SAFETY: by the caller's promise.
    unsafe {
        for y in 0..tiles.count[0] {
            for x in 0..tiles.count[1] {
                let values = tiles.load(y * tiles.count[1] + x);
                let found: [[L; SIDE]; SIDE] = both::<L, ToInput, SIDE, SIDE>(values);
                for row in 0..SIDE {
                    for column in 0..SIDE {
                        let to = tiles.pixel(y * M + row, x * M + column);
                        L::load(to).add(found[row][column]).store(to);
                    }
                }
            }
        }
    }
}

/// Points to weights, one filter behind the other.
#[inline(always)]
pub(super) unsafe fn to_weights<L: Lanes, const R: usize>(tiles: &Tiles) {
    // SAFETY: by the caller's promise.
    unsafe {
        for filter in 0..tiles.count[0] {
            let found: [[L; R]; R] = both::<L, ToWeights, SIDE, R>(tiles.load(filter));
            for row in 0..R {
                for column in 0..R {
                    found[row][column].store(tiles.pixel(filter * R + row, column));
                }
            }
        }
    }
}
