//! Winograd's kernels on x86: with AVX-512, or with AVX2 and FMA.
#![expect(unsafe_code, reason = "names the CPU features of kernels that are inlined into these")]

use super::super::direct::x86::{Narrow, Wide};
use super::TileKernels;
use super::transform::*;

/// The kernels that this CPU can run, best first.
pub(super) fn kernels() -> impl Iterator<Item = &'static [TileKernels; 2]> {
    let wide = is_x86_feature_detected!("avx512f").then_some(&WIDE);
    let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    wide.into_iter().chain(narrow.then_some(&NARROW))
}

/// A function with the CPU's features around one that is inlined into it.
macro_rules! with_features {
    ($features:literal, $name:ident<$($generic:ident),*>($argument:ident: $type:ty) = $inner:expr) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<$(const $generic: usize),*>($argument: $type) {
            // SAFETY: by the caller's promise, which is the same.
            unsafe { $inner($argument) }
        }
    };
}

with_features!("avx512f", wide_of_input<M>(job: &Tiles) = to_points::<Wide, OfInput, SIDE, M>);
with_features!("avx512f", wide_of_gradient<M>(job: &Tiles) = to_points::<Wide, OfGradient, M, M>);
with_features!("avx512f", wide_of_weights<R>(job: &Tiles) = to_points::<Wide, OfWeights, R, R>);
with_features!("avx512f", wide_to_output<M>(job: &Tiles) = to_output::<Wide, M>);
with_features!("avx512f", wide_to_input<M>(job: &Tiles) = to_input::<Wide, M>);
with_features!("avx512f", wide_to_weights<R>(job: &Tiles) = to_weights::<Wide, R>);
with_features!("avx2,fma", narrow_of_input<M>(job: &Tiles) = to_points::<Narrow, OfInput, SIDE, M>);
with_features!("avx2,fma", narrow_of_gradient<M>(job: &Tiles) = to_points::<Narrow, OfGradient, M, M>);
with_features!("avx2,fma", narrow_of_weights<R>(job: &Tiles) = to_points::<Narrow, OfWeights, R, R>);
with_features!("avx2,fma", narrow_to_output<M>(job: &Tiles) = to_output::<Narrow, M>);
with_features!("avx2,fma", narrow_to_input<M>(job: &Tiles) = to_input::<Narrow, M>);
with_features!("avx2,fma", narrow_to_weights<R>(job: &Tiles) = to_weights::<Narrow, R>);

/// Kernels for filters of `$r` weights a side, whose tiles are `$m` pixels apart.
macro_rules! wide {
    ($m:literal, $r:literal) => {
        TileKernels {
            step: $m,
            of_input: wide_of_input::<$m>,
            of_gradient: wide_of_gradient::<$m>,
            of_weights: wide_of_weights::<$r>,
            to_output: wide_to_output::<$m>,
            to_input: wide_to_input::<$m>,
            to_weights: wide_to_weights::<$r>,
        }
    };
}

macro_rules! narrow {
    ($m:literal, $r:literal) => {
        TileKernels {
            step: $m,
            of_input: narrow_of_input::<$m>,
            of_gradient: narrow_of_gradient::<$m>,
            of_weights: narrow_of_weights::<$r>,
            to_output: narrow_to_output::<$m>,
            to_input: narrow_to_input::<$m>,
            to_weights: narrow_to_weights::<$r>,
        }
    };
}

static WIDE: [TileKernels; 2] = [wide!(4, 3), wide!(2, 5)];
static NARROW: [TileKernels; 2] = [narrow!(4, 3), narrow!(2, 5)];
