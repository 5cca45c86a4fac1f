//! Depthwise convolution: each channel by a filter of its own (MobileNet, <https://arxiv.org/abs/1704.04861>).
//!
//! Matrix products would have one row here, and planes are often smaller than a vector. So sixteen channels are laid
//! side by side, and a sum is over the taps of a pixel that are inside: without padding, for planes, strides and
//! filters of every size.

mod framed;
mod taps;
#[cfg(test)]
mod tests;

use super::buffer::with_scratch;
use super::interleaved::{LANES, Lanes, as_lanes, interleave, separate};
use super::prefetch::prefetch_many;
use super::rows::wide;
use super::shape::{ConvShape, Window};
use framed::{Framed, Wanted, packed, reversed};

/// A convolution channel by channel.
pub(super) struct Depthwise {
    channels: usize,
    /// Taps of a filter.
    taps: usize,
    /// For every group of channels and every tap, the weights of the group.
    weights: Vec<Lanes>,
    way: Way,
}

enum Way {
    /// The usual filters; also with their taps reversed.
    Framed(Framed, Vec<Lanes>),
    /// All others: what each pixel of the output reads, and what each pixel of the input is read by.
    Met { windows: Meetings, readers: Meetings },
}

/// What the places of a plane meet in a plane on the other side.
struct Meetings {
    rows: Vec<Meets>,
    columns: Vec<Meets>,
    /// For each column, how far the next one's places are if [`RUN`] columns from it on meet the same taps, each as far
    /// from the one before.
    steps: Vec<Option<usize>>,
    /// Width of the other plane.
    width: usize,
    /// Taps of a filter in a row.
    taps: usize,
}

/// For one place of an axis: taps, and the places on the other side that they meet.
type Meets = Vec<(usize, usize)>;

/// Columns that are computed together.
const RUN: usize = 4;

impl Depthwise {
    /// Nothing unless each channel has a filter of its own, and only one.
    pub(super) fn new(shape: &ConvShape, weight: &[f32]) -> Option<Self> {
        let ConvShape { channels_in, channels_out, groups, .. } = *shape;
        let empty = shape.sample_in() == 0 || shape.sample_out() == 0;
        if groups == 1 || channels_in != groups || channels_out != groups || empty {
            return None;
        }
        let taps = shape.taps();
        let weights = packed(weight, groups, taps);
        let way = match Framed::new(shape) {
            Some(framed) => Way::Framed(framed, reversed(&weights, taps)),
            None => Way::met(shape),
        };
        Some(Self { channels: groups, taps, weights, way })
    }

    /// The convolution of a sample.
    pub(super) fn forward(&self, sample: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
        match &self.way {
            Way::Framed(framed, _) => framed.forward(sample, &self.weights, bias, out),
            Way::Met { windows, .. } => self.write(windows, sample, bias, out),
        }
    }

    /// Adds a sample to the gradient of the weights unless `sums` is empty, and writes the gradient of its input where
    /// that is wanted.
    pub(super) fn backward(
        &self,
        sample: &[f32],
        gradient: &[f32],
        sums: &mut [f32],
        target: Option<&mut [f32]>,
    ) {
        match &self.way {
            Way::Framed(framed, reversed) => {
                let sums = Some(as_lanes(sums)).filter(|sums| !sums.is_empty());
                self.by_blocks(framed, reversed, [sample, gradient], Wanted { sums, target });
            }
            Way::Met { windows, readers } => {
                if !sums.is_empty() {
                    self.add_weight_gradient(windows, sample, gradient, sums);
                }
                if let Some(target) = target {
                    self.write(readers, gradient, None, target);
                }
            }
        }
    }

    fn by_blocks(
        &self,
        framed: &Framed,
        reversed: &[Lanes],
        [sample, gradient]: [&[f32]; 2],
        wanted: Wanted<'_>,
    ) {
        let [size, len] = [sample, gradient].map(|values| LANES * values.len() / self.channels);
        let mut sums = wanted.sums.map(|sums| sums.chunks_exact_mut(self.taps));
        let mut targets = wanted.target.map(|target| target.chunks_mut(size));
        let weights = self.weights.chunks_exact(self.taps).zip(reversed.chunks_exact(self.taps));
        let blocks = sample.chunks(size).zip(gradient.chunks(len)).zip(weights);
        for (block, ((planes, gradients), (weights, reversed))) in blocks.enumerate() {
            prefetch_many(sample.get((block + 1) * size..(block + 2) * size));
            prefetch_many(gradient.get((block + 1) * len..(block + 2) * len));
            let wanted = Wanted {
                sums: sums.as_mut().and_then(Iterator::next),
                target: targets.as_mut().and_then(Iterator::next),
            };
            framed.backward([planes, gradients], [weights, reversed], wanted);
        }
    }

