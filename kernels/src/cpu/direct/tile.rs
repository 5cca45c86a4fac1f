//! The inner loops of the direct convolution: a tile of sums stays in registers while its products are added.
//!
//! A vector holds sixteen channels of one pixel, and pixels are read one by one and spread over a vector: so rows of
//! any width, strides and the sums over pixels need no shuffles inside of the loop.
#![expect(unsafe_code, reason = "measured: these loops are where a convolution's time goes")]
#![expect(
    clippy::needless_range_loop,
    reason = "counted loops over small arrays are what the compiler unrolls into registers"
)]

use super::lanes::{LANES, Lanes, MatrixBlock};

/// A tile of an output: some pixels of a row times one or two vectors of channels.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// The tile's first pixel, to which the taps are relative.
    pub(super) input: *const f32,
    /// Where each product's pixel is.
    pub(super) taps: &'a [usize],
    /// A vector (or two) of weights for each tap.
    pub(super) weight: *const f32,
    /// What sums start from.
    pub(super) bias: *const f32,
    pub(super) relu: bool,
    /// The tile's first pixel in its first channel.
    pub(super) output: *mut f32,
    /// Distance of channels in the output.
    pub(super) plane: usize,
    /// Channels that there are; others of the vectors are not written.
    pub(super) channels: usize,
}

/// Computes a tile.
///
/// # Safety
/// The CPU must have the features of the table that it came from. The tile's pointers must be valid for its taps,
/// vectors and channels, and nobody else may use its output meanwhile.
pub(super) type TileFn = unsafe fn(&Tile<'_>);

#[inline(always)]
pub(super) unsafe fn tile<L: Lanes, const Q: usize, const V: usize, const S: usize>(
    tile: &Tile<'_>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let bias: [L; V] = std::array::from_fn(|v| L::load(tile.bias.add(v * LANES)));
        let mut sums = [[L::splat(0.0); Q]; V];
        for v in 0..V {
            sums[v] = [bias[v]; Q];
        }
        let mut weight = tile.weight;
        for tap in tile.taps {
            let pixels = tile.input.add(*tap);
            let factors: [L; V] = std::array::from_fn(|v| L::load(weight.add(v * LANES)));
            weight = weight.add(V * LANES);
            for q in 0..Q {
                let pixel = L::splat(*pixels.add(q * S));
                for v in 0..V {
                    sums[v][q] = pixel.mul_add(factors[v], sums[v][q]);
                }
            }
        }
        for v in 0..V {
            if tile.relu {
                for q in 0..Q {
                    sums[v][q] = sums[v][q].relu();
                }
            }
            let channels = tile.channels.saturating_sub(v * LANES).min(LANES);
            L::store_columns(
                &sums[v],
                tile.output.add(v * LANES * tile.plane),
                tile.plane,
                channels,
            );
        }
    }
}

/// A tile of the gradient of the weights: some runs of neighbouring taps times one or two vectors of channels.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    pub(super) input: *const f32,
    /// Where the first tap of each run is for the first pixel.
    pub(super) runs: &'a [usize],
    /// A vector (or two) of the output's gradient for each pixel.
    pub(super) gradient: *const f32,
    /// Height and width of the output.
    pub(super) out: [usize; 2],
    /// Distance in the input between rows of the output.
    pub(super) row: usize,
    /// The sums so far, a vector (or two) for each tap.
    pub(super) sums: *mut f32,
}

/// Adds a sample to the sums of a tile.
///
/// # Safety
/// As for [`TileFn`], with as many runs as the function takes.
pub(super) type RunsFn = unsafe fn(&Runs<'_>);

#[inline(always)]
pub(super) unsafe fn runs<
    L: Lanes,
    const R: usize,
    const K: usize,
    const V: usize,
    const S: usize,
>(
    runs: &Runs<'_>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let at = |r: usize, k: usize, v: usize| runs.sums.add(((r * K + k) * V + v) * LANES);
        let starts: [*const f32; R] = std::array::from_fn(|r| runs.input.add(runs.runs[r]));
        let mut sums: [[[L; V]; K]; R] = std::array::from_fn(|r| {
            std::array::from_fn(|k| std::array::from_fn(|v| L::load(at(r, k, v))))
        });
        let mut gradient = runs.gradient;
        for y in 0..runs.out[0] {
            let mut pixel = y * runs.row;
            for _ in 0..runs.out[1] {
                let factors: [L; V] = std::array::from_fn(|v| L::load(gradient.add(v * LANES)));
                gradient = gradient.add(V * LANES);
                for r in 0..R {
                    for k in 0..K {
                        let value = L::splat(*starts[r].add(pixel + k));
                        for v in 0..V {
                            sums[r][k][v] = value.mul_add(factors[v], sums[r][k][v]);
                        }
                    }
                }
                pixel += S;
            }
        }
        for r in 0..R {
            for k in 0..K {
                for v in 0..V {
                    sums[r][k][v].store(at(r, k, v));
                }
            }
        }
    }
}

