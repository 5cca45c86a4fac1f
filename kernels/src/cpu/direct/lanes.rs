//! What the direct convolution's loops need of a CPU: sixteen f32 side by side in its registers.
#![expect(
    unsafe_code,
    reason = "vector instructions; the kernels on them are compared with the plain reference"
)]

/// Values in one vector.
pub(super) const LANES: usize = 16;

/// A vector of [`LANES`] values.
///
/// # Safety
/// Every function needs the CPU features of its type, and pointers must be valid for what is read and written.
pub(super) trait Lanes: Copy {
    /// All values the same.
    unsafe fn splat(value: f32) -> Self;
    /// Reads a vector.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes a vector.
    unsafe fn store(self, to: *mut f32);
    /// `self * factor + sum`, rounded once.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// Zero in place of what is negative; what is not a number stays.
    unsafe fn relu(self) -> Self;
    /// Writes `Q` vectors as columns: lane `i` of all of them goes to `to + i * stride`, for the first `rows` lanes.
    unsafe fn store_columns<const Q: usize>(
        columns: &[Self; Q],
        to: *mut f32,
        stride: usize,
        rows: usize,
    );
    /// Reads `rows` rows of `columns` values at distances of `stride`, and writes their transpose as vectors, which
    /// are `step` apart and zero behind the last row.
    unsafe fn transpose(from: MatrixBlock, to: *mut f32, step: usize);
}

/// A part of a matrix, of at most [`LANES`] rows and columns.
#[derive(Clone, Copy)]
pub(super) struct MatrixBlock {
    pub(super) values: *const f32,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}