    /// For every pixel of `target` the sum over what it meets, from the bias on.
    fn write(&self, meetings: &Meetings, source: &[f32], bias: Option<&[f32]>, target: &mut [f32]) {
        let (from, to) = (source.len() / self.channels, target.len() / self.channels);
        let groups = source.chunks(LANES * from).zip(target.chunks_mut(LANES * to));
        with_scratch((from + to) * LANES, |scratch| {
            let (read, sums) = as_lanes(scratch).split_at_mut(from);
            for (group, (source, target)) in groups.enumerate() {
                interleave(source, from, read);
                let mut first = [0.0; LANES];
                let bias = bias.map_or(&[][..], |bias| &bias[group * LANES..]);
                first.iter_mut().zip(bias).for_each(|(first, bias)| *first = *bias);
                let weights = &self.weights[group * self.taps..][..self.taps];
                wide(
                    #[inline(always)]
                    || meetings.add_up(weights, &first, read, sums),
                );
                separate(sums, to, target);
            }
        });
    }

    /// Sums for the weights' gradient in the order of this kernel, all zero; [`Self::finish`] gives the weights' own.
    pub(super) fn gradient_sums(&self) -> Vec<f32> {
        vec![0.0; self.weights.len() * LANES]
    }

    /// Adds a sample to the gradient of the weights.
    fn add_weight_gradient(
        &self,
        windows: &Meetings,
        sample: &[f32],
        gradient: &[f32],
        sums: &mut [f32],
    ) {
        let (inside, outside) = (sample.len() / self.channels, gradient.len() / self.channels);
        let groups = sample.chunks(LANES * inside).zip(gradient.chunks(LANES * outside));
        let sums = as_lanes(sums).chunks_exact_mut(self.taps);
        with_scratch((inside + outside) * LANES, |scratch| {
            let (read, by) = as_lanes(scratch).split_at_mut(inside);
            for ((sample, gradient), sums) in groups.zip(sums) {
                interleave(sample, inside, read);
                interleave(gradient, outside, by);
                wide(
                    #[inline(always)]
                    || windows.add_products(read, by, sums),
                );
            }
        });
    }

    /// The weights' gradient from its sums.
    pub(super) fn finish(&self, sums: &mut [f32]) -> Vec<f32> {
        let taps = self.taps;
        let mut weight = vec![0.0; self.channels * taps];
        let sums = as_lanes(sums).chunks_exact(taps);
        for (sums, filters) in sums.zip(weight.chunks_mut(LANES * taps)) {
            separate(sums, taps, filters);
        }
        weight
    }
}

impl Way {
    fn met(shape: &ConvShape) -> Self {
        let [rows, columns] = [0, 1].map(|axis| windows(shape, axis));
        let meetings = |rows, columns: Vec<Meets>, width| {
            let steps = (0..columns.len()).map(|at| step(columns.get(at..at + RUN)?)).collect();
            Meetings { rows, columns, steps, width, taps: shape.kernel[1] }
        };
        let [up, left] =
            [reversed_axis(&rows, shape.size[0]), reversed_axis(&columns, shape.size[1])];
        let readers = meetings(up, left, shape.out()[1]);
        Self::Met { windows: meetings(rows, columns, shape.size[1]), readers }
    }
}

/// What each place of an axis of the output reads.
fn windows(shape: &ConvShape, axis: usize) -> Vec<Meets> {
    let window = Window::of_conv(shape, axis);
    let taps = 0..shape.kernel[axis];
    let inside = |out| taps.clone().filter_map(move |tap| Some((tap, window.at(out, tap)?)));
    (0..shape.out()[axis]).map(|out| inside(out).collect()).collect()
}

/// What each of `size` places is read by.
fn reversed_axis(windows: &[Meets], size: usize) -> Vec<Meets> {
    let mut readers = vec![Meets::new(); size];
    for (out, reads) in windows.iter().enumerate() {
        reads.iter().for_each(|(tap, at)| readers[*at].push((*tap, out)));
    }
    readers
}

