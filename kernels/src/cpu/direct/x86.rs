//! The direct convolution on x86: with AVX-512, or with AVX2 and FMA.
//!
//! The functions of [`Lanes`] are small and always inlined: they become instructions of the kernels that name the
//! CPU's features.
#![expect(
    unsafe_code,
    reason = "vector instructions; the kernels on them are compared with the plain reference"
)]

use std::arch::x86_64::*;

use super::lanes::{LANES, Lanes, MatrixBlock};
use super::tile::{Kernels, Runs, RunsFn, Tile, pack, runs, tile, unpack};

/// The kernels that this CPU can run, best first.
pub(super) fn kernels() -> impl Iterator<Item = &'static Kernels> {
    let wide = is_x86_feature_detected!("avx512f").then_some(&WIDE);
    let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    wide.into_iter().chain(narrow.then_some(&NARROW))
}

/// A register of AVX-512.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Wide(__m512);

impl Lanes for Wide {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: by the trait's promise, here and below.
        unsafe { Self(_mm512_set1_ps(value)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_loadu_ps(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_fmadd_ps(self.0, factor.0, sum.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_add_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_sub_ps(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_mul_ps(self.0, factor.0)) }
    }

    #[inline(always)]
    unsafe fn relu(self) -> Self {
        // SAFETY: as above. The second operand is what comes out where one is not a number.
        unsafe { Self(_mm512_max_ps(_mm512_setzero_ps(), self.0)) }
    }

    #[inline(always)]
    unsafe fn store_columns<const Q: usize>(
        columns: &[Self; Q],
        to: *mut f32,
        stride: usize,
        rows: usize,
    ) {
        // SAFETY: as above; the mask keeps stores inside of the `Q` columns.
        unsafe {
            let zero = _mm512_setzero_ps();
            let rows_of =
                transposed(std::array::from_fn(|q| columns.get(q).map_or(zero, |column| column.0)));
            let mask = low_lanes(Q);
            for (row, values) in rows_of.into_iter().enumerate().take(rows) {
                _mm512_mask_storeu_ps(to.add(row * stride), mask, values);
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: MatrixBlock, to: *mut f32, step: usize) {
        let MatrixBlock { values, stride, rows, columns } = from;
        // SAFETY: as above; the mask keeps loads inside of the columns.
        unsafe {
            let mask = low_lanes(columns);
            let mut all = [_mm512_setzero_ps(); LANES];
            for (row, target) in all.iter_mut().enumerate().take(rows) {
                *target = _mm512_maskz_loadu_ps(mask, values.add(row * stride));
            }
            for (column, values) in transposed(all).into_iter().enumerate().take(columns) {
                _mm512_storeu_ps(to.add(column * step), values);
            }
        }
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn low_lanes(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

/// Exchanges rows and columns: pairs, fours, then blocks of four.
#[inline(always)]
unsafe fn transposed(rows: [__m512; LANES]) -> [__m512; LANES] {
    let mut pairs = rows;
    // SAFETY: only the callers' CPU features are needed.
    unsafe {
        for i in (0..LANES).step_by(2) {
            pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
        }
        let mut fours = pairs;
        for i in (0..LANES).step_by(4) {
            let double = |at: usize| _mm512_castps_pd(pairs[i + at]);
            fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(double(0), double(2)));
            fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(double(0), double(2)));
            fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(double(1), double(3)));
            fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(double(1), double(3)));
        }
        let mut whole = fours;
        for i in 0..4 {
            let low = _mm512_shuffle_f32x4::<0x88>(fours[i], fours[i + 4]);
            let low_odd = _mm512_shuffle_f32x4::<0xdd>(fours[i], fours[i + 4]);
            let high = _mm512_shuffle_f32x4::<0x88>(fours[i + 8], fours[i + 12]);
            let high_odd = _mm512_shuffle_f32x4::<0xdd>(fours[i + 8], fours[i + 12]);
            whole[i] = _mm512_shuffle_f32x4::<0x88>(low, high);
            whole[i + 4] = _mm512_shuffle_f32x4::<0x88>(low_odd, high_odd);
            whole[i + 8] = _mm512_shuffle_f32x4::<0xdd>(low, high);
            whole[i + 12] = _mm512_shuffle_f32x4::<0xdd>(low_odd, high_odd);
        }
        whole
    }
}

/// Two registers of AVX2.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Narrow([__m256; 2]);

impl Lanes for Narrow {
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: by the trait's promise, here and below.
        unsafe { Self([_mm256_set1_ps(value); 2]) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { Self([_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(to, self.0[0]);
            _mm256_storeu_ps(to.add(8), self.0[1]);
        }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        let half = |i: usize| {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_ps(self.0[i], factor.0[i], sum.0[i]) }
        };
        Self([half(0), half(1)])
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let [a, b] = [self.0, other.0];
        // SAFETY: as above.
        unsafe { Self([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]) }
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        let [a, b] = [self.0, other.0];
        // SAFETY: as above.
        unsafe { Self([_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])]) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self) -> Self {
        let [a, b] = [self.0, factor.0];
        // SAFETY: as above.
        unsafe { Self([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]) }
    }

    #[inline(always)]
    unsafe fn relu(self) -> Self {
        // SAFETY: as above. The second operand is what comes out where one is not a number.
        unsafe {
            let zero = _mm256_setzero_ps();
            Self([_mm256_max_ps(zero, self.0[0]), _mm256_max_ps(zero, self.0[1])])
        }
    }

    #[inline(always)]
    unsafe fn store_columns<const Q: usize>(
        columns: &[Self; Q],
        to: *mut f32,
        stride: usize,
        rows: usize,
    ) {
        let mut values = [[0.0; LANES]; Q];
        // SAFETY: as above.
        unsafe {
            for (column, values) in columns.iter().zip(&mut values) {
                column.store(values.as_mut_ptr());
            }
            for row in 0..rows {
                for (q, values) in values.iter().enumerate() {
                    *to.add(row * stride + q) = values[row];
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: MatrixBlock, to: *mut f32, step: usize) {
        // SAFETY: as above.
        unsafe {
            for column in 0..from.columns {
                for lane in 0..LANES {
                    let inside = lane < from.rows;
                    let value =
                        if inside { *from.values.add(lane * from.stride + column) } else { 0.0 };
                    *to.add(column * step + lane) = value;
                }
            }
        }
    }
}

/// A function with the CPU's features around one that is inlined into it.
macro_rules! with_features {
    ($features:literal, $name:ident<$($generic:ident),*>($($argument:ident: $type:ty),*) = $inner:expr) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<$(const $generic: usize),*>($($argument: $type),*) {
            // SAFETY: by the caller's promise, which is the same.
            unsafe { $inner($($argument),*) }
        }
    };
}

with_features!("avx512f", wide_tile<Q, V, S>(job: &Tile<'_>) = tile::<Wide, Q, V, S>);
with_features!("avx2,fma", narrow_tile<Q, V, S>(job: &Tile<'_>) = tile::<Narrow, Q, V, S>);
with_features!("avx512f", wide_runs<R, K, V, S>(job: &Runs<'_>) = runs::<Wide, R, K, V, S>);
with_features!("avx2,fma", narrow_runs<R, K, V, S>(job: &Runs<'_>) = runs::<Narrow, R, K, V, S>);
with_features!("avx512f", wide_pack<>(from: MatrixBlock, to: *mut f32, vectors: usize) = pack::<Wide>);
with_features!("avx2,fma", narrow_pack<>(from: MatrixBlock, to: *mut f32, vectors: usize) = pack::<Narrow>);
with_features!("avx512f", wide_unpack<>(from: *const f32, to: *mut f32, rows: usize, columns: usize) = unpack::<Wide>);
with_features!(
    "avx2,fma",
    narrow_unpack<>(from: *const f32, to: *mut f32, rows: usize, columns: usize) = unpack::<Narrow>
);

macro_rules! tiles {
    ($name:ident, $v:literal, $s:literal: $($q:literal)*) => { &[$($name::<$q, $v, $s>),*] };
}

macro_rules! runs {
    ($name:ident, $v:literal, $s:literal: $(($k:literal, $r:literal))*) => {
        &[$(($k, $r, $name::<$r, $k, $v, $s> as RunsFn)),*]
    };
}

/// Thirty-two registers hold 16 sums of one vector or 11 of two, the weights and a pixel; the compiler keeps no more of
/// them in registers.
static WIDE: Kernels = Kernels {
    vectors: 2,
    pack: wide_pack,
    unpack: wide_unpack,
    tiles: [
        [
            tiles!(wide_tile, 1, 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
            tiles!(wide_tile, 1, 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
        ],
        [
            tiles!(wide_tile, 2, 1: 1 2 3 4 5 6 7 8 9 10 11),
            tiles!(wide_tile, 2, 2: 1 2 3 4 5 6 7 8 9 10 11),
        ],
    ],
    runs: [
        [
            runs!(wide_runs, 1, 1: (1, 8)(3, 8)(5, 5)(7, 3)),
            runs!(wide_runs, 1, 2: (1, 8)(3, 8)(5, 5)(7, 3)),
        ],
        [
            runs!(wide_runs, 2, 1: (1, 8)(3, 4)(5, 2)(7, 1)),
            runs!(wide_runs, 2, 2: (1, 8)(3, 4)(5, 2)(7, 1)),
        ],
    ],
};

/// Sixteen registers hold six pairs.
static NARROW: Kernels = Kernels {
    vectors: 1,
    pack: narrow_pack,
    unpack: narrow_unpack,
    tiles: [
        [tiles!(narrow_tile, 1, 1: 1 2 3 4 5 6), tiles!(narrow_tile, 1, 2: 1 2 3 4 5 6)],
        [&[], &[]],
    ],
    runs: [
        [
            runs!(narrow_runs, 1, 1: (1, 6)(3, 2)(5, 1)),
            runs!(narrow_runs, 1, 2: (1, 6)(3, 2)(5, 1)),
        ],
        [&[], &[]],
    ],
};
