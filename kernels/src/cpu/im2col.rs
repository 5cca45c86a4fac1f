//! A sample's windows as the columns of a matrix, so that a convolution becomes a matrix product.
//! (Chellapilla, Puri, Simard: High Performance Convolutional Neural Networks for Document Processing, 2006.)

use super::shape::{ConvShape, Window};

/// Calls `visit` for every run of pixels that a tap reads inside the input; what is not visited is padding.
fn runs(shape: &ConvShape, channels: usize, mut visit: impl FnMut(Stretch)) {
    let [height, width] = shape.size;
    let [rows, columns] = shape.out();
    let (down, along) = (Window::of_conv(shape, 0), Window::of_conv(shape, 1));
    for channel in 0..channels {
        for ky in 0..shape.kernel[0] {
            let (inside_rows, first_row) = down.inside(ky, rows);
            for kx in 0..shape.kernel[1] {
                let tap = (channel * shape.kernel[0] + ky) * shape.kernel[1] + kx;
                let (inside, start) = along.inside(kx, columns);
                for (step, row) in inside_rows.clone().enumerate() {
                    let y = first_row + step * shape.stride[0];
                    visit(Stretch {
                        tap,
                        place: row * columns + inside.start,
                        pixel: (channel * height + y) * width + start,
                        len: inside.len(),
                    });
                }
            }
        }
    }
}

/// A run of pixels that one tap reads for neighbouring windows.
struct Stretch {
    tap: usize,
    /// Of the first window, in a plane of the output.
    place: usize,
    /// The first pixel.
    pixel: usize,
    len: usize,
}

/// Writes the columns of `channels` channels of a sample, without those values that are padding. The rows of the matrix
/// begin `row` values apart.
pub(crate) fn im2col(
    shape: &ConvShape,
    channels: usize,
    pixels: &[f32],
    columns: &mut [f32],
    row: usize,
) {
    let stride = shape.stride[1];
    runs(shape, channels, |run| {
        let target = &mut columns[run.tap * row + run.place..][..run.len];
        if stride == 1 {
            target.copy_from_slice(&pixels[run.pixel..][..run.len]);
        } else {
            let source = pixels[run.pixel..].iter().step_by(stride);
            target.iter_mut().zip(source).for_each(|(target, value)| *target = *value);
        }
    });
}

/// Adds columns to the pixels that they came from: the transpose of [`im2col`].
pub(crate) fn col2im(
    shape: &ConvShape,
    channels: usize,
    columns: &[f32],
    row: usize,
    pixels: &mut [f32],
) {
    let stride = shape.stride[1];
    runs(shape, channels, |run| {
        let source = &columns[run.tap * row + run.place..][..run.len];
        if stride == 1 {
            let target = &mut pixels[run.pixel..][..run.len];
            target.iter_mut().zip(source).for_each(|(target, value)| *target += value);
        } else {
            let target = pixels[run.pixel..].iter_mut().step_by(stride);
            target.zip(source).for_each(|(target, value)| *target += value);
        }
    });
}
