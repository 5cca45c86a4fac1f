//! Rows in one flat array: the limit of any table.
#![allow(
    unsafe_code,
    reason = "a limit without the hints that the table gives to the machine would be none"
)]

use pulp::Arch;
use rustix::mm::{Advice, madvise};

/// Rows that are fetched ahead of their use, into the first cache and into the second: for each what was
/// fastest among 8 to 128.
const AHEAD: usize = 16;
const FAR_AHEAD: usize = 64;

/// An array of rows of `WIDTH` floats.
pub(crate) struct FlatRows<const WIDTH: usize> {
    array: Vec<f32>,
    start: usize,
}

/// Bytes of a large page.
const HUGE: usize = 2 << 20;

impl<const WIDTH: usize> FlatRows<WIDTH> {
    /// So many rows, on large pages if asked.
    pub(crate) fn new(rows: usize, huge: bool) -> Self {
        let mut array = vec![0.0f32; rows * WIDTH + HUGE / 4];
        let start = array.as_ptr().align_offset(HUGE);
        let values = &mut array[start..];
        let (pointer, length) = (values.as_mut_ptr(), size_of_val(values) / HUGE * HUGE);
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range lies inside the array, and the advice keeps what is in it.
        unsafe { madvise(pointer.cast(), length, advice) }.expect("advice is taken");
        values.iter_mut().enumerate().for_each(|(at, value)| *value = at as f32);
        Self { array, start }
    }

    /// Copies rows, one after the other.
    pub(crate) fn gather_plain(&self, rows: &[u32], out: &mut [f32]) {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(WIDTH)) {
            out.copy_from_slice(&self.array[self.start + *row as usize * WIDTH..][..WIDTH]);
        }
    }

    /// Copies rows with those that come next fetched ahead into the first cache.
    pub(crate) fn gather(&self, rows: &[u32], out: &mut [f32]) {
        self.gather_with::<AHEAD>(rows, out, fetch);
    }

    /// Copies rows with those that come next fetched ahead into the second cache.
    pub(crate) fn gather_far(&self, rows: &[u32], out: &mut [f32]) {
        self.gather_with::<FAR_AHEAD>(rows, out, fetch_far);
    }

    #[inline(always)]
    fn gather_with<const AHEAD: usize>(
        &self,
        rows: &[u32],
        out: &mut [f32],
        fetch: impl Fn(&[f32; WIDTH]),
    ) {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let out = out.as_chunks_mut::<WIDTH>().0;
                let values = self.array[self.start..].as_chunks::<WIDTH>().0;
                for (at, (row, out)) in rows.iter().zip(out).enumerate() {
                    if let Some(next) = rows.get(at + AHEAD) {
                        fetch(&values[*next as usize]);
                    }
                    *out = values[*row as usize];
                }
            },
        );
    }

    /// Adds to rows, with those that come next fetched ahead: a stream that reads and writes.
    pub(crate) fn add(&mut self, rows: &[u32], amounts: &[f32]) {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let values = self.array[self.start..].as_chunks_mut::<WIDTH>().0;
                let dim = amounts.len() / rows.len();
                for (at, (row, amounts)) in rows.iter().zip(amounts.chunks_exact(dim)).enumerate() {
                    if let Some(next) = rows.get(at + FAR_AHEAD) {
                        fetch_far(&values[*next as usize]);
                    }
                    for slot in values[*row as usize].chunks_exact_mut(dim) {
                        slot.iter_mut().zip(amounts).for_each(|(value, more)| *value += more);
                    }
                }
            },
        );
    }
}

#[inline(always)]
fn fetch<const WIDTH: usize>(row: &[f32; WIDTH]) {
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(16) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

#[inline(always)]
fn fetch_far<const WIDTH: usize>(row: &[f32; WIDTH]) {
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(16) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}
