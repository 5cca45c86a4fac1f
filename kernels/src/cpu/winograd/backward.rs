//! The gradients of a convolution at Winograd's points: the transposes of what the forward pass does. The output's
//! gradient is brought to the points once, for both.
#![expect(unsafe_code, reason = "calls the kernels, whose pointers are checked here")]

use super::transform::{POINTS, Tiles};
use super::{Group, LANES, Winograd, apart, points_len};
use crate::cpu::buffer::{Fresh, in_pieces, in_turns, with_scratch};
use crate::cpu::elementwise::add_all;
use crate::cpu::interleaved::{as_lanes, interleave, separate};
use crate::cpu::panel::Panel;
use crate::cpu::tasks::{share, share_pieces};

/// Values at points that are kept until the weights' gradient takes them up.
const KEPT: usize = 1 << 23;

/// Weights at points of which tasks have sums of their own.
const OWN_SUMS: usize = 1 << 18;

/// Tasks with sums of their own.
const TASKS: usize = 8;

/// The gradients that were wanted.
#[derive(Debug, Default)]
pub(crate) struct TileGradients {
    /// Of the input.
    pub(crate) input: Option<Vec<f32>>,
    /// Of the weights.
    pub(crate) weight: Option<Vec<f32>>,
}

/// Samples that are brought to the points together.
struct BatchPiece<'a> {
    input: &'a [f32],
    gradient: &'a [f32],
    target: Option<Fresh<'a>>,
}

/// Values of a piece's points: of the input, and of the output's gradient.
#[derive(Clone, Copy)]
struct Lens([usize; 2]);

impl Lens {
    fn both(self) -> usize {
        self.0[0] + self.0[1]
    }
}

/// The products of samples at one point, and whether they are added to what is there.
#[derive(Clone, Copy)]
struct Products {
    samples: usize,
    point: usize,
    add: bool,
}

impl Winograd {
    /// The gradients of the input and of the weights.
    pub(crate) fn backward(
        &self,
        [input, weight, gradient]: [&[f32]; 3],
        [of_input, of_weight]: [bool; 2],
    ) -> TileGradients {
        let (channels, filters) = (self.shape.channels_in, self.shape.channels_out);
        let tiles = self.tiles_of(self.samples());
        let points =
            |wanted: bool, rows, channels| if wanted { points_len(rows, channels) } else { 0 };
        // Only the weights' gradient reads the input.
        let lens = Lens([points(of_weight, tiles, channels), points_len(tiles, filters)]);
        let sums_len = points(of_weight, channels, filters);
        let own_sums = sums_len <= OWN_SUMS;
        let sums_all = if own_sums { TASKS * sums_len } else { sums_len };
        let weights_len = if of_input { self.weights_len(filters, channels) } else { 0 };
        with_scratch(weights_len + sums_all, |scratch| {
            let (weights, sums) = scratch.split_at_mut(weights_len);
            if of_input {
                self.filters_across(weight, weights);
            }
            let (len, piece) = (input.len(), self.samples() * self.shape.sample_in());
            let len = if of_input { len } else { 0 };
            let (target, ()) = in_turns(len, piece, |targets| {
                let pieces = self.pieces(input, gradient, targets);
                match own_sums {
                    true => self.by_samples(pieces, weights, lens, sums),
                    false => self.by_points(pieces, weights, lens, sums),
                }
            });
            TileGradients {
                input: of_input.then_some(target),
                weight: of_weight.then(|| self.weights_of(&sums[..sums_len])),
            }
        })
    }

