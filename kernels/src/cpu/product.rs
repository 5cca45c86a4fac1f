//! Matrix products on slices, by the `gemm` crate, one thread each: who calls decides how work is cut.
//!
//! A row of a product has the same bits whatever rows are computed with it: a model that is asked about one record says
//! what it says about many. So the inner size is cut here, where gemm would cut it by the other sizes, and single rows
//! and columns, which it sums in another order, have a second one beside them.
#![expect(unsafe_code, reason = "the gemm crate takes raw pointers; sizes are checked here")]

/// A matrix inside a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix row by row.
    ///
    /// # Panics
    /// If there are fewer values than the matrix has.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert!(values.len() >= rows * columns, "{rows}x{columns} is more than the slice has");
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The same values with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The only row and one of zeros, in `values`.
    fn with_zeros_below(self, values: &mut Vec<f32>) -> Matrix<'_> {
        *values =
            (0..self.columns).map(|column| self.values[column * self.column_stride]).collect();
        values.resize(2 * self.columns, 0.0);
        Matrix::new(values, 2, self.columns)
    }

    /// Rows and columns.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Some of the columns.
    #[must_use]
    pub fn columns(self, first: usize, count: usize) -> Self {
        assert!(first + count <= self.columns, "no such columns");
        let start = (first * self.column_stride).min(self.values.len());
        Self { values: &self.values[start..], columns: count, ..self }
    }

    /// Some of the rows.
    #[must_use]
    pub fn rows(self, first: usize, count: usize) -> Self {
        self.transposed().columns(first, count).transposed()
    }
}

/// What a product does with what its output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductOutput {
    /// `out = left * right`
    Replace,
    /// `out += left * right`
    Add,
}

/// The product row by row, on the calling thread.
///
/// # Panics
/// If the sizes do not fit.
pub fn product(mode: ProductOutput, out: &mut [f32], left: Matrix, right: Matrix) {
    product_into(mode, out, right.columns, left, right);
}

/// The product on the calling thread, into rows that begin `stride` values apart: some columns of a wider matrix.
///
/// # Panics
/// If the sizes do not fit.
pub(crate) fn product_into(
    mode: ProductOutput,
    out: &mut [f32],
    stride: usize,
    left: Matrix,
    right: Matrix,
) {
    let (rows, columns) = (left.rows, right.columns);
    let needed = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(columns <= stride && out.len() >= needed, "the output is too small for the product");
    // SAFETY: `out` has room for all rows at this stride, as was just checked, and is borrowed exclusively.
    unsafe { compute(mode, out.as_mut_ptr(), stride, left, right) }
}

/// The product on the calling thread, into rows that begin `stride` values apart, from `out` on.
///
/// # Safety
/// `out` must be valid for `left`'s rows of `right`'s columns at distances of `stride`, and nobody else may use those
/// values meanwhile.
///
/// # Panics
/// If the inner sizes do not fit.
pub(super) unsafe fn product_at(
    mode: ProductOutput,
    out: *mut f32,
    stride: usize,
    left: Matrix,
    right: Matrix,
) {
    // SAFETY: by the caller's promise.
    unsafe { compute(mode, out, stride, left, right) }
}

/// The most products that one call of gemm adds up: it cuts longer sums, in different places for few rows and many.
const DEPTH: usize = 512;

