//! Depthwise convolution: each channel by a filter of its own (MobileNet, <https://arxiv.org/abs/1704.04861>).
//!
//! Matrix products would have one row here. Instead a plane is laid out with its padding, so that each tap reads all of
//! it from one place on, whatever its width: the whole plane is a single line, and full vectors of it are added up in
//! registers, also where planes are smaller than a vector. What falls between the lines is not used.

use super::buffer::with_scratch;
use super::rows::wide;
use super::shape::ConvShape;

/// Values that are added up side by side.
const LANES: usize = 32;

/// A convolution of one sample, channel by channel.
pub(super) struct Depthwise<'a> {
    shape: &'a ConvShape,
    /// The height and the width of a plane with its padding.
    padded: [usize; 2],
    /// Where each tap reads in a padded plane, from where the window begins.
    taps: Vec<usize>,
}

impl<'a> Depthwise<'a> {
    /// Nothing unless each channel has a filter of its own, and only one.
    pub(super) fn new(shape: &'a ConvShape) -> Option<Self> {
        let ConvShape { channels_in, channels_out, groups, kernel, dilation, .. } = *shape;
        if groups == 1 || channels_in != groups || channels_out != groups {
            return None;
        }
        let padded = [0, 1].map(|axis| {
            let (before, after) = shape.padding[axis];
            shape.size[axis] + before + after
        });
        let places = (0..kernel[0]).flat_map(|row| (0..kernel[1]).map(move |column| [row, column]));
        let place =
            |[row, column]: [usize; 2]| row * dilation[0] * padded[1] + column * dilation[1];
        Some(Self { shape, padded, taps: places.map(place).collect() })
    }

    /// Adds the convolution of a sample to `out`.
    pub(super) fn forward(&self, sample: &[f32], weight: &[f32], out: &mut [f32]) {
        let [rows, columns] = self.shape.out();
        let stride = self.shape.stride;
        // Windows that lie below each other are one run; those of every second row are not.
        let (runs, rows_of_run) = if stride[0] == 1 { (1, rows) } else { (rows, 1) };
        let run = (rows_of_run - 1) * self.padded[1] + (columns - 1) * stride[1] + 1;
        let planes = sample.chunks_exact(self.plane_in()).zip(out.chunks_exact_mut(rows * columns));
        self.with_planes(run, |input, _, sums| {
            for ((plane, out), filter) in planes.zip(weight.chunks_exact(self.taps.len())) {
                self.pad(plane, input);
                for (at, out) in (0..runs).zip(out.chunks_exact_mut(rows_of_run * columns)) {
                    let read = &input[at * stride[0] * self.padded[1]..];
                    wide(
                        #[inline(always)]
                        || add_up(sums, self.taps.iter().copied(), filter, read),
                    );
                    for (out, line) in
                        out.chunks_exact_mut(columns).zip(sums.chunks(self.padded[1]))
                    {
                        add_every(out, line, stride[1]);
                    }
                }
            }
        });
    }

    /// Adds the gradient of a sample's input to `target`.
    pub(super) fn input_gradient(&self, gradient: &[f32], weight: &[f32], target: &mut [f32]) {
        let ([height, width], pixels) = (self.shape.size, self.shape.pixels_out());
        let ([above, left], margin) = (self.shape.padding.map(|(before, _)| before), self.margin());
        let run = height.saturating_sub(1) * self.padded[1] + width;
        let planes = gradient.chunks_exact(pixels).zip(target.chunks_exact_mut(self.plane_in()));
        self.with_planes(run, |_, spread, sums| {
            for ((gradient, target), filter) in planes.zip(weight.chunks_exact(self.taps.len())) {
                self.spread(gradient, spread);
                let read = &spread[above * self.padded[1] + left..];
                wide(
                    #[inline(always)]
                    || add_up(sums, self.taps.iter().map(|tap| margin - tap), filter, read),
                );
                for (target, line) in
                    target.chunks_exact_mut(width).zip(sums.chunks(self.padded[1]))
                {
                    add_every(target, line, 1);
                }
            }
        });
    }

