//! Sums of products in eight bits on x86, with the instructions that AVX-512 has for neural networks.
#![expect(unsafe_code, reason = "vector instructions; they are compared with plain Rust")]

use std::arch::x86_64::*;

use super::int8::{Int8Product, Int8Steps};

/// Sums of a register.
const LANES: usize = 16;

/// The steps, where this CPU can run them.
pub(super) fn steps() -> Option<Int8Steps> {
    let can = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    can.then_some(Int8Steps { sums })
}

fn sums(product: &Int8Product<'_>, sums: &mut [i32]) {
    let (count, width) = product.size(sums);
    let (mut first, tiles) = (0, width / LANES);
    while first < tiles {
        let mut row = 0;
        while row < count {
            let block = VnniBlock { product, row, first };
            // SAFETY: the features were looked for before this function was given away, the sizes were just checked,
            // and there are as many rows and tiles as are asked for.
            row += unsafe {
                match (count - row, tiles - first) {
                    (6.., 4..) => block.sums::<6, 4>(sums),
                    (4.., 4..) => block.sums::<4, 4>(sums),
                    (2.., 4..) => block.sums::<2, 4>(sums),
                    (_, 4..) => block.sums::<1, 4>(sums),
                    (6.., _) => block.sums::<6, 1>(sums),
                    (4.., _) => block.sums::<4, 1>(sums),
                    (2.., _) => block.sums::<2, 1>(sums),
                    _ => block.sums::<1, 1>(sums),
                }
            };
        }
        first += if tiles - first >= 4 { 4 } else { 1 };
    }
}

/// Some rows and some tiles, whose sums are in registers at the same time.
struct VnniBlock<'a> {
    product: &'a Int8Product<'a>,
    /// The first row.
    row: usize,
    /// The first tile.
    first: usize,
}

impl VnniBlock<'_> {
    /// Returns how many rows there were.
    ///
    /// # Safety
    /// The CPU has the features; the product fits `sums`, and has `R` rows and `C` tiles from the first ones on.
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn sums<const R: usize, const C: usize>(&self, sums: &mut [i32]) -> usize {
        let Int8Product { rows, length, weights, starts } = *self.product;
        let column = self.first * LANES;
        // SAFETY: by the caller's promise.
        unsafe {
            let rows = rows.as_ptr().add(self.row * length);
            let weight = weights.as_ptr().add(column * length);
            let begin: [__m512i; C] = std::array::from_fn(|tile| {
                _mm512_loadu_si512(starts.as_ptr().add(column + tile * LANES).cast())
            });
            let mut registers = [begin; R];
            for group in (0..length).step_by(4) {
                let weights: [__m512i; C] = std::array::from_fn(|tile| {
                    _mm512_loadu_si512(weight.add((tile * length + group) * LANES).cast())
                });
                for (row, registers) in registers.iter_mut().enumerate() {
                    let bytes = rows.add(row * length + group).cast::<i32>().read_unaligned();
                    let bytes = _mm512_set1_epi32(bytes);
                    for (register, weights) in registers.iter_mut().zip(weights) {
                        *register = _mm512_dpbusd_epi32(*register, bytes, weights);
                    }
                }
            }
            for (row, registers) in registers.iter().enumerate() {
                for (tile, register) in registers.iter().enumerate() {
                    let place = (self.row + row) * starts.len() + column + tile * LANES;
                    _mm512_storeu_si512(sums.as_mut_ptr().add(place).cast(), *register);
                }
            }
        }
        R
    }
}
