//! The inner loops of depthwise convolution on frames: a vector is sixteen channels of one pixel.
#![expect(
    unsafe_code,
    reason = "measured: these loops are where a depthwise convolution's time goes"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "counted loops over small arrays are what the compiler unrolls into registers"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

use super::super::direct::lanes::{LANES, Lanes};

/// Pixels that are computed together.
const TOGETHER: usize = 4;

/// Windows of a frame, one for each pixel on the other side.
#[derive(Clone, Copy)]
pub(super) struct Taps {
    pub(super) frame: *mut f32,
    /// How far rows of the frame are from each other.
    pub(super) frame_row: usize,
    pub(super) pixels: *mut f32,
    /// How far rows of pixels are from each other.
    pub(super) row: usize,
    /// Rows and columns of pixels.
    pub(super) size: [usize; 2],
    /// A vector for each tap.
    pub(super) weights: *mut f32,
    /// What sums start from, a vector.
    pub(super) start: *const f32,
}

/// Goes over all windows.
///
/// # Safety
/// The CPU must have the features of the table that it came from; what the taps name must be valid and nobody else's
/// meanwhile.
pub(super) type TapsFn = unsafe fn(&Taps);

/// The kernels of one kind of CPU for one kind of filter.
pub(super) struct Kernels {
    /// Taps of a side, and steps.
    pub(super) side: usize,
    pub(super) stride: usize,
    /// Every pixel the sum over its window.
    pub(super) sums: TapsFn,
    /// For every tap the sum of products with the pixels, added to what is there.
    pub(super) products: TapsFn,
    /// Every pixel times the weights, added to its window.
    pub(super) scatter: TapsFn,
}

impl Kernels {
    /// The kernels that this CPU can run, best first; none where nobody has written any.
    pub(super) fn all() -> impl Iterator<Item = &'static [Self]> {
        #[cfg(target_arch = "x86_64")]
        return x86::kernels();
        #[cfg(not(target_arch = "x86_64"))]
        std::iter::empty()
    }
}

#[inline(always)]
unsafe fn weights<L: Lanes, const K: usize>(taps: &Taps) -> [[L; K]; K] {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut weights = [[L::load(taps.weights); K]; K];
        for ky in 0..K {
            for kx in 0..K {
                weights[ky][kx] = L::load(taps.weights.add((ky * K + kx) * LANES));
            }
        }
        weights
    }
}

#[inline(always)]
unsafe fn sums<L: Lanes, const K: usize, const S: usize>(taps: &Taps) {
    // SAFETY: by the caller's promise.
    unsafe {
        let weights: [[L; K]; K] = weights(taps);
        let start = L::load(taps.start);
        for y in 0..taps.size[0] {
            let frame = taps.frame.add(y * S * taps.frame_row);
            let pixels = taps.pixels.add(y * taps.row);
            let mut x = 0;
            while x + TOGETHER <= taps.size[1] {
                let mut found = [start; TOGETHER];
                for ky in 0..K {
                    for kx in 0..K {
                        for q in 0..TOGETHER {
                            let at = ky * taps.frame_row + ((x + q) * S + kx) * LANES;
                            found[q] = L::load(frame.add(at)).mul_add(weights[ky][kx], found[q]);
                        }
                    }
                }
                for q in 0..TOGETHER {
                    found[q].store(pixels.add((x + q) * LANES));
                }
                x += TOGETHER;
            }
            while x < taps.size[1] {
                let mut found = start;
                for ky in 0..K {
                    for kx in 0..K {
                        let at = ky * taps.frame_row + (x * S + kx) * LANES;
                        found = L::load(frame.add(at)).mul_add(weights[ky][kx], found);
                    }
                }
                found.store(pixels.add(x * LANES));
                x += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn products<L: Lanes, const K: usize, const S: usize>(taps: &Taps) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut sums: [[L; K]; K] = weights(taps);
        for y in 0..taps.size[0] {
            let frame = taps.frame.add(y * S * taps.frame_row);
            let pixels = taps.pixels.add(y * taps.row);
            for x in 0..taps.size[1] {
                let pixel = L::load(pixels.add(x * LANES));
                for ky in 0..K {
                    for kx in 0..K {
                        let at = ky * taps.frame_row + (x * S + kx) * LANES;
                        sums[ky][kx] = L::load(frame.add(at)).mul_add(pixel, sums[ky][kx]);
                    }
                }
            }
        }
        for ky in 0..K {
            for kx in 0..K {
                sums[ky][kx].store(taps.weights.add((ky * K + kx) * LANES));
            }
        }
    }
}

#[inline(always)]
unsafe fn scatter<L: Lanes, const K: usize, const S: usize>(taps: &Taps) {
    // SAFETY: by the caller's promise.
    unsafe {
        let weights: [[L; K]; K] = weights(taps);
        for y in 0..taps.size[0] {
            let frame = taps.frame.add(y * S * taps.frame_row);
            let pixels = taps.pixels.add(y * taps.row);
            for x in 0..taps.size[1] {
                let pixel = L::load(pixels.add(x * LANES));
                for ky in 0..K {
                    for kx in 0..K {
                        let to = frame.add(ky * taps.frame_row + (x * S + kx) * LANES);
                        pixel.mul_add(weights[ky][kx], L::load(to)).store(to);
                    }
                }
            }
        }
    }
}
