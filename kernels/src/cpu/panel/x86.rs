//! Panels on x86: with AVX-512, or with AVX2 and FMA.
#![expect(unsafe_code, reason = "names the CPU features of kernels that are inlined into these")]

use super::super::direct::x86::{Narrow, Wide};
use super::{Panel, Panels, panel};

/// The panels that this CPU can run, best first.
pub(super) fn panels() -> impl Iterator<Item = &'static Panels> {
    let wide = is_x86_feature_detected!("avx512f").then_some(&WIDE);
    let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    wide.into_iter().chain(narrow.then_some(&NARROW))
}

#[target_feature(enable = "avx512f")]
unsafe fn wide<const R: usize, const V: usize>(job: &Panel) {
    // SAFETY: by the caller's promise, which is the same.
    unsafe { panel::<Wide, R, V>(job) };
}

#[target_feature(enable = "avx2,fma")]
unsafe fn narrow<const R: usize, const V: usize>(job: &Panel) {
    // SAFETY: as above.
    unsafe { panel::<Narrow, R, V>(job) };
}

macro_rules! rows {
    ($name:ident, $v:literal: $($r:literal)*) => { &[$($name::<$r, $v>),*] };
}

/// Thirty-two registers hold the sums, the vectors and a value.
static WIDE: Panels = Panels([
    rows!(wide, 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
    rows!(wide, 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    rows!(wide, 4: 1 2 3 4 5 6),
]);

/// Sixteen registers hold six pairs.
static NARROW: Panels = Panels([rows!(narrow, 1: 1 2 3 4 5 6), &[], &[]]);