/// Writes rows side by side: vectors of sixteen rows for every column, as many of them side by side as `vectors` says.
///
/// # Safety
/// As for [`TileFn`]: `to` must have room for all columns.
pub(super) type PackFn = unsafe fn(MatrixBlock, *mut f32, usize);

#[inline(always)]
pub(super) unsafe fn pack<L: Lanes>(from: MatrixBlock, to: *mut f32, vectors: usize) {
    let step = vectors * LANES;
    for column in (0..from.columns).step_by(LANES) {
        // SAFETY: by the caller's promise; blocks are parts of the whole.
        unsafe {
            let values = from.values.add(column);
            let columns = LANES.min(from.columns - column);
            L::transpose(MatrixBlock { values, columns, ..from }, to.add(column * step), step);
        }
    }
}

/// The way back from vectors side by side: writes so many rows of so many columns, one behind the other.
///
/// # Safety
/// As for [`TileFn`]: there must be a vector for each column, and room for all rows.
pub(super) type UnpackFn = unsafe fn(*const f32, *mut f32, usize, usize);

#[inline(always)]
pub(super) unsafe fn unpack<L: Lanes>(from: *const f32, to: *mut f32, rows: usize, columns: usize) {
    // SAFETY: by the caller's promise; blocks are parts of the whole.
    unsafe {
        let mut column = 0;
        while column + LANES <= columns {
            unpack_block::<L, LANES>(from.add(column * LANES), to.add(column), rows, columns);
            column += LANES;
        }
        while column + 4 <= columns {
            unpack_block::<L, 4>(from.add(column * LANES), to.add(column), rows, columns);
            column += 4;
        }
        while column < columns {
            unpack_block::<L, 1>(from.add(column * LANES), to.add(column), rows, columns);
            column += 1;
        }
    }
}

#[inline(always)]
unsafe fn unpack_block<L: Lanes, const Q: usize>(
    from: *const f32,
    to: *mut f32,
    rows: usize,
    stride: usize,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let vectors: [L; Q] = std::array::from_fn(|q| L::load(from.add(q * LANES)));
        L::store_columns(&vectors, to, stride, rows);
    }
}

/// For some widths of kernels: the width, the runs of a tile, and its function.
pub(super) type RunsTable = &'static [(usize, usize, RunsFn)];

/// The kernels of one kind of CPU.
pub(super) struct Kernels {
    /// Vectors of channels in one tile.
    pub(super) vectors: usize,
    pub(super) pack: PackFn,
    pub(super) unpack: UnpackFn,
    /// By vectors less one, stride less one, pixels less one.
    pub(super) tiles: [[&'static [TileFn]; 2]; 2],
    /// By vectors less one, stride less one, then by width of the kernel: its runs and its function.
    pub(super) runs: [[RunsTable; 2]; 2],
}

impl Kernels {
    /// The kernels that this CPU can run, best first; none where nobody has written any.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        #[cfg(target_arch = "x86_64")]
        return super::x86::kernels();
        #[cfg(not(target_arch = "x86_64"))]
        std::iter::empty()
    }

    /// How many pixels a tile has at most, and the functions for fewer.
    pub(super) fn tiles(&self, vectors: usize, stride: usize) -> &'static [TileFn] {
        self.tiles[vectors - 1][stride - 1]
    }

    /// How many runs a tile has for a kernel of this width, and its function.
    pub(super) fn runs(
        &self,
        vectors: usize,
        stride: usize,
        width: usize,
    ) -> Option<(usize, RunsFn)> {
        let all = self.runs.get(vectors - 1)?.get(stride.checked_sub(1)?)?;
        all.iter().find(|entry| entry.0 == width).map(|entry| (entry.1, entry.2))
    }
}