    /// The batch in pieces.
    fn pieces<'a>(
        &self,
        input: &'a [f32],
        gradient: &'a [f32],
        mut targets: impl Iterator<Item = Fresh<'a>>,
    ) -> Vec<BatchPiece<'a>> {
        let samples = self.samples();
        let inputs = input.chunks(samples * self.shape.sample_in());
        let gradients = gradient.chunks(samples * self.shape.sample_out());
        let both = inputs.zip(gradients);
        both.map(|(input, gradient)| BatchPiece { input, gradient, target: targets.next() })
            .collect()
    }

    /// Brings a piece to the points, and computes its input's gradient where that is wanted.
    fn points_of(&self, piece: BatchPiece<'_>, weights: &[f32], points: [&mut [f32]; 2]) {
        let [of_input, of_gradient] = points;
        if !of_input.is_empty() {
            self.spread(self.of_input(), piece.input, of_input);
        }
        self.spread(self.of_gradient(), piece.gradient, of_gradient);
        if let Some(target) = piece.target {
            self.input_gradient(of_gradient, weights, target.zeroed());
        }
    }

    /// Few weights: each of [`TASKS`] tasks has sums of its own, to which it adds while the points are in its cache.
    fn by_samples(
        &self,
        pieces: Vec<BatchPiece<'_>>,
        weights: &[f32],
        lens: Lens,
        sums: &mut [f32],
    ) {
        let each = pieces.len().div_ceil(TASKS).max(1);
        let mut pieces = pieces.into_iter();
        let tasks: Vec<Vec<_>> = std::iter::from_fn(|| {
            Some(pieces.by_ref().take(each).collect()).filter(|few: &Vec<_>| !few.is_empty())
        })
        .collect();
        let (count, len) = (tasks.len(), sums.len() / TASKS);
        let mut rest = &mut *sums;
        let tasks = tasks
            .into_iter()
            .map(|pieces| {
                let (own, others) = std::mem::take(&mut rest).split_at_mut(len);
                rest = others;
                (pieces, own)
            })
            .collect();
        share(tasks, |_, (pieces, sums): (Vec<BatchPiece<'_>>, &mut [f32])| {
            for (at, piece) in pieces.into_iter().enumerate() {
                let samples = piece.gradient.len() / self.shape.sample_out();
                with_scratch(lens.both(), |points| {
                    let (of_input, of_gradient) = points.split_at_mut(lens.0[0]);
                    self.points_of(piece, weights, [&mut *of_input, &mut *of_gradient]);
                    if sums.is_empty() {
                        return;
                    }
                    let point_sums = sums.chunks_exact_mut(self.apart_of_sums());
                    for (point, sums) in point_sums.enumerate() {
                        let products = Products { samples, point, add: at > 0 };
                        self.add_products(products, [of_input, of_gradient], sums);
                    }
                });
            }
        });
        if len > 0 {
            let (first, others) = sums.split_at_mut(len);
            add_all(first, &others[..(count - 1) * len]);
        }
    }

    /// Many weights: pieces are brought to the points one after the other, which tasks then share.
    fn by_points(
        &self,
        pieces: Vec<BatchPiece<'_>>,
        weights: &[f32],
        lens: Lens,
        sums: &mut [f32],
    ) {
        let together = (KEPT / lens.both()).clamp(1, pieces.len().max(1));
        let mut pieces = pieces.into_iter();
        with_scratch(together * lens.both(), |kept| {
            for turn in 0.. {
                let few: Vec<_> = pieces.by_ref().take(together).collect();
                let samples =
                    |piece: &BatchPiece<'_>| piece.gradient.len() / self.shape.sample_out();
                let samples: Vec<_> = few.iter().map(samples).collect();
                if few.is_empty() {
                    break;
                }
                let tasks = few.into_iter().zip(kept.chunks_exact_mut(lens.both())).collect();
                share(tasks, |_, (piece, points): (BatchPiece<'_>, &mut [f32])| {
                    self.points_of(piece, weights, points.split_at_mut(lens.0[0]).into());
                });
                share_pieces(sums, self.apart_of_sums(), |point, sums| {
                    for (at, (samples, points)) in
                        samples.iter().zip(kept.chunks_exact(lens.both())).enumerate()
                    {
                        let points = points.split_at(lens.0[0]).into();
                        let products = Products { samples: *samples, point, add: turn + at > 0 };
                        self.add_products(products, points, sums);
                    }
                });
            }
        });
    }

    fn apart_of_sums(&self) -> usize {
        apart(self.shape.channels_in, self.shape.channels_out)
    }

    /// The products of samples at one point, added to the gradient of the weights there, `[channels, filters]`, or put
    /// in its place.
    fn add_products(
        &self,
        Products { samples, point, add }: Products,
        [left, right]: [&[f32]; 2],
        sums: &mut [f32],
    ) {
        let (channels, filters) = (self.shape.channels_in, self.shape.channels_out);
        let tiles = self.tiles_of(samples);
        let left = &left[point * apart(tiles, channels)..][..tiles * channels];
        let right = &right[point * apart(tiles, filters)..][..tiles * filters];
        assert!(sums.len() >= channels * filters, "too little room for the sums");
        for group in self.groups(filters) {
            let panel = Panel {
                left: left.as_ptr(),
                row: 1,
                step: channels,
                right: right[group.first..].as_ptr(),
                right_step: filters,
                inner: tiles,
                out: sums[group.first..].as_mut_ptr(),
                out_row: filters,
                add,
            };
            // SAFETY: a row for each channel, as many products as tiles, and vectors inside of the filters: the slices
            // have these sizes; the kernels are those of this CPU.
            unsafe { self.panels.multiply(channels, group.vectors, panel) };
        }
    }

    /// The input's gradient from the output's at the points.
    fn input_gradient(&self, points: &[f32], weights: &[f32], target: &mut [f32]) {
        let filters = self.shape.channels_out;
        let tiles = self.tiles_of(target.len() / self.shape.sample_in());
        let mut first = 0;
        for group in self.groups(self.shape.channels_in) {
            let len = apart(filters, group.width()) * POINTS;
            let weights = &weights[first..][..len];
            first += len;
            with_scratch(points_len(tiles, group.width()), |products| {
                self.multiply([points, weights], [tiles, filters], group, products);
                self.add_up(group, products, target);
            });
        }
    }

    /// A group's planes of the input's gradient from that at the points.
    fn add_up(&self, group: Group, products: &mut [f32], target: &mut [f32]) {
        let frame = self.input();
        let (pixels, one, sample) = (frame.pixels(), self.tiles_of(1), self.shape.sample_in());
        let (tiles, width) = (target.len() / sample * one, group.width());
        assert!(products.len() >= points_len(tiles, width), "fewer products than tiles");
        with_scratch((pixels + frame.len()) * LANES, |scratch| {
            let (plain, framed) = as_lanes(scratch).split_at_mut(pixels);
            for (at, sample) in target.chunks_exact_mut(sample).enumerate() {
                let planes = sample.chunks_exact_mut(LANES * pixels).skip(group.first / LANES);
                for (vector, planes) in planes.take(group.vectors).enumerate() {
                    framed.fill([0.0; LANES]);
                    let job = Tiles {
                        pixels: framed.as_mut_ptr().cast(),
                        size: frame.whole,
                        count: self.tiles,
                        points: products[at * one * width + vector * LANES..].as_mut_ptr(),
                        apart: apart(tiles, width),
                        row: width,
                        bias: std::ptr::null(),
                    };
                    // SAFETY: the frame has the pixels of all tiles; the products were checked above; the kernels are
                    // those of this CPU.
                    unsafe { (self.kernels.to_input)(&job) };
                    separate(frame.take(framed, plain), pixels, planes);
                }
            }
        });
    }

    /// The gradient of the weights from that at the points.
    fn weights_of(&self, sums: &[f32]) -> Vec<f32> {
        let (channels, filters, taps) =
            (self.shape.channels_in, self.shape.channels_out, self.shape.taps());
        let [side, _] = self.shape.kernel;
        assert!(sums.len() >= points_len(channels, filters), "fewer sums than weights");
        let blocks: Vec<_> = (0..filters / LANES).collect();
        let (weight, _) = in_pieces(filters * taps, LANES * taps, blocks.len(), |block, out| {
            with_scratch(taps * LANES, |packed| {
                let packed = as_lanes(packed);
                let job = Tiles {
                    pixels: packed.as_mut_ptr().cast(),
                    size: [channels * side, side],
                    count: [channels, 1],
                    // Only read.
                    points: sums[block * LANES..].as_ptr().cast_mut(),
                    apart: apart(channels, filters),
                    row: filters,
                    bias: std::ptr::null(),
                };
                // SAFETY: there are so many filters at all points, and room for their weights; the kernels are those of
                // this CPU.
                unsafe { (self.kernels.to_weights)(&job) };
                separate(packed, taps, out.zeroed());
            });
        });
        weight
    }

    /// The weights at points, group by group of channels, `[points, filters, channels]`.
    fn filters_across(&self, weight: &[f32], to: &mut [f32]) {
        let window = self.shape.kernel[0] * self.shape.kernel[1];
        let (filters, taps) = (self.shape.channels_out, self.shape.taps());
        let groups: Vec<_> = self.groups(self.shape.channels_in).collect();
        self.share_groups(filters, &groups, to, |group, packed, vector| {
            let first = (group.first + vector * LANES) * window;
            for (filter, packed) in weight.chunks_exact(taps).zip(packed.chunks_exact_mut(window)) {
                interleave(&filter[first..][..LANES * window], window, packed);
            }
        });
    }
}
