//! Sums over taps for every pixel of an output: the forward pass, and each part of the input's gradient.
#![expect(
    unsafe_code,
    reason = "calls the kernels, whose pointers are checked here once per sample"
)]

use std::mem::MaybeUninit;

use super::lanes::MatrixBlock;
use super::tile::{Kernels, Tile, TileFn};
use super::{PaddedPlane, TileChannels, kernels_for};
use crate::cpu::buffer::{Fresh, with_scratch};
use crate::cpu::shape::ConvShape;

/// Weighted sums over the same taps of every pixel.
pub(super) struct Product {
    pub(super) kernels: &'static Kernels,
    /// Where each tap is, in a padded sample.
    pub(super) taps: Vec<usize>,
    /// For every group of channels and every tap, the group's vectors.
    pub(super) weights: Vec<f32>,
    /// What sums start from, in whole vectors.
    pub(super) bias: Vec<f32>,
    pub(super) channels: usize,
    /// Height and width of the output.
    pub(super) out: [usize; 2],
    pub(super) stride: [usize; 2],
    /// Width of the padded sample.
    pub(super) width: usize,
}

impl Product {
    /// Computes all channels of a sample's output, which lies at `plane` values per channel: every pixel is written.
    pub(super) fn run(
        &self,
        sample: &[f32],
        relu: bool,
        output: &mut [MaybeUninit<f32>],
        plane: usize,
    ) {
        let [rows, columns] = self.out;
        let last = (rows - 1) * self.stride[0] * self.width + (columns - 1) * self.stride[1];
        let furthest = self.taps.iter().max().map_or(0, |tap| tap + last + 1);
        assert!(furthest <= sample.len(), "a tap is outside of the sample");
        assert!(
            output.len() >= (self.channels - 1) * plane + rows * columns,
            "too small an output"
        );
        let mut weight = 0;
        for group in TileChannels::all(self.channels, self.kernels.vectors) {
            let weights = &self.weights[weight..][..self.taps.len() * group.width()];
            weight += weights.len();
            let bias = &self.bias[group.first..][..group.width()];
            let tile = Tile {
                input: sample.as_ptr(),
                taps: &self.taps,
                weight: weights.as_ptr(),
                bias: bias.as_ptr(),
                relu,
                output: output[group.first * plane..].as_mut_ptr().cast(),
                plane,
                channels: (self.channels - group.first).min(group.width()),
            };
            // SAFETY: the furthest tap of the last pixel was checked above, the weights and the bias are slices of
            // this group's size, and the output has room for every row of the group's channels.
            unsafe { self.rows(tile, self.kernels.tiles(group.vectors, self.stride[1])) };
        }
    }

    /// # Safety
    /// `tile` must be a group's first one, valid for all pixels of the output.
    unsafe fn rows(&self, tile: Tile<'_>, functions: &[TileFn]) {
        let [rows, columns] = self.out;
        let count = columns.div_ceil(functions.len());
        let width = columns.div_ceil(count);
        for row in 0..rows {
            for first in (0..columns).step_by(width) {
                let pixel = row * self.stride[0] * self.width + first * self.stride[1];
                let function = functions[width.min(columns - first) - 1];
                // SAFETY: by the caller's promise; a tile ends with the row.
                unsafe {
                    function(&Tile {
                        input: tile.input.add(pixel),
                        output: tile.output.add(row * columns + first),
                        ..tile
                    });
                }
            }
        }
    }
}

/// The forward pass of a convolution.
pub(crate) struct Forward {
    product: Product,
    frame: PaddedPlane,
}

impl Forward {
    /// The pass, if the direct kernel serves it.
    pub(crate) fn new(shape: &ConvShape, weight: &[f32], bias: Option<&[f32]>) -> Option<Self> {
        let kernels = kernels_for(shape, shape.channels_out).filter(|_| !shape.is_pointwise())?;
        Some(Self::with(kernels, shape, weight, bias))
    }

    pub(super) fn with(
        kernels: &'static Kernels,
        shape: &ConvShape,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Self {
        let frame = PaddedPlane::of_input(shape);
        let [height, width] = frame.whole();
        let window = shape.kernel[0] * shape.kernel[1];
        let tap = |at: usize| {
            let (channel, y) = (at / window, at / shape.kernel[1] % shape.kernel[0]);
            channel * height * width + y * width + at % shape.kernel[1]
        };
        let mut padded = bias.map_or_else(Vec::new, <[f32]>::to_vec);
        padded.resize(shape.channels_out.next_multiple_of(super::LANES), 0.0);
        let product = Product {
            kernels,
            taps: (0..shape.taps()).map(tap).collect(),
            weights: pack(kernels, weight, shape.channels_out, shape.taps()),
            bias: padded,
            channels: shape.channels_out,
            out: shape.out(),
            stride: shape.stride,
            width,
        };
        Self { product, frame }
    }

    /// Computes one sample.
    pub(crate) fn run(&self, sample: &[f32], relu: bool, output: Fresh) {
        let plane = self.product.out[0] * self.product.out[1];
        assert_eq!(output.len(), self.product.channels * plane, "wrong size of the output");
        with_scratch(self.frame.scratch(), |scratch| {
            let sample = self.frame.pad(sample, scratch);
            // SAFETY: the product writes every pixel of every channel, which are all that there is.
            unsafe { output.written(|output| self.product.run(sample, relu, output, plane)) };
        });
    }
}

/// The rows of a matrix as groups of vectors: for every group and every column, the rows of the group side by side.
pub(super) fn pack(kernels: &Kernels, values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut packed = vec![0.0; rows.next_multiple_of(super::LANES) * columns];
    pack_into(kernels, values, rows, columns, &mut packed);
    packed
}

/// [`pack`] into a buffer.
pub(super) fn pack_into(
    kernels: &Kernels,
    values: &[f32],
    rows: usize,
    columns: usize,
    packed: &mut [f32],
) {
    assert!(values.len() >= rows * columns, "fewer values than {rows} rows of {columns}");
    assert!(packed.len() >= rows.next_multiple_of(super::LANES) * columns, "too small a pack");
    let mut start = 0;
    for group in TileChannels::all(rows, kernels.vectors) {
        for vector in 0..group.vectors {
            let first = group.first + vector * super::LANES;
            let from = MatrixBlock {
                values: values[first * columns..].as_ptr(),
                stride: columns,
                rows: (rows - first).min(super::LANES),
                columns,
            };
            let to = packed[start + vector * super::LANES..].as_mut_ptr();
            // SAFETY: the rows are inside of the values and the vectors inside of the pack, as checked above; the
            // kernels are those of this CPU.
            unsafe { (kernels.pack)(from, to, group.vectors) };
        }
        start += group.width() * columns;
    }
}