impl Meetings {
    /// The sum for each place over what it meets, from `first` on.
    #[inline(always)]
    fn add_up(&self, weights: &[Lanes], first: &Lanes, read: &[Lanes], sums: &mut [Lanes]) {
        for (rows, line) in self.rows.iter().zip(sums.chunks_exact_mut(self.columns.len())) {
            let mut at = 0;
            while at < line.len() {
                let places = self.places(rows, at);
                if self.steps[at].is_some() {
                    let found = places.sums([*first; RUN], weights, read);
                    line[at..at + RUN].copy_from_slice(&found);
                    at += RUN;
                } else {
                    [line[at]] = places.sums([*first], weights, read);
                    at += 1;
                }
            }
        }
    }

    /// Adds to each tap's sum the products of what it reads with the places `by` that read it.
    #[inline(always)]
    fn add_products(&self, read: &[Lanes], by: &[Lanes], sums: &mut [Lanes]) {
        for (rows, line) in self.rows.iter().zip(by.chunks_exact(self.columns.len())) {
            let mut at = 0;
            while at < line.len() {
                let places = self.places(rows, at);
                if self.steps[at].is_some() {
                    let by: &[Lanes; RUN] = line[at..].first_chunk().expect("a run is inside");
                    places.add_products(by, read, sums);
                    at += RUN;
                } else {
                    places.add_products(&[line[at]], read, sums);
                    at += 1;
                }
            }
        }
    }

    #[inline(always)]
    fn places<'a>(&'a self, rows: &'a Meets, at: usize) -> Places<'a> {
        Places {
            rows,
            columns: &self.columns[at],
            step: self.steps[at].unwrap_or(0),
            width: self.width,
            taps: self.taps,
        }
    }
}

/// Neighbouring places of a row that meet the same taps.
struct Places<'a> {
    rows: &'a Meets,
    /// What the first of them meets.
    columns: &'a Meets,
    /// How far what the next one meets is from that.
    step: usize,
    /// Width of the other plane.
    width: usize,
    /// Taps of a filter in a row.
    taps: usize,
}

impl Places<'_> {
    #[inline(always)]
    fn sums<const N: usize>(
        &self,
        mut sums: [Lanes; N],
        weights: &[Lanes],
        read: &[Lanes],
    ) -> [Lanes; N] {
        for (tap_row, row) in self.rows {
            let weights = &weights[tap_row * self.taps..][..self.taps];
            let read = &read[row * self.width..][..self.width];
            for (tap, column) in self.columns {
                let weight = weights[*tap];
                let read = &read[*column..][..(N - 1) * self.step + 1];
                for place in 0..N {
                    add_product(&mut sums[place], &weight, &read[place * self.step]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn add_products<const N: usize>(&self, by: &[Lanes; N], read: &[Lanes], sums: &mut [Lanes]) {
        for (tap_row, row) in self.rows {
            let sums = &mut sums[tap_row * self.taps..][..self.taps];
            let read = &read[row * self.width..][..self.width];
            for (tap, column) in self.columns {
                let mut sum = sums[*tap];
                let read = &read[*column..][..(N - 1) * self.step + 1];
                for place in 0..N {
                    add_product(&mut sum, &by[place], &read[place * self.step]);
                }
                sums[*tap] = sum;
            }
        }
    }
}

/// The distance between what neighbouring columns meet, if they meet the same taps at the same distances.
fn step(columns: &[Meets]) -> Option<usize> {
    let apart = |pair: &[Meets]| {
        let [left, right] = pair else { return None };
        let steps =
            left.iter().zip(right).map(
                |((tap, from), (other, to))| {
                    if tap == other { to.checked_sub(*from) } else { None }
                },
            );
        let mut steps = steps.collect::<Option<Vec<_>>>()?.into_iter();
        let first = steps.next()?;
        (left.len() == right.len() && steps.all(|step| step == first)).then_some(first)
    };
    let mut steps = columns.windows(2).map(apart);
    let first = steps.next()??;
    steps.all(|step| step == Some(first)).then_some(first)
}

#[inline(always)]
fn add_product(sums: &mut Lanes, left: &Lanes, right: &Lanes) {
    for lane in 0..LANES {
        sums[lane] += left[lane] * right[lane];
    }
}
