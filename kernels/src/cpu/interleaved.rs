//! Sixteen channels side by side: a vector for every pixel, with a lane for each channel. Sums over the pixels of one
//! channel then need neither padding nor shuffles, however small its plane is.

use std::ops::Range;

use super::direct::Interleave;

/// Channels side by side.
pub(super) const LANES: usize = 16;

/// One value of each channel.
pub(super) type Lanes = [f32; LANES];

/// Writes planes of `pixels` values, at most [`LANES`] of them, side by side: `to` has a vector for every pixel, whose
/// lanes beyond the last plane are zero.
pub(super) fn interleave(planes: &[f32], pixels: usize, to: &mut [Lanes]) {
    let count = planes.len() / pixels;
    assert!(count <= LANES && to.len() >= pixels, "too many planes, or too little room");
    if let Some(kernels) = Interleave::new() {
        return kernels.interleave(planes, pixels, to);
    }
    for (pixel, to) in to.iter_mut().enumerate().take(pixels) {
        *to = std::array::from_fn(|lane| match lane < count {
            true => planes[lane * pixels + pixel],
            false => 0.0,
        });
    }
}

/// Some pixels of planes that have `pixels` values each, as [`interleave`] writes them.
pub(super) fn interleave_part(planes: &[f32], pixels: usize, part: Range<usize>, to: &mut [Lanes]) {
    let count = planes.len() / pixels;
    assert!(count <= LANES && to.len() >= part.len() && part.end <= pixels, "too little room");
    if let Some(kernels) = Interleave::new() {
        return kernels.interleave_part(planes, pixels, part, to);
    }
    for (pixel, to) in part.zip(to) {
        *to = std::array::from_fn(|lane| match lane < count {
            true => planes[lane * pixels + pixel],
            false => 0.0,
        });
    }
}

/// The way back: planes of `pixels` values, at most [`LANES`] of them.
pub(super) fn separate(from: &[Lanes], pixels: usize, planes: &mut [f32]) {
    let count = planes.len() / pixels;
    assert!(count <= LANES && from.len() >= pixels, "too many planes, or too few vectors");
    if let Some(kernels) = Interleave::new() {
        return kernels.separate(from, pixels, planes);
    }
    for (lane, plane) in planes.chunks_exact_mut(pixels).enumerate() {
        plane.iter_mut().zip(from).for_each(|(value, from)| *value = from[lane]);
    }
}

/// Values as vectors; a rest that fills none is left out.
pub(super) fn as_lanes(values: &mut [f32]) -> &mut [Lanes] {
    values.as_chunks_mut().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_come_back_as_they_were() {
        for pixels in [1, 2, 4, 5, 16, 19, 49, 64] {
            for count in [1, 3, 15, 16] {
                let planes: Vec<f32> = (0..count * pixels).map(|at| at as f32 + 1.0).collect();
                let mut vectors = vec![[7.0; LANES]; pixels];
                interleave(&planes, pixels, &mut vectors);
                for (pixel, vector) in vectors.iter().enumerate() {
                    for (lane, value) in vector.iter().enumerate() {
                        let expected =
                            if lane < count { planes[lane * pixels + pixel] } else { 0.0 };
                        assert_eq!(*value, expected, "{count} planes of {pixels}, {pixel}, {lane}");
                    }
                }
                let mut back = vec![0.0; planes.len()];
                separate(&vectors, pixels, &mut back);
                assert_eq!(back, planes);
            }
        }
    }
}