    /// Adds the gradient of the weights by one sample to `target`.
    pub(super) fn weight_gradient(&self, sample: &[f32], gradient: &[f32], target: &mut [f32]) {
        let pixels = self.shape.pixels_out();
        let planes = sample.chunks_exact(self.plane_in()).zip(gradient.chunks_exact(pixels));
        self.with_planes(1, |input, spread, _| {
            for ((plane, gradient), filter) in planes.zip(target.chunks_exact_mut(self.taps.len()))
            {
                self.pad(plane, input);
                self.spread(gradient, spread);
                // What goes beyond the last window is zero.
                let length = (self.line() - self.margin()).next_multiple_of(LANES);
                let by = &spread[self.margin()..][..length];
                wide(
                    #[inline(always)]
                    || {
                        for (sum, tap) in filter.iter_mut().zip(&self.taps) {
                            *sum += product(&input[*tap..], by);
                        }
                    },
                );
            }
        });
    }

    /// Calls `work` with a padded plane, one of gradients at the places of their windows, with zeros before it for the
    /// taps, and room for the sums of a run. All of them are zero, and have room for a whole vector at their end.
    fn with_planes<R>(
        &self,
        run: usize,
        work: impl FnOnce(&mut [f32], &mut [f32], &mut [f32]) -> R,
    ) -> R {
        let (input, spread) = (self.line() + LANES, self.margin() + self.line() + LANES);
        let sums = run.next_multiple_of(LANES);
        with_scratch(input + spread + sums, |all| {
            all.fill(0.0);
            let (first, rest) = all.split_at_mut(input);
            let (second, third) = rest.split_at_mut(spread);
            work(first, second, third)
        })
    }

    /// Lays a plane out with its padding, which is zero.
    fn pad(&self, plane: &[f32], padded: &mut [f32]) {
        let [above, left] = self.shape.padding.map(|(before, _)| before);
        let width = self.shape.size[1];
        let lines = padded[above * self.padded[1]..].chunks_mut(self.padded[1]);
        for (line, values) in lines.zip(plane.chunks_exact(width)) {
            line[left..][..width].copy_from_slice(values);
        }
    }

    /// Lays gradients out where their windows begin in a padded plane; what is between them is zero.
    fn spread(&self, gradient: &[f32], spread: &mut [f32]) {
        let [_, columns] = self.shape.out();
        let lines =
            spread[self.margin()..].chunks_mut(self.padded[1]).step_by(self.shape.stride[0]);
        for (line, values) in lines.zip(gradient.chunks_exact(columns)) {
            if self.shape.stride[1] == 1 {
                line[..columns].copy_from_slice(values);
                continue;
            }
            for (to, value) in line.iter_mut().step_by(self.shape.stride[1]).zip(values) {
                *to = *value;
            }
        }
    }

    fn plane_in(&self) -> usize {
        (self.shape.size[0] * self.shape.size[1]).max(1)
    }

    /// Values of a padded plane.
    fn line(&self) -> usize {
        self.padded[0] * self.padded[1]
    }

    /// How far the last tap reads.
    fn margin(&self) -> usize {
        self.taps.last().copied().unwrap_or(0)
    }
}

/// The sums over all taps at each place of a run.
#[inline(always)]
fn add_up(
    sums: &mut [f32],
    taps: impl Iterator<Item = usize> + Clone,
    filter: &[f32],
    read: &[f32],
) {
    for (at, sums) in sums.chunks_exact_mut(LANES).enumerate() {
        let mut lanes = [0f32; LANES];
        for (tap, weight) in taps.clone().zip(filter) {
            let read = &read[at * LANES + tap..][..LANES];
            for (lane, value) in lanes.iter_mut().zip(read) {
                *lane += weight * value;
            }
        }
        sums.copy_from_slice(&lanes);
    }
}

/// Adds the values at every so many places.
fn add_every(target: &mut [f32], line: &[f32], stride: usize) {
    if stride == 1 {
        for (target, value) in target.iter_mut().zip(line) {
            *target += value;
        }
        return;
    }
    for (target, value) in target.iter_mut().zip(line.iter().step_by(stride)) {
        *target += value;
    }
}

/// The sum of the products of two lines of whole vectors, in an order that depends on the length alone.
#[inline(always)]
fn product(read: &[f32], by: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    for (read, by) in read.as_chunks::<LANES>().0.iter().zip(by.as_chunks::<LANES>().0) {
        for (lane, (a, b)) in lanes.iter_mut().zip(read.iter().zip(by)) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}
