//! What the direct convolution's loops need of a CPU: sixteen f32 side by side in its registers.
#![expect(
    unsafe_code,
    reason = "vector instructions; the kernels on them are compared with the plain reference"
)]

/// Values in one vector.
pub(in crate::cpu) const LANES: usize = 16;

/// A vector of [`LANES`] values.
///
/// # Safety
/// Every function needs the CPU features of its type, and pointers must be valid for what is read and written.
pub(in crate::cpu) trait Lanes: Copy {
    /// All values the same.
    unsafe fn splat(value: f32) -> Self;
    /// Reads a vector.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes a vector.
    unsafe fn store(self, to: *mut f32);
    /// `self * factor + sum`, rounded once.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// Lane by lane.
    unsafe fn add(self, other: Self) -> Self;
    /// Lane by lane.
    unsafe fn sub(self, other: Self) -> Self;
    /// Lane by lane.
    unsafe fn mul(self, factor: Self) -> Self;
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
pub(in crate::cpu) struct MatrixBlock {
    pub(in crate::cpu) values: *const f32,
    pub(in crate::cpu) stride: usize,
    pub(in crate::cpu) rows: usize,
    pub(in crate::cpu) columns: usize,
}
