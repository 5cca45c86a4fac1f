//! Convolution with fewer multiplications (Lavin, Gray: Fast Algorithms for Convolutional Neural Networks,
//! <https://arxiv.org/abs/1509.09308>), for training: filters of three or five taps a side, steps of one, channels that
//! fill vectors.
//!
//! Tiles of 6 x 6 pixels give 4 x 4 of the output (2 x 2 with five taps) by 36 products for each pair of channels,
//! where the sums over taps take 144 (100). The products at each of the 36 points are one matrix product over
//! channels. What is added for the transforms is worth it for many tiles, so that inference, where a record's bits
//! may not depend on how many there are, does without.
#![expect(unsafe_code, reason = "calls the kernels, whose slices are checked here")]

mod backward;
#[cfg(test)]
mod tests;
mod transform;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::buffer::{in_pieces, with_scratch};
use super::frame::Frame;
use super::interleaved::{LANES, as_lanes, interleave, separate};
use super::panel::{Panel, Panels};
use super::prefetch::prefetch_many;
use super::shape::ConvShape;
use super::tasks::share_pieces;
pub(crate) use backward::TileGradients;
use transform::{POINTS, SIDE, Tiles, TilesFn};

/// Tiles times channels whose points stay in the second cache.
const TOGETHER: usize = 1 << 10;

/// Tiles from which on the vectors of a product are fetched seldom enough.
const FEWEST_TOGETHER: usize = 32;

/// Tiles of a batch that are worth the transforms of the weights.
const FEWEST_TILES: usize = 32;

/// The kernels of one kind of CPU for one size of filters.
struct TileKernels {
    /// Pixels of the output from tile to tile.
    step: usize,
    of_input: TilesFn,
    of_gradient: TilesFn,
    of_weights: TilesFn,
    to_output: TilesFn,
    to_input: TilesFn,
    to_weights: TilesFn,
}

impl TileKernels {
    /// For filters of three and of five taps a side; none where nobody has written any.
    fn all() -> impl Iterator<Item = &'static [Self; 2]> {
        #[cfg(target_arch = "x86_64")]
        return x86::kernels();
        #[cfg(not(target_arch = "x86_64"))]
        std::iter::empty()
    }
}

/// A convolution at Winograd's points.
pub(crate) struct Winograd {
    kernels: &'static TileKernels,
    panels: &'static Panels,
    shape: ConvShape,
    /// Tiles of a sample along both axes.
    tiles: [usize; 2],
}

/// Vectors of channels that panels compute together.
#[derive(Clone, Copy)]
struct Group {
    first: usize,
    vectors: usize,
}

impl Group {
    fn width(&self) -> usize {
        self.vectors * LANES
    }
}

/// How planes come to the points.
#[derive(Clone, Copy)]
struct Spread {
    frame: Frame,
    channels: usize,
    of: TilesFn,
}

impl Winograd {
    /// The convolution, if there are kernels for it and they are worth it.
    pub(crate) fn new(shape: &ConvShape) -> Option<Self> {
        let best = TileKernels::all().zip(Panels::all()).next();
        best.and_then(|(kernels, panels)| Self::with(kernels, panels, shape)).filter(Self::pays)
    }

    fn with(
        kernels: &'static [TileKernels; 2],
        panels: &'static Panels,
        shape: &ConvShape,
    ) -> Option<Self> {
        let kernels = match shape.kernel {
            [3, 3] => &kernels[0],
            [5, 5] => &kernels[1],
            _ => return None,
        };
        let plain = shape.groups == 1 && shape.dilation == [1, 1] && shape.stride == [1, 1];
        let channels = [shape.channels_in, shape.channels_out];
        let fill = channels.iter().all(|count| *count > 0 && count.is_multiple_of(LANES));
        let there = shape.is_valid() && shape.batch > 0 && !shape.size.contains(&0);
        let tiles = || shape.out().map(|size| size.div_ceil(kernels.step));
        (plain && fill && there).then(|| Self { kernels, panels, shape: *shape, tiles: tiles() })
    }

    /// Whether it takes less than half of the products, in tiles enough.
    fn pays(&self) -> bool {
        let window = self.shape.kernel[0] * self.shape.kernel[1];
        let plain = window * self.shape.pixels_out();
        2 * POINTS * self.tiles_of(1) <= plain && self.tiles_of(self.shape.batch) >= FEWEST_TILES
    }

    /// Tiles of so many samples.
    fn tiles_of(&self, samples: usize) -> usize {
        samples * self.tiles[0] * self.tiles[1]
    }

    /// Samples of a task: a matter of the shape alone.
    fn samples(&self) -> usize {
        let channels = self.shape.channels_in.max(self.shape.channels_out);
        let tiles = (TOGETHER / channels).max(FEWEST_TOGETHER);
        (tiles / self.tiles_of(1)).min(self.shape.batch.div_ceil(4)).max(1)
    }

