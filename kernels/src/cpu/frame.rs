//! The planes of sixteen channels as a vector for every pixel, with room around them: windows and tiles that reach over
//! the edge then read zeros there, and write where nobody looks.

use super::interleaved::{LANES, Lanes, interleave, interleave_part};

/// How planes lie in their frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Height and width of the planes.
    pub(super) size: [usize; 2],
    /// Rows and columns before them.
    pub(super) before: [usize; 2],
    /// Height and width of the frame.
    pub(super) whole: [usize; 2],
}

impl Frame {
    /// Pixels of a plane.
    pub(super) fn pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Vectors of the frame.
    pub(super) fn len(&self) -> usize {
        self.whole[0] * self.whole[1]
    }

    /// Rows of the planes in the frame.
    pub(super) fn rows<'a>(&self, frame: &'a mut [Lanes]) -> impl Iterator<Item = &'a mut [Lanes]> {
        let (left, width) = (self.before[1], self.size[1]);
        let rows = frame.chunks_exact_mut(self.whole[1]).skip(self.before[0]).take(self.size[0]);
        rows.map(move |row| &mut row[left..][..width])
    }

    /// Puts at most sixteen planes into the frame, whose edges stay as they are. `plain` has a vector for every pixel.
    pub(super) fn put(&self, planes: &[f32], plain: &mut [Lanes], frame: &mut [Lanes]) {
        let (pixels, width) = (self.pixels(), self.size[1]);
        // Rows of whole blocks go where they belong at once.
        if width.is_multiple_of(LANES) {
            for (at, row) in self.rows(frame).enumerate() {
                interleave_part(planes, pixels, at * width..(at + 1) * width, row);
            }
            return;
        }
        interleave(planes, pixels, plain);
        self.rows(frame).zip(plain.chunks_exact(width)).for_each(|(to, row)| {
            to.copy_from_slice(row);
        });
    }

    /// The planes in the frame, one behind the other in `plain`.
    pub(super) fn take<'a>(&self, frame: &mut [Lanes], plain: &'a mut [Lanes]) -> &'a [Lanes] {
        let rows = self.rows(frame).zip(plain.chunks_exact_mut(self.size[1]));
        rows.for_each(|(row, to)| to.copy_from_slice(row));
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_lie_inside_and_come_back() {
        for size in [[3, 5], [2, 16], [4, 4]] {
            let frame = Frame { size, before: [1, 2], whole: [size[0] + 2, size[1] + 3] };
            let planes: Vec<f32> = (0..5 * frame.pixels()).map(|at| at as f32 + 1.0).collect();
            let mut plain = vec![[7.0; LANES]; frame.pixels()];
            let mut framed = vec![[0.0; LANES]; frame.len()];
            frame.put(&planes, &mut plain, &mut framed);
            for (place, vector) in framed.iter().enumerate() {
                let at = [place / frame.whole[1], place % frame.whole[1]];
                let inside = (0..2).all(|axis| {
                    (frame.before[axis]..frame.before[axis] + size[axis]).contains(&at[axis])
                });
                for (lane, value) in vector.iter().enumerate() {
                    let pixel = || (at[0] - 1) * size[1] + at[1] - 2;
                    let expected = if inside && lane < 5 {
                        planes[lane * frame.pixels() + pixel()]
                    } else {
                        0.0
                    };
                    assert_eq!(*value, expected, "{size:?}, {at:?}, {lane}");
                }
            }
            let mut back = vec![[7.0; LANES]; frame.pixels()];
            frame.put(&planes, &mut plain, &mut framed);
            interleave(&planes, frame.pixels(), &mut plain);
            assert_eq!(frame.take(&mut framed, &mut back), &plain[..]);
        }
    }
}