/// # Safety
/// `out` must be valid for `left.rows` rows of `right.columns` values at distances of `stride`, and nobody else may
/// use those values meanwhile.
unsafe fn compute(mode: ProductOutput, out: *mut f32, stride: usize, left: Matrix, right: Matrix) {
    assert_eq!(left.columns, right.rows, "the inner sizes of a product must be equal");
    let (rows, columns, inner) = (left.rows, right.columns, left.columns);
    if rows == 0 || columns == 0 {
        return;
    }
    if rows == 1 || columns == 1 {
        let (mut one_left, mut one_right) = (Vec::new(), Vec::new());
        let left = if rows == 1 { left.with_zeros_below(&mut one_left) } else { left };
        let right = match columns {
            1 => right.transposed().with_zeros_below(&mut one_right).transposed(),
            _ => right,
        };
        let wide = right.columns;
        let mut padded = vec![0.0; left.rows * wide];
        // SAFETY: the output is exclusively borrowed; the given one's values are the caller's.
        unsafe {
            let at = |row: usize, column: usize| out.add(row * stride + column);
            let all = || (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            all().for_each(|(row, column)| padded[row * wide + column] = *at(row, column));
            compute(mode, padded.as_mut_ptr(), wide, left, right);
            all().for_each(|(row, column)| *at(row, column) = padded[row * wide + column]);
        }
        return;
    }
    let mut mode = mode;
    // At least once: without an inner size the output may have to be zeros.
    for first in (0..inner.max(1)).step_by(DEPTH) {
        let count = DEPTH.min(inner - first);
        // SAFETY: the output is the caller's.
        unsafe { block(mode, out, stride, left.columns(first, count), right.rows(first, count)) };
        mode = ProductOutput::Add;
    }
}

/// # Safety
/// As for [`compute`].
unsafe fn block(mode: ProductOutput, out: *mut f32, stride: usize, left: Matrix, right: Matrix) {
    // SAFETY: the matrices were checked to lie inside their slices when they were made; the output is the caller's.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            out,
            1,
            stride as isize,
            mode == ProductOutput::Add,
            left.values.as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.values.as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_equal_sums_over_the_inner_size() {
        let a: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..12).map(|i| (i * i) as f32).collect();
        let mut out = vec![1.0; 8];
        product(ProductOutput::Add, &mut out, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 4));
        let expected =
            |i: usize, j: usize| 1.0 + (0..3).map(|k| a[i * 3 + k] * b[k * 4 + j]).sum::<f32>();
        let all: Vec<f32> = (0..8).map(|at| expected(at / 4, at % 4)).collect();
        assert_eq!(out, all);
        let mut corner = vec![1.0; 2];
        let right = Matrix::new(&b, 3, 4).columns(1, 2);
        product(ProductOutput::Add, &mut corner, Matrix::new(&a, 2, 3).rows(1, 1), right);
        assert_eq!(corner, [expected(1, 1), expected(1, 2)]);
        let mut transposed = vec![7.0; 8];
        let (left, right) =
            (Matrix::new(&b, 3, 4).transposed(), Matrix::new(&a, 2, 3).transposed());
        product(ProductOutput::Replace, &mut transposed, left, right);
        assert_eq!(transposed[1] + 1.0, expected(1, 0));
    }

    /// Values that sums of another order would round differently.
    fn rough(count: usize, seed: u32) -> Vec<f32> {
        let one = |i: u32| {
            let bits = (i ^ seed).wrapping_mul(2_654_435_761).rotate_left(13) ^ i;
            (bits % 20_011) as f32 / 7_919.0 - 1.25
        };
        (0..count as u32).map(one).collect()
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_is_beside_it() {
        const ROWS: usize = 70;
        for inner in [1, 2, 3, 16, 100, 511, 513, 784, 1300] {
            for columns in [1, 2, 10, 63, 65, 130] {
                let (left, right) = (rough(ROWS * inner, 1), rough(inner * columns, 7));
                let right = Matrix::new(&right, inner, columns);
                let compute = |first: usize, rows: usize| {
                    let mut out = rough(columns, 3).repeat(rows);
                    let left = Matrix::new(&left, ROWS, inner).rows(first, rows);
                    product(ProductOutput::Add, &mut out, left, right);
                    out
                };
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                let all = compute(0, ROWS);
                for (first, rows) in [(0, 1), (69, 1), (3, 2), (5, 7), (0, 16), (6, 64)] {
                    let own = &all[first * columns..(first + rows) * columns];
                    let found = compute(first, rows);
                    assert_eq!(
                        bits(&found),
                        bits(own),
                        "{rows} rows from {first}, {inner} x {columns}"
                    );
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "inner sizes")]
    fn misfits_are_refused() {
        let (left, right) = (Matrix::new(&[0.0; 4], 2, 2), Matrix::new(&[0.0; 6], 3, 2));
        product(ProductOutput::Replace, &mut [0.0; 4], left, right);
    }
}
