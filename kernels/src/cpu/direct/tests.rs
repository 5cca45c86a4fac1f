//! The direct kernels of every kind that this CPU can run, against the plain reference.

use super::tile::Kernels;
use super::{Forward, InputGradient, LANES, WeightGradient};
use crate::cpu::buffer::in_pieces;
use crate::cpu::reference;
use crate::cpu::shape::ConvShape;

/// Shapes that reach every width of tile, rests of vectors and rows, and both strides.
fn shapes() -> impl Iterator<Item = ConvShape> {
    let channels = [(1, 16), (3, 30), (16, 3), (5, 48), (33, 16), (17, 50)];
    let windows =
        [([3, 3], 1), ([5, 5], 2), ([1, 3], 0), ([2, 1], 1), ([4, 5], 3), ([7, 7], 3), ([1, 1], 0)];
    (0..42).map(move |at: usize| {
        let (channels_in, channels_out) = channels[at % channels.len()];
        let (kernel, padding) = windows[at % windows.len()];
        let size = [4 + at % 7, 4 + at * 5 % 29];
        let stride = [[1, 1], [2, 2], [1, 2], [3, 1]][at % 4];
        let padding = [(padding, at % 3), (at % 2, padding)];
        ConvShape {
            batch: 1 + at % 3,
            channels_in,
            channels_out,
            size,
            kernel,
            stride,
            padding,
            dilation: [1, 1],
            groups: 1,
        }
    })
}

fn values(count: usize, seed: u32) -> Vec<f32> {
    let value = |at: usize| (at as u32 ^ seed).wrapping_mul(2_654_435_761) >> 8;
    (0..count).map(|at| value(at) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0, |scale: f32, value| scale.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= 2e-5 * scale;
        assert!(close, "{what}: {found} is not {expected} at {at}");
    }
}

fn check(kernels: &'static Kernels, shape: &ConvShape) {
    let what = format!("{} vectors, {shape:?}", kernels.vectors);
    let (input, weight) = (values(shape.batch * shape.sample_in(), 1), values(shape.weights(), 2));
    let bias = values(shape.channels_out, 3);
    let gradient = values(shape.batch * shape.sample_out(), 4);

    let forward = Forward::with(kernels, shape, &weight, Some(&bias));
    let (len, size) = (shape.sample_out(), shape.sample_in());
    let (output, _) = in_pieces(shape.batch * len, len, shape.batch, |at, output| {
        forward.run(&input[at * size..][..size], false, output);
    });
    assert_close(&output, &reference::conv2d(shape, &input, &weight, &bias), &what);

    let expected = reference::conv2d_backward(shape, &input, &weight, &gradient);
    let of_input = InputGradient::with(kernels, shape, &weight);
    let (found, _) = in_pieces(input.len(), size, shape.batch, |at, target| {
        of_input.run(&gradient[at * len..][..len], target);
    });
    assert_close(&found, &expected.input.expect("wanted"), &what);

    if kernels.runs(1, shape.stride[1], shape.kernel[1]).is_some() {
        let of_weight = WeightGradient::with(kernels, shape);
        let mut sums = of_weight.sums();
        of_weight.add(&input, &gradient, &mut sums);
        assert_close(&of_weight.finish(&sums), &expected.weight.expect("wanted"), &what);
    }
}

#[test]
fn every_kind_of_kernel_equals_the_reference() {
    for kernels in Kernels::all() {
        shapes().filter(ConvShape::is_valid).for_each(|shape| check(kernels, &shape));
    }
}

#[test]
fn only_what_is_served_is_taken() {
    let plain = shapes().next().expect("some");
    let taken = |shape: &ConvShape| super::kernels_for(shape, shape.channels_out).is_some();
    assert_eq!(taken(&plain), Kernels::all().next().is_some());
    assert!(!taken(&ConvShape { dilation: [2, 1], ..plain }));
    assert!(!taken(&ConvShape { stride: [1, 3], ..plain }));
    assert!(!taken(&ConvShape { channels_out: LANES / 2, ..plain }), "half of the lanes idle");
    assert!(!taken(&ConvShape { channels_in: 2, channels_out: 32, groups: 2, ..plain }));
    assert!(!taken(&ConvShape { batch: 0, ..plain }));
}
