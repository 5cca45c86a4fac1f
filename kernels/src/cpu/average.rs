//! Average pooling, of windows or of equal parts, forward and backward.

use std::ops::Range;

use super::buffer::in_pieces;
use super::elementwise::sum;
use super::rows::wide;
use super::shape::PoolShape;

/// The windows of one axis: what each covers of the input, and by how much its sum is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows(Vec<(Range<usize>, usize)>);

impl Windows {
    /// Windows of a pooling; those in the padding are divided by their whole size or by what is inside.
    pub fn of_pool(shape: &PoolShape, axis: usize, count_padding: bool) -> Self {
        let (size, kernel) = (shape.size[axis], shape.kernel[axis]);
        let window = |out: usize| {
            let start = out * shape.stride[axis];
            let inside = |place: usize| place.saturating_sub(shape.padding[axis].0).min(size);
            let range = inside(start)..inside(start + kernel);
            let divisor = if count_padding { kernel } else { range.len().max(1) };
            (range, divisor)
        };
        Self((0..shape.out()[axis]).map(window).collect())
    }

    /// As many parts as asked for, which share pixels at their ends where they do not come out even.
    pub fn of_parts(size: usize, parts: usize) -> Self {
        let part = |at: usize| at * size / parts..((at + 1) * size).div_ceil(parts);
        Self((0..parts).map(part).map(|range| (range.clone(), range.len())).collect())
    }
}

/// The sizes of an average pooling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AverageShape {
    /// Planes: samples times channels.
    pub planes: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
    /// The windows of both axes.
    pub windows: [Windows; 2],
}

impl AverageShape {
    /// Height and width of the output.
    pub fn out(&self) -> [usize; 2] {
        [self.windows[0].0.len(), self.windows[1].0.len()]
    }

    fn planes_per_piece(&self) -> usize {
        ((1 << 15) / (self.size[0] * self.size[1]).max(1)).max(1)
    }

    /// Calls `visit(window's number, its rows, its columns, one over its size)` for all windows of a plane.
    #[inline(always)]
    fn each(&self, mut visit: impl FnMut(usize, Range<usize>, Range<usize>, f32)) {
        let columns = &self.windows[1].0;
        for (row, (rows, height)) in self.windows[0].0.iter().enumerate() {
            for (column, (range, width)) in columns.iter().enumerate() {
                let factor = 1.0 / (height * width) as f32;
                visit(row * columns.len() + column, rows.clone(), range.clone(), factor);
            }
        }
    }
}

/// The means of all windows.
///
/// # Panics
/// If the slice does not have the shape's size.
pub fn forward(shape: &AverageShape, input: &[f32]) -> Vec<f32> {
    let (plane, out) = (shape.size[0] * shape.size[1], shape.out().iter().product::<usize>());
    assert_eq!(input.len(), shape.planes * plane, "wrong size of the input");
    let planes = shape.planes_per_piece();
    let count = shape.planes.div_ceil(planes);
    let (output, _) = in_pieces(shape.planes * out, planes * out, count, |piece, output| {
        let output = output.zeroed();
        let inputs = input[piece * planes * plane..].chunks(plane.max(1));
        for (output, input) in output.chunks_mut(out.max(1)).zip(inputs) {
            shape.each(|at, rows, columns, factor| {
                let width = shape.size[1];
                let total: f32 = if columns.len() == width {
                    sum(&input[rows.start * width..rows.end * width])
                } else {
                    rows.map(|row| input[row * width..][columns.clone()].iter().sum::<f32>()).sum()
                };
                output[at] = total * factor;
            });
        }
    });
    output
}

/// The gradient of the input.
///
/// # Panics
/// If the slice does not have the output's size.
pub fn backward(shape: &AverageShape, gradient: &[f32]) -> Vec<f32> {
    let (plane, out) = (shape.size[0] * shape.size[1], shape.out().iter().product::<usize>());
    assert_eq!(gradient.len(), shape.planes * out, "wrong size of the gradient");
    let planes = shape.planes_per_piece();
    let count = shape.planes.div_ceil(planes);
    let (input, _) = in_pieces(shape.planes * plane, planes * plane, count, |piece, input| {
        let input = input.zeroed();
        let gradients = gradient[piece * planes * out..].chunks(out.max(1));
        wide(
            #[inline(always)]
            || {
                for (input, gradient) in input.chunks_mut(plane.max(1)).zip(gradients.clone()) {
                    shape.each(|at, rows, columns, factor| {
                        let share = gradient[at] * factor;
                        for row in rows {
                            let targets = &mut input[row * shape.size[1]..][columns.clone()];
                            targets.iter_mut().for_each(|target| *target += share);
                        }
                    });
                }
            },
        );
    });
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_and_share_what_is_uneven() {
        assert_eq!(Windows::of_parts(8, 1).0, [(0..8, 8)]);
        assert_eq!(Windows::of_parts(5, 2).0, [(0..3, 3), (2..5, 3)]);
        let shape = AverageShape {
            planes: 1,
            size: [1, 5],
            windows: [(1, 1), (5, 2)].map(|(s, p)| Windows::of_parts(s, p)),
        };
        assert_eq!(forward(&shape, &[1.0, 2.0, 3.0, 4.0, 5.0]), [2.0, 4.0]);
        assert_eq!(backward(&shape, &[3.0, 6.0]), [1.0, 1.0, 3.0, 2.0, 2.0]);
    }
}
