//! Channels side by side and back, by the transposes of this CPU.
#![expect(unsafe_code, reason = "calls the kernels, whose pointers are checked here")]

use std::ops::Range;

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
        self.interleave_part(planes, pixels, 0..pixels, to);
    }

    /// The same for some of the pixels.
    pub(crate) fn interleave_part(
        self,
        planes: &[f32],
        pixels: usize,
        part: Range<usize>,
        to: &mut [[f32; LANES]],
    ) {
        let (rows, columns) = (planes.len() / pixels, part.len());
        assert!(rows <= LANES && to.len() >= columns, "too many planes, or too little room");
        assert!(part.end <= pixels, "no such pixels");
        let values = planes[part.start.min(planes.len())..].as_ptr();
        let from = MatrixBlock { values, stride: pixels, rows, columns };
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
