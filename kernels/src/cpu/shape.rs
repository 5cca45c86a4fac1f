//! Sizes of convolutions and poolings, and what follows from them.

use std::ops::Range;

/// The sizes of one convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Samples.
    pub batch: usize,
    /// Channels of the input, over all groups.
    pub channels_in: usize,
    /// Channels of the output, over all groups.
    pub channels_out: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Zeros before and after, per axis.
    pub padding: [(usize, usize); 2],
    /// Distances between the kernel's taps.
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    pub groups: usize,
}

impl ConvShape {
    /// Whether the window fits into the padded input at all and the channels can be grouped.
    pub fn is_valid(&self) -> bool {
        let fits = (0..2).all(|axis| {
            let (before, after) = self.padding[axis];
            self.kernel[axis] > 0
                && self.dilation[axis] * (self.kernel[axis] - 1) < self.size[axis] + before + after
        });
        fits && self.groups > 0
            && self.channels_in.is_multiple_of(self.groups)
            && self.channels_out.is_multiple_of(self.groups)
    }

    /// Height and width of the output.
    pub fn out(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let window = Window::of_conv(self, axis);
            window.count(self.padding[axis].1)
        })
    }

    /// Pixels of one channel of the output.
    pub fn pixels_out(&self) -> usize {
        self.out().iter().product()
    }

    /// Values of one sample of the input.
    pub fn sample_in(&self) -> usize {
        self.channels_in * self.size[0] * self.size[1]
    }

    /// Values of one sample of the output.
    pub fn sample_out(&self) -> usize {
        self.channels_out * self.pixels_out()
    }

    /// Taps of one filter: its channels times its window.
    pub fn taps(&self) -> usize {
        self.channels_in / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Values of the weights.
    pub fn weights(&self) -> usize {
        self.channels_out * self.taps()
    }

    /// Whether every pixel sees itself alone, so that the input is its own column matrix.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [(0, 0); 2]
    }
}

/// The sizes of one max-pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Planes: samples times channels.
    pub planes: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Rows and columns that never win, before and after.
    pub padding: [(usize, usize); 2],
    /// Distances between the window's taps.
    pub dilation: [usize; 2],
}

impl PoolShape {
    /// Whether the window fits and its taps can be told apart in a byte.
    pub fn is_valid(&self) -> bool {
        let fits = (0..2).all(|axis| {
            let (before, after) = self.padding[axis];
            self.kernel[axis] > 0
                && self.dilation[axis] * (self.kernel[axis] - 1) < self.size[axis] + before + after
        });
        fits && self.kernel[0] * self.kernel[1] < usize::from(u8::MAX)
    }

    /// Height and width of the output.
    pub fn out(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.window(axis).count(self.padding[axis].1))
    }

    /// The windows of one axis.
    pub(crate) fn window(&self, axis: usize) -> Window {
        Window {
            size: self.size[axis],
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            before: self.padding[axis].0,
            dilation: self.dilation[axis],
        }
    }
}

/// The windows of one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) size: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) before: usize,
    pub(crate) dilation: usize,
}

impl Window {
    pub(crate) fn of_conv(shape: &ConvShape, axis: usize) -> Self {
        Self {
            size: shape.size[axis],
            kernel: shape.kernel[axis],
            stride: shape.stride[axis],
            before: shape.padding[axis].0,
            dilation: shape.dilation[axis],
        }
    }

    fn count(&self, after: usize) -> usize {
        (self.size + self.before + after - self.dilation * (self.kernel - 1) - 1) / self.stride + 1
    }

    /// Where a tap of a window reads, if that is inside.
    pub(crate) fn at(&self, out: usize, tap: usize) -> Option<usize> {
        (out * self.stride + tap * self.dilation)
            .checked_sub(self.before)
            .filter(|at| *at < self.size)
    }

    /// The windows, out of `count`, in which a tap reads inside, and where it reads in the first.
    pub(crate) fn inside(&self, tap: usize, count: usize) -> (Range<usize>, usize) {
        let shift = tap * self.dilation;
        let first = self.before.saturating_sub(shift).div_ceil(self.stride);
        let end = (self.size + self.before).saturating_sub(shift).div_ceil(self.stride).min(count);
        if first >= end {
            return (0..0, 0);
        }
        (first..end, first * self.stride + shift - self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inside_of_a_tap_is_where_it_reads() {
        for size in 1..6 {
            for (stride, before, dilation) in [(1, 0, 1), (2, 1, 1), (3, 2, 2), (1, 4, 3)] {
                let window = Window { size, kernel: 3, stride, before, dilation };
                for tap in 0..3 {
                    let (range, start) = window.inside(tap, 5);
                    for out in 0..5 {
                        let expected = window.at(out, tap);
                        let found =
                            range.contains(&out).then(|| start + (out - range.start) * stride);
                        assert_eq!(found, expected, "{window:?}, tap {tap}, window {out}");
                    }
                }
            }
        }
    }
}
