//! New matrices whose columns are computed in blocks by many threads: each clears its own columns, has the product put
//! there and does what follows while they are in its core's cache.
#![expect(unsafe_code, reason = "threads write disjoint columns of the same rows")]

use std::marker::PhantomData;

use super::product::{Matrix, ProductOutput, product_at};
use super::tasks::share;

/// Some columns of a new matrix, which are zeros at first and belong to one thread.
pub(crate) struct ColumnBlock<'a> {
    start: *mut f32,
    rows: usize,
    /// Columns of the whole matrix.
    stride: usize,
    /// The first of the columns.
    pub(crate) first: usize,
    /// How many there are.
    pub(crate) count: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: nobody else uses these columns as long as the block lives.
unsafe impl Send for ColumnBlock<'_> {}

impl ColumnBlock<'_> {
    /// The part of a row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "no such row");
        // SAFETY: the columns are inside of the row, are this block's alone and hold numbers since it was made.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.count) }
    }

    /// Calls `change` for the part of each row.
    pub(crate) fn for_each_row(&mut self, mut change: impl FnMut(&mut [f32])) {
        (0..self.rows).for_each(|row| change(self.row(row)));
    }

    /// Puts the product of two matrices there, or adds it.
    ///
    /// # Panics
    /// If it has other sizes.
    pub(crate) fn product(&mut self, mode: ProductOutput, left: Matrix, right: Matrix) {
        let size = (left.size().0, right.size().1);
        assert_eq!(size, (self.rows, self.count), "the product does not fit its place");
        // SAFETY: the place has so many rows and columns, as was just checked, and is this block's alone.
        unsafe { product_at(mode, self.start, self.stride, left, right) }
    }
}

/// `N` matrices of `rows` rows and `columns` columns, in blocks of so many columns, each filled by `fill`, which gets
/// the same columns of all of them.
pub(crate) fn in_columns<const N: usize>(
    [rows, columns]: [usize; 2],
    block: usize,
    fill: impl Fn([ColumnBlock<'_>; N]) + Sync,
) -> [Vec<f32>; N] {
    let len = rows * columns;
    let mut buffers: [Vec<f32>; N] = std::array::from_fn(|_| Vec::with_capacity(len));
    let starts = buffers.each_mut().map(|buffer| Start(buffer.as_mut_ptr()));
    let blocks = (0..columns).step_by(block.max(1)).collect();
    share(blocks, |_, first: usize| {
        let count = block.min(columns - first);
        fill(starts.map(|start| {
            // SAFETY: the blocks are disjoint sets of columns inside of the buffer's capacity.
            unsafe { start.block(rows, columns, first, count) }
        }));
    });
    for buffer in &mut buffers {
        // SAFETY: the blocks cover all columns of all rows, within the capacity, and each was cleared.
        unsafe { buffer.set_len(len) };
    }
    buffers
}

/// Where a matrix begins that threads write disjoint columns of.
#[derive(Clone, Copy)]
struct Start(*mut f32);

// SAFETY: the pointer is only used for disjoint columns while the buffer is borrowed exclusively.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

impl Start {
    /// Clears columns and gives them away.
    ///
    /// # Safety
    /// The memory must have room for `rows` rows of `stride` values, and nobody else may use these columns as long as
    /// the block lives.
    unsafe fn block<'a>(
        self,
        rows: usize,
        stride: usize,
        first: usize,
        count: usize,
    ) -> ColumnBlock<'a> {
        for row in 0..rows {
            // SAFETY: by the caller's promise; zeros are numbers.
            unsafe { std::ptr::write_bytes(self.0.add(row * stride + first), 0, count) };
        }
        // SAFETY: by the caller's promise.
        let start = unsafe { self.0.add(first) };
        ColumnBlock { start, rows, stride, first, count, owner: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_clear_and_belong_together() {
        let [a, b] = in_columns([3, 5], 2, |[mut a, mut b]| {
            let first = a.first as f32;
            for row in 0..3 {
                let (a, b) = (a.row(row), b.row(row));
                assert!(a.iter().chain(b.iter()).all(|value| *value == 0.0));
                a.fill(first);
                b[0] = 7.0;
            }
        });
        assert_eq!(a, [0.0, 0.0, 2.0, 2.0, 4.0].repeat(3));
        assert_eq!(b, [7.0, 0.0, 7.0, 0.0, 7.0].repeat(3));
        let [none] = in_columns([0, 4], 2, |[_]| {});
        assert!(none.is_empty());
    }

    #[test]
    fn products_lie_in_their_columns() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 2.0, 0.0, 1.0, 3.0]);
        let (left, right) = (Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 3));
        let [found] = in_columns([2, 3], 2, |[mut block]| {
            block.for_each_row(|row| row.fill(10.0));
            let right = right.columns(block.first, block.count);
            block.product(ProductOutput::Add, left, right);
        });
        assert_eq!(found, [11.0, 12.0, 18.0, 13.0, 14.0, 28.0]);
    }

    #[test]
    #[should_panic(expected = "does not fit its place")]
    fn misfits_are_refused() {
        let values = [0.0; 4];
        let _: [Vec<f32>; 1] = in_columns([3, 2], 2, |[mut block]| {
            let square = Matrix::new(&values, 2, 2);
            block.product(ProductOutput::Replace, square, square);
        });
    }
}