    /// Channels in the groups that panels take.
    fn groups(&self, channels: usize) -> impl Iterator<Item = Group> + use<> {
        let panels = self.panels;
        let mut first = 0;
        std::iter::from_fn(move || {
            let vectors = (first < channels).then(|| panels.vectors((channels - first) / LANES))?;
            let group = Group { first, vectors };
            first += group.width();
            Some(group)
        })
    }

    /// The input in its tiles.
    fn input(&self) -> Frame {
        let whole = self.tiles.map(|count| (count - 1) * self.kernels.step + SIDE);
        let before = self.shape.padding.map(|(before, _)| before);
        Frame { size: self.shape.size, before, whole }
    }

    /// The output in its tiles.
    fn output(&self) -> Frame {
        let whole = self.tiles.map(|count| count * self.kernels.step);
        Frame { size: self.shape.out(), before: [0; 2], whole }
    }

    fn of_input(&self) -> Spread {
        let (frame, channels) = (self.input(), self.shape.channels_in);
        Spread { frame, channels, of: self.kernels.of_input }
    }

    fn of_gradient(&self) -> Spread {
        let (frame, channels) = (self.output(), self.shape.channels_out);
        Spread { frame, channels, of: self.kernels.of_gradient }
    }

    /// The convolution of a batch.
    pub(crate) fn forward(&self, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let (shape, samples) = (&self.shape, self.samples());
        let (size, len) = (shape.sample_in(), shape.sample_out());
        let channels = shape.channels_in;
        with_scratch(self.weights_len(channels, shape.channels_out), |filters| {
            self.filters(weight, filters);
            let filters = &*filters;
            let count = shape.batch.div_ceil(samples);
            let (output, _) = in_pieces(shape.batch * len, samples * len, count, |piece, out| {
                let out = out.zeroed();
                let own = out.len() / len;
                let input = &input[piece * samples * size..][..own * size];
                let tiles = self.tiles_of(own);
                with_scratch(points_len(tiles, channels), |points| {
                    self.spread(self.of_input(), input, points);
                    self.finish(points, filters, bias, out);
                });
            });
            output
        })
    }

    /// Products at all points, and the output of them.
    fn finish(&self, points: &[f32], filters: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
        let channels = self.shape.channels_in;
        let tiles = self.tiles_of(out.len() / self.shape.sample_out());
        let mut first_filter = 0;
        for group in self.groups(self.shape.channels_out) {
            let len = apart(channels, group.width()) * POINTS;
            let filters = &filters[first_filter..][..len];
            first_filter += len;
            with_scratch(points_len(tiles, group.width()), |products| {
                self.multiply([points, filters], [tiles, channels], group, products);
                self.gather(group, bias, products, out);
            });
        }
    }

    /// The products of values at points, `[points, tiles, channels]`, with a group's filters.
    fn multiply(
        &self,
        [points, filters]: [&[f32]; 2],
        [tiles, channels]: [usize; 2],
        group: Group,
        products: &mut [f32],
    ) {
        let width = group.width();
        let points = points.chunks_exact(apart(tiles, channels));
        let filters = filters.chunks_exact(apart(channels, width));
        let products = products.chunks_exact_mut(apart(tiles, width));
        for ((left, right), out) in points.zip(filters).zip(products) {
            assert!(left.len() >= tiles * channels && right.len() >= channels * width);
            assert!(out.len() >= tiles * width, "too little room for the products");
            let panel = Panel {
                left: left.as_ptr(),
                row: channels,
                step: 1,
                right: right.as_ptr(),
                right_step: width,
                inner: channels,
                out: out.as_mut_ptr(),
                out_row: width,
                add: false,
            };
            // SAFETY: rows, vectors and sums are inside of the slices, as was just checked; the kernels are those of
            // this CPU.
            unsafe { self.panels.multiply(tiles, group.vectors, panel) };
        }
    }

    /// The planes of samples as values at points, `[points, tiles, channels]`.
    fn spread(&self, Spread { frame, channels, of }: Spread, samples: &[f32], points: &mut [f32]) {
        let pixels = frame.pixels();
        let one = self.tiles_of(1);
        let tiles = samples.len() / (channels * pixels) * one;
        assert!(points.len() >= points_len(tiles, channels), "too little room for the points");
        with_scratch((pixels + frame.len()) * LANES, |scratch| {
            let (plain, framed) = as_lanes(scratch).split_at_mut(pixels);
            framed.fill([0.0; LANES]);
            for (at, sample) in samples.chunks_exact(channels * pixels).enumerate() {
                for (block, planes) in sample.chunks_exact(LANES * pixels).enumerate() {
                    let next = at * channels + (block + 1) * LANES;
                    prefetch_many(samples.get(next * pixels..(next + LANES) * pixels));
                    frame.put(planes, plain, framed);
                    let job = Tiles {
                        pixels: framed.as_mut_ptr().cast(),
                        size: frame.whole,
                        count: self.tiles,
                        points: points[at * one * channels + block * LANES..].as_mut_ptr(),
                        apart: apart(tiles, channels),
                        row: channels,
                        bias: std::ptr::null(),
                    };
                    // SAFETY: the frame has the pixels of all tiles, and the points have room for them, as was checked
                    // above; the kernels are those of this CPU.
                    unsafe { of(&job) };
                }
            }
        });
    }

