//! Depthwise convolution's kernels on x86: with AVX-512, or with AVX2 and FMA.
#![expect(unsafe_code, reason = "names the CPU features of kernels that are inlined into these")]

use super::super::super::direct::x86::{Narrow, Wide};
use super::{Kernels, Taps, products, scatter, sums};

/// The kernels that this CPU can run, best first.
pub(super) fn kernels() -> impl Iterator<Item = &'static [Kernels]> {
    let wide = is_x86_feature_detected!("avx512f").then_some(&WIDE[..]);
    let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    wide.into_iter().chain(narrow.then_some(&NARROW[..]))
}

/// A function with the CPU's features around one that is inlined into it.
macro_rules! with_features {
    ($features:literal, $name:ident = $inner:ident::<$lanes:ident>) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<const K: usize, const S: usize>(taps: &Taps) {
            // SAFETY: by the caller's promise, which is the same.
            unsafe { $inner::<$lanes, K, S>(taps) }
        }
    };
}

with_features!("avx512f", wide_sums = sums::<Wide>);
with_features!("avx512f", wide_products = products::<Wide>);
with_features!("avx512f", wide_scatter = scatter::<Wide>);
with_features!("avx2,fma", narrow_sums = sums::<Narrow>);
with_features!("avx2,fma", narrow_products = products::<Narrow>);
with_features!("avx2,fma", narrow_scatter = scatter::<Narrow>);

macro_rules! kernels {
    ($sums:ident, $products:ident, $scatter:ident: $(($side:literal, $stride:literal))*) => {
        [$(Kernels {
            side: $side,
            stride: $stride,
            sums: $sums::<$side, $stride>,
            products: $products::<$side, $stride>,
            scatter: $scatter::<$side, $stride>,
        }),*]
    };
}

static WIDE: [Kernels; 4] =
    kernels!(wide_sums, wide_products, wide_scatter: (3, 1) (3, 2) (5, 1) (5, 2));
static NARROW: [Kernels; 4] =
    kernels!(narrow_sums, narrow_products, narrow_scatter: (3, 1) (3, 2) (5, 1) (5, 2));
