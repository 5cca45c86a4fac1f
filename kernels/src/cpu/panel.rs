//! Matrix products whose tile of sums stays in registers: rows of single values times vectors.
#![expect(unsafe_code, reason = "measured: these loops are where a convolution's time goes")]
#![expect(
    clippy::needless_range_loop,
    reason = "counted loops over small arrays are what the compiler unrolls into registers"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

use super::direct::lanes::{LANES, Lanes};

/// Some rows of a product times some vectors of its columns.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// The value of the first row for the first product.
    pub(super) left: *const f32,
    /// How far rows are from each other, and the values of a row.
    pub(super) row: usize,
    pub(super) step: usize,
    /// The vectors for the first product.
    pub(super) right: *const f32,
    /// How far those of the next product are from them.
    pub(super) right_step: usize,
    /// Products of a sum.
    pub(super) inner: usize,
    pub(super) out: *mut f32,
    pub(super) out_row: usize,
    /// Whether the sums are added to what is there.
    pub(super) add: bool,
}

/// Computes a panel.
///
/// # Safety
/// The CPU must have the features of the table that it came from; the panel's pointers must be valid for its rows,
/// vectors and products, and nobody else may use its output meanwhile.
pub(super) type PanelFn = unsafe fn(&Panel);

#[inline(always)]
pub(super) unsafe fn panel<L: Lanes, const R: usize, const V: usize>(panel: &Panel) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut sums = [[L::splat(0.0); V]; R];
        if panel.add {
            for r in 0..R {
                for v in 0..V {
                    sums[r][v] = L::load(panel.out.add(r * panel.out_row + v * LANES));
                }
            }
        }
        let (mut left, mut right) = (panel.left, panel.right);
        for _ in 0..panel.inner {
            let mut vectors = [L::splat(0.0); V];
            for v in 0..V {
                vectors[v] = L::load(right.add(v * LANES));
            }
            for r in 0..R {
                let value = L::splat(*left.add(r * panel.row));
                for v in 0..V {
                    sums[r][v] = value.mul_add(vectors[v], sums[r][v]);
                }
            }
            left = left.add(panel.step);
            right = right.add(panel.right_step);
        }
        for r in 0..R {
            for v in 0..V {
                sums[r][v].store(panel.out.add(r * panel.out_row + v * LANES));
            }
        }
    }
}

/// Panels of one, two and four vectors, by rows less one.
pub(super) struct Panels(pub(super) [&'static [PanelFn]; 3]);

impl Panels {
    /// The panels that this CPU can run, best first; none where nobody has written any.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        #[cfg(target_arch = "x86_64")]
        return x86::panels();
        #[cfg(not(target_arch = "x86_64"))]
        std::iter::empty()
    }

    /// Vectors that panels take, out of so many that are left.
    pub(super) fn vectors(&self, left: usize) -> usize {
        let index = (0..3).rev().find(|at| 1 << at <= left && !self.0[*at].is_empty());
        1 << index.unwrap_or(0)
    }

    /// A product of so many rows and `vectors` vectors, which [`Self::vectors`] named.
    ///
    /// # Safety
    /// As for [`PanelFn`], for all rows.
    pub(super) unsafe fn multiply(&self, rows: usize, vectors: usize, first: Panel) {
        let functions = self.0[vectors.trailing_zeros() as usize];
        let count = rows.div_ceil(functions.len()).max(1);
        let height = rows.div_ceil(count).max(1);
        for row in (0..rows).step_by(height) {
            let function = functions[height.min(rows - row) - 1];
            // SAFETY: by the caller's promise.
            unsafe {
                function(&Panel {
                    left: first.left.add(row * first.row),
                    out: first.out.add(row * first.out_row),
                    ..first
                });
            }
        }
    }
}
