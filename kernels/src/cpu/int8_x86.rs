//! Sums of bytes on x86, with the instruction that AVX-512 has for neural networks.
#![expect(unsafe_code, reason = "vector instructions; they are compared with the plain sums")]

use std::arch::x86_64::*;

use super::int8::SumKernel;

/// The kernel, where this CPU can run it.
pub(super) fn kernel() -> Option<SumKernel> {
    let can = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    can.then_some(sums as _)
}

fn sums(rows: &[u8], length: usize, weight: &[i8], sums: &mut [i32]) {
    let count = sums.len() / 16;
    assert!(
        length.is_multiple_of(4) && rows.len() >= count * length && weight.len() >= length * 16,
        "the rows or the weights are too short"
    );
    // SAFETY: the features were looked for before this function was given away, and the sizes were just checked.
    unsafe {
        match count {
            8 => block::<8>(rows, length, weight, sums),
            _ => (0..count).for_each(|row| {
                block::<1>(&rows[row * length..], length, weight, &mut sums[row * 16..]);
            }),
        }
    }
}

/// # Safety
/// The CPU has the features; there are `R` rows of `length` bytes, a multiple of four, `16 * length` weights, and `R`
/// rows of sixteen sums.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn block<const R: usize>(rows: &[u8], length: usize, weight: &[i8], sums: &mut [i32]) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut registers = [_mm512_setzero_si512(); R];
        for group in 0..length / 4 {
            let weights = _mm512_loadu_si512(weight.as_ptr().add(group * 64).cast());
            for (row, register) in registers.iter_mut().enumerate() {
                let bytes =
                    rows.as_ptr().add(row * length + group * 4).cast::<i32>().read_unaligned();
                *register = _mm512_dpbusd_epi32(*register, _mm512_set1_epi32(bytes), weights);
            }
        }
        for (row, register) in registers.iter().enumerate() {
            _mm512_storeu_si512(sums.as_mut_ptr().add(row * 16).cast(), *register);
        }
    }
}