    /// A group's planes of the output from products at points.
    fn gather(&self, group: Group, bias: Option<&[f32]>, products: &mut [f32], out: &mut [f32]) {
        let frame = self.output();
        let (pixels, one, sample) = (frame.pixels(), self.tiles_of(1), self.shape.sample_out());
        let (tiles, width) = (out.len() / sample * one, group.width());
        assert!(products.len() >= points_len(tiles, width), "fewer products than tiles");
        with_scratch(pixels * LANES, |plain| {
            let plain = as_lanes(plain);
            for (at, sample) in out.chunks_exact_mut(sample).enumerate() {
                let planes = sample.chunks_exact_mut(LANES * pixels).skip(group.first / LANES);
                for (vector, planes) in planes.take(group.vectors).enumerate() {
                    let mut start = [0.0; LANES];
                    if let Some(bias) = bias {
                        start.copy_from_slice(&bias[group.first + vector * LANES..][..LANES]);
                    }
                    let job = Tiles {
                        pixels: plain.as_mut_ptr().cast(),
                        size: frame.size,
                        count: self.tiles,
                        points: products[at * one * width + vector * LANES..].as_mut_ptr(),
                        apart: apart(tiles, width),
                        row: width,
                        bias: start.as_ptr(),
                    };
                    // SAFETY: there is a vector for each pixel of the output, and only those are written; the products
                    // were checked above; the kernels are those of this CPU.
                    unsafe { (self.kernels.to_output)(&job) };
                    separate(plain, pixels, planes);
                }
            }
        });
    }

    /// Room for weights at points.
    fn weights_len(&self, rows: usize, columns: usize) -> usize {
        self.groups(columns).map(|group| apart(rows, group.width()) * POINTS).sum()
    }

    /// The weights at points, group by group of filters, `[points, channels, filters]`.
    fn filters(&self, weight: &[f32], to: &mut [f32]) {
        let channels = self.shape.channels_in;
        let groups: Vec<_> = self.groups(self.shape.channels_out).collect();
        self.share_groups(channels, &groups, to, |group, packed, vector| {
            let first = group.first + vector * LANES;
            let taps = self.shape.taps();
            interleave(&weight[first * taps..][..LANES * taps], taps, packed);
        });
    }

    /// Weights at points, whose filters of a vector `pack` writes one behind the other.
    fn share_groups(
        &self,
        rows: usize,
        groups: &[Group],
        to: &mut [f32],
        pack: impl Fn(Group, &mut [[f32; LANES]], usize) + Sync,
    ) {
        let [side, _] = self.shape.kernel;
        // All groups but the last ones are equally wide.
        let len = groups.first().map_or(1, |group| apart(rows, group.width()) * POINTS);
        share_pieces(to, len, |at, mut to| {
            let mut groups = groups.iter().skip(at).copied();
            while let Some(group) = groups.next().filter(|_| !to.is_empty()) {
                let (own, rest) = to.split_at_mut(apart(rows, group.width()) * POINTS);
                to = rest;
                for vector in 0..group.vectors {
                    with_scratch(rows * side * side * LANES, |packed| {
                        let packed = as_lanes(packed);
                        pack(group, packed, vector);
                        let job = Tiles {
                            pixels: packed.as_mut_ptr().cast(),
                            size: [rows * side, side],
                            count: [rows, 1],
                            points: own[vector * LANES..].as_mut_ptr(),
                            apart: apart(rows, group.width()),
                            row: group.width(),
                            bias: std::ptr::null(),
                        };
                        // SAFETY: there are so many filters, and room for their points: the slices have these sizes;
                        // the kernels are those of this CPU.
                        unsafe { (self.kernels.of_weights)(&job) };
                    });
                }
            }
        });
    }
}

/// How far points are from each other with so many rows of so many channels: a line more than they take, because
/// places at powers of two push each other out of the cache.
fn apart(rows: usize, channels: usize) -> usize {
    rows * channels + LANES
}

/// Room for all points.
fn points_len(rows: usize, channels: usize) -> usize {
    POINTS * apart(rows, channels)
}
