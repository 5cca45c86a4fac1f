//! The linear layer in eight bits on x86, with the instructions that AVX-512 has for neural networks.
#![expect(unsafe_code, reason = "vector instructions; they are compared with plain Rust")]

use std::arch::x86_64::*;

use super::int8::{Int8Steps, Int8Tile, plain_floats, plain_numbers};

/// Values of a register.
const LANES: usize = 16;

/// The steps, where this CPU can run them.
pub(super) fn steps() -> Option<Int8Steps> {
    let can = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    can.then_some(Int8Steps { numbers, sums, floats })
}

fn numbers(row: &[f32], bytes: &mut [u8]) -> f32 {
    assert_eq!(row.len(), bytes.len(), "a byte for each value is due");
    // SAFETY: the features were looked for before this function was given away, and the sizes were just checked.
    match unsafe { largest(row) } {
        Some(most) if most > 0.0 && most / 127.0 > 0.0 => {
            let scale = most / 127.0;
            // SAFETY: as above.
            unsafe { rounded(row, scale, bytes) };
            scale
        }
        // Nothing but zeros, or what is no number.
        _ => plain_numbers(row, bytes),
    }
}

/// The largest of a row without its sign; nothing where a value is no finite number.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f")]
unsafe fn largest(row: &[f32]) -> Option<f32> {
    let mut most = _mm512_setzero_si512();
    // Without their signs floats have the order of their bits, and what is no number is above all others.
    let sign = _mm512_set1_epi32(0x7fff_ffff);
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        // SAFETY: there are sixteen values.
        let values = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        most = _mm512_max_epi32(most, _mm512_and_si512(values, sign));
    }
    let rest = rest.iter().map(|value| value.abs().to_bits() as i32).max().unwrap_or(0);
    let most = f32::from_bits(_mm512_reduce_max_epi32(most).max(rest) as u32);
    most.is_finite().then_some(most)
}

/// # Safety
/// The CPU has the features; there is a byte for each value.
#[target_feature(enable = "avx512f")]
unsafe fn rounded(row: &[f32], scale: f32, bytes: &mut [u8]) {
    let (scales, most, least) =
        (_mm512_set1_ps(scale), _mm512_set1_ps(127.0), _mm512_set1_ps(-127.0));
    let offset = _mm512_set1_epi32(128);
    for (values, bytes) in row.chunks(LANES).zip(bytes.chunks_mut(LANES)) {
        let mask = (u32::MAX >> (32 - values.len())) as __mmask16;
        // SAFETY: what is behind the last value is neither read nor written.
        unsafe {
            let values = _mm512_maskz_loadu_ps(mask, values.as_ptr());
            let values = _mm512_div_ps(values, scales);
            let values = _mm512_min_ps(_mm512_max_ps(values, least), most);
            // To the nearest, ties to even.
            let whole = _mm512_cvt_roundps_epi32::<0x08>(values);
            let numbers = _mm512_add_epi32(whole, offset);
            _mm512_mask_cvtepi32_storeu_epi8(bytes.as_mut_ptr().cast(), mask, numbers);
        }
    }
}

fn floats(sums: &[i32], tile: &Int8Tile<'_>, scale: f32, output: &mut [f32]) {
    let whole = output.len() == LANES
        && sums.len() >= LANES
        && tile.offsets.len() >= LANES
        && tile.scales.len() >= LANES
        && tile.bias.is_none_or(|bias| bias.len() >= LANES);
    match whole {
        // SAFETY: the features were looked for before this function was given away, and the sizes were just checked.
        true => unsafe { scaled(sums, tile, scale, output) },
        false => plain_floats(sums, tile, scale, output),
    }
}

/// # Safety
/// The CPU has the features; there are sixteen of everything.
#[target_feature(enable = "avx512f")]
unsafe fn scaled(sums: &[i32], tile: &Int8Tile<'_>, scale: f32, output: &mut [f32]) {
    // SAFETY: by the caller's promise.
    unsafe {
        let sums = _mm512_loadu_si512(sums.as_ptr().cast());
        let offsets = _mm512_loadu_si512(tile.offsets.as_ptr().cast());
        let whole = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, offsets));
        let scales = _mm512_loadu_ps(tile.scales.as_ptr());
        let bias = match tile.bias {
            Some(bias) => _mm512_loadu_ps(bias.as_ptr()),
            None => _mm512_setzero_ps(),
        };
        // Not in one instruction, which would round once where plain Rust rounds twice.
        let products = _mm512_mul_ps(whole, _mm512_mul_ps(_mm512_set1_ps(scale), scales));
        _mm512_storeu_ps(output.as_mut_ptr(), _mm512_add_ps(bias, products));
    }
}

fn sums(rows: &[u8], length: usize, weight: &[i8], sums: &mut [i32]) {
    let count = sums.len() / LANES;
    assert!(
        length.is_multiple_of(4) && rows.len() >= count * length && weight.len() >= length * LANES,
        "the rows or the weights are too short"
    );
    let mut first = 0;
    while first < count {
        let (rows, sums) = (&rows[first * length..], &mut sums[first * LANES..]);
        // SAFETY: the features were looked for before this function was given away, and the sizes were just checked.
        first += unsafe {
            match count - first {
                8.. => block::<8>(rows, length, weight, sums),
                4.. => block::<4>(rows, length, weight, sums),
                2.. => block::<2>(rows, length, weight, sums),
                _ => block::<1>(rows, length, weight, sums),
            }
        };
    }
}

/// Returns how many rows there were.
///
/// # Safety
/// The CPU has the features; there are `R` rows of `length` bytes, a multiple of four, `16 * length` weights, and `R`
/// rows of sixteen sums.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn block<const R: usize>(
    rows: &[u8],
    length: usize,
    weight: &[i8],
    sums: &mut [i32],
) -> usize {
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
            _mm512_storeu_si512(sums.as_mut_ptr().add(row * LANES).cast(), *register);
        }
    }
    R
}
