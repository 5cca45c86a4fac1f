//! Sums of products in eight bits on x86 without AVX-512: by AVX2, or by the one instruction of AVX-VNNI.
//!
//! AVX2 multiplies bytes with signed bytes and adds two of the products in sixteen bits, where two of 255 x 127 have no
//! room. So both are made signed, and the sign of the input moves to the weight: two of 127 x 127 fit.
#![expect(unsafe_code, reason = "vector instructions; they are compared with plain Rust")]

use std::arch::x86_64::*;

use super::int8::{Int8Product, Int8Steps};

/// Outputs of a tile, whose sums are in two registers of eight.
const TILE: usize = 16;
const HALF: usize = 8;

/// The steps of AVX2, where this CPU can run them.
pub(super) fn steps() -> Option<Int8Steps> {
    is_x86_feature_detected!("avx2").then_some(Int8Steps { sums })
}

/// Those of AVX-VNNI.
pub(super) fn vnni() -> Option<Int8Steps> {
    let can = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni");
    can.then_some(Int8Steps { sums: sums_by_vnni })
}

fn sums(product: &Int8Product<'_>, sums: &mut [i32]) {
    each_block(product, sums, |block, left, sums| {
        // SAFETY: the feature was looked for before this function was given away; the rest is as `each_block` says.
        unsafe {
            match left {
                4.. => block.sums::<4>(sums),
                2.. => block.sums::<2>(sums),
                _ => block.sums::<1>(sums),
            }
        }
    });
}

fn sums_by_vnni(product: &Int8Product<'_>, sums: &mut [i32]) {
    each_block(product, sums, |block, left, sums| {
        // SAFETY: as above.
        unsafe {
            match left {
                4.. => block.sums_by_vnni::<4>(sums),
                2.. => block.sums_by_vnni::<2>(sums),
                _ => block.sums_by_vnni::<1>(sums),
            }
        }
    });
}

/// Calls `sum` for a block, with how many rows it may have; it returns how many it did. The sizes fit.
fn each_block(
    product: &Int8Product<'_>,
    sums: &mut [i32],
    sum: impl Fn(AvxBlock<'_>, usize, &mut [i32]) -> usize,
) {
    let (count, width) = product.size(sums);
    for tile in 0..width / TILE {
        let mut row = 0;
        while row < count {
            row += sum(AvxBlock { product, row, tile }, count - row, sums);
        }
    }
}

/// Some rows and a tile, whose sums are in registers at the same time.
struct AvxBlock<'a> {
    product: &'a Int8Product<'a>,
    /// The first row.
    row: usize,
    tile: usize,
}

impl AvxBlock<'_> {
    /// Four bytes of a row, in all lanes.
    ///
    /// # Safety
    /// The CPU has AVX2; there is such a row with such a group.
    #[target_feature(enable = "avx2")]
    unsafe fn bytes(&self, row: usize, group: usize) -> __m256i {
        let Int8Product { rows, length, .. } = *self.product;
        // SAFETY: by the caller's promise.
        unsafe {
            let bytes = rows.as_ptr().add((self.row + row) * length + group).cast::<i32>();
            _mm256_set1_epi32(bytes.read_unaligned())
        }
    }

    /// The weights of a group, in two halves.
    ///
    /// # Safety
    /// The CPU has AVX2; there is such a group.
    #[target_feature(enable = "avx2")]
    unsafe fn weights(&self, group: usize) -> [__m256i; 2] {
        let Int8Product { length, weights, .. } = *self.product;
        let first = (self.tile * length + group) * TILE;
        // SAFETY: by the caller's promise; a group has four bytes for each output.
        std::array::from_fn(|half| unsafe {
            _mm256_loadu_si256(weights.as_ptr().add(first + half * HALF * 4).cast())
        })
    }

    /// # Safety
    /// The CPU has AVX2; there are `R` rows, and `sums` fits the product.
    #[target_feature(enable = "avx2")]
    unsafe fn store<const R: usize>(&self, registers: [[__m256i; 2]; R], sums: &mut [i32]) {
        for (row, registers) in registers.iter().enumerate() {
            let first = (self.row + row) * self.product.starts.len() + self.tile * TILE;
            for (half, register) in registers.iter().enumerate() {
                // SAFETY: by the caller's promise.
                unsafe {
                    let place = sums.as_mut_ptr().add(first + half * HALF);
                    _mm256_storeu_si256(place.cast(), *register);
                }
            }
        }
    }

    /// Returns how many rows there were.
    ///
    /// # Safety
    /// The CPU has AVX2; there are `R` rows, and `sums` fits the product.
    #[target_feature(enable = "avx2")]
    unsafe fn sums<const R: usize>(&self, sums: &mut [i32]) -> usize {
        // SAFETY: by the caller's promise.
        unsafe {
            let (ones, offset) = (_mm256_set1_epi16(1), _mm256_set1_epi8(i8::MIN));
            let mut registers = [[_mm256_setzero_si256(); 2]; R];
            for group in (0..self.product.length).step_by(4) {
                let weights = self.weights(group);
                for (row, registers) in registers.iter_mut().enumerate() {
                    let bytes = _mm256_xor_si256(self.bytes(row, group), offset);
                    let large = _mm256_abs_epi8(bytes);
                    for (register, weights) in registers.iter_mut().zip(weights) {
                        let pairs = _mm256_maddubs_epi16(large, _mm256_sign_epi8(weights, bytes));
                        *register = _mm256_add_epi32(*register, _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            self.store(registers, sums);
        }
        R
    }

    /// The same with an instruction for it, which takes bytes with their offset.
    ///
    /// # Safety
    /// The CPU has the features; there are `R` rows, and `sums` fits the product.
    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn sums_by_vnni<const R: usize>(&self, sums: &mut [i32]) -> usize {
        let starts = &self.product.starts[self.tile * TILE..][..TILE];
        // SAFETY: by the caller's promise.
        unsafe {
            let begin: [__m256i; 2] = std::array::from_fn(|half| {
                _mm256_loadu_si256(starts.as_ptr().add(half * HALF).cast())
            });
            let mut registers = [begin; R];
            for group in (0..self.product.length).step_by(4) {
                let weights = self.weights(group);
                for (row, registers) in registers.iter_mut().enumerate() {
                    let bytes = self.bytes(row, group);
                    for (register, weights) in registers.iter_mut().zip(weights) {
                        *register = _mm256_dpbusd_avx_epi32(*register, bytes, weights);
                    }
                }
            }
            self.store(registers, sums);
        }
        R
    }
}
