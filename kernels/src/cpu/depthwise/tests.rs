//! Depthwise convolution in frames, by the kernels of every kind that this CPU can run, against the plain reference.

use super::framed::{Framed, Wanted, packed, reversed};
use super::taps::Kernels;
use super::{Depthwise, LANES, Way, separate};
use crate::cpu::reference;
use crate::cpu::shape::ConvShape;

fn shape(channels: usize, size: [usize; 2], side: usize, stride: usize) -> ConvShape {
    let before = side / 2;
    ConvShape {
        batch: 1,
        channels_in: channels,
        channels_out: channels,
        size,
        kernel: [side; 2],
        stride: [stride; 2],
        padding: [(before, before); 2],
        dilation: [1, 1],
        groups: channels,
    }
}

/// Widths around those that are computed together, edges that no window reaches, blocks that are not full.
fn shapes() -> Vec<ConvShape> {
    vec![
        shape(16, [4, 4], 3, 1),
        shape(19, [7, 9], 3, 1),
        shape(32, [6, 16], 3, 2),
        shape(5, [9, 7], 3, 2),
        shape(24, [8, 8], 5, 1),
        shape(16, [9, 10], 5, 2),
        ConvShape { padding: [(0, 2), (1, 0)], ..shape(16, [5, 6], 3, 1) },
        ConvShape { padding: [(0, 0); 2], ..shape(16, [6, 6], 3, 2) },
        shape(33, [2, 2], 3, 1),
    ]
}

fn values(count: usize, seed: u32) -> Vec<f32> {
    let value = |at: usize| (at as u32 ^ seed).wrapping_mul(2_654_435_761).rotate_left(11) >> 8;
    (0..count).map(|at| value(at) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(close, "{what}: {found} is not {expected} at {at}");
    }
}

#[test]
fn every_kind_of_kernel_equals_the_reference() {
    for kernels in Kernels::all() {
        for shape in shapes() {
            check(kernels, &shape);
        }
    }
}

fn check(kernels: &'static [Kernels], shape: &ConvShape) {
    let what = format!("{shape:?}");
    let framed = Framed::with(kernels, shape).expect("served");
    let (channels, taps) = (shape.channels_in, shape.taps());
    let (input, weight) = (values(shape.sample_in(), 1), values(shape.weights(), 2));
    let (bias, gradient) = (values(channels, 3), values(shape.sample_out(), 4));
    let weights = packed(&weight, channels, taps);
    let mut output = vec![7.0; gradient.len()];
    framed.forward(&input, &weights, Some(&bias), &mut output);
    assert_close(&output, &reference::conv2d(shape, &input, &weight, &bias), &what);

    let expected = reference::conv2d_backward(shape, &input, &weight, &gradient);
    let (mut target, mut of_weight) = (vec![7.0; input.len()], vec![0.0; weight.len()]);
    let back = reversed(&weights, taps);
    let [size, len] = [input.len(), gradient.len()].map(|len| LANES * len / channels);
    let blocks = input.chunks(size).zip(gradient.chunks(len)).zip(target.chunks_mut(size));
    for (block, ((input, gradient), target)) in blocks.enumerate() {
        let own = block * taps..(block + 1) * taps;
        let mut sums = vec![[0.0; LANES]; taps];
        let wanted = Wanted { sums: Some(&mut sums), target: Some(target) };
        framed.backward([input, gradient], [&weights[own.clone()], &back[own]], wanted);
        let filters = of_weight.chunks_mut(LANES * taps).nth(block).expect("a block of filters");
        separate(&sums, taps, filters);
    }
    assert_close(&target, &expected.input.expect("all"), &what);
    assert_close(&of_weight, &expected.weight.expect("all"), &what);
}

#[test]
fn other_filters_are_met_pixel_by_pixel() {
    let way =
        |shape: &ConvShape| Depthwise::new(shape, &values(shape.weights(), 1)).expect("served").way;
    let plain = shape(16, [8, 8], 3, 1);
    let framed = Kernels::all().next().is_some();
    assert_eq!(matches!(way(&plain), Way::Framed(..)), framed);
    for other in [
        ConvShape { dilation: [2, 1], ..plain },
        ConvShape { stride: [1, 2], ..plain },
        ConvShape { padding: [(3, 3); 2], ..plain },
        ConvShape { kernel: [3, 5], ..plain },
    ] {
        assert!(matches!(way(&other), Way::Met { .. }), "{other:?}");
    }
}
