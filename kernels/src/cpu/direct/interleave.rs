//! Channels side by side and back, by the transposes of this CPU.
#![expect(unsafe_code, reason = "calls the kernels, whose pointers are checked here")]

use super::LANES;
use super::lanes::MatrixBlock;
use super::tile::Kernels;

/// The transposes of this CPU.
#[derive(Clone, Copy)]
pub(crate) struct Interleave(&'static Kernels);

impl Interleave {
    /// Nothing where nobody has written any.
    pub(crate) fn new() -> Option<Self> {
        Kernels::all().next().map(Self)
    }

    /// At most [`LANES`] planes of `pixels` values as a vector for every pixel, whose other lanes are zero.
    pub(crate) fn interleave(self, planes: &[f32], pixels: usize, to: &mut [[f32; LANES]]) {
        let rows = planes.len() / pixels;
        assert!(rows <= LANES && to.len() >= pixels, "too many planes, or too little room");
        let from = MatrixBlock { values: planes.as_ptr(), stride: pixels, rows, columns: pixels };
        // SAFETY: the planes are slices of this size and there is a vector for every pixel, as was just checked; the
        // kernels are those of this CPU.
        unsafe { (self.0.pack)(from, to.as_mut_ptr().cast(), 1) }
    }

    /// The way back.
    pub(crate) fn separate(self, from: &[[f32; LANES]], pixels: usize, planes: &mut [f32]) {
        let rows = planes.len() / pixels;
        assert!(rows <= LANES && from.len() >= pixels, "too many planes, or too few vectors");
        // SAFETY: as above.
        unsafe { (self.0.unpack)(from.as_ptr().cast(), planes.as_mut_ptr(), rows, pixels) }
    }
}
