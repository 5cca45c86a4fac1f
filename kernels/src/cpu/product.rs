//! Matrix products on slices, by the `gemm` crate, one thread each: who calls decides how work is cut.
#![expect(unsafe_code, reason = "the gemm crate takes raw pointers; sizes are checked here")]

use super::tasks::share;

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

/// The product cut into blocks of columns that are computed in parallel.
///
/// # Panics
/// If the sizes do not fit.
pub(crate) fn product_by_columns(
    mode: ProductOutput,
    out: &mut [f32],
    block: usize,
    left: Matrix,
    right: Matrix,
) {
    let columns = right.columns;
    assert!(out.len() >= left.rows * columns, "the output is too small for the product");
    let target = Target(out.as_mut_ptr());
    share((0..columns.div_ceil(block)).collect(), |_, index: usize| {
        let first = index * block;
        let count = block.min(columns - first);
        // SAFETY: blocks are disjoint sets of columns of the exclusively borrowed output, inside its checked size.
        unsafe { compute(mode, target.at(first), columns, left, right.columns(first, count)) }
    });
}

/// The output that threads write disjoint columns of.
#[derive(Clone, Copy)]
struct Target(*mut f32);

impl Target {
    /// # Safety
    /// `offset` must be inside the output.
    unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: by the caller's promise.
        unsafe { self.0.add(offset) }
    }
}

// SAFETY: the pointer is only used for disjoint columns while the output is borrowed exclusively.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// # Safety
/// `out` must be valid for `left.rows` rows of `right.columns` values at distances of `stride`, and nobody else may
/// use those values meanwhile.
unsafe fn compute(mode: ProductOutput, out: *mut f32, stride: usize, left: Matrix, right: Matrix) {
    assert_eq!(left.columns, right.rows, "the inner sizes of a product must be equal");
    if left.rows == 0 || right.columns == 0 {
        return;
    }
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
        let mut blocks = vec![1.0; 8];
        let (left, right) = (Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 4));
        product_by_columns(ProductOutput::Add, &mut blocks, 3, left, right);
        assert_eq!(blocks, all);
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

    #[test]
    #[should_panic(expected = "inner sizes")]
    fn misfits_are_refused() {
        let (left, right) = (Matrix::new(&[0.0; 4], 2, 2), Matrix::new(&[0.0; 6], 3, 2));
        product(ProductOutput::Replace, &mut [0.0; 4], left, right);
    }
}
