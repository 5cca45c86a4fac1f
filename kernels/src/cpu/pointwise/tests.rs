//! Convolutions of one tap, with panels of every kind that this CPU can run, against the plain reference.

use super::Pointwise;
use crate::cpu::buffer::in_pieces;
use crate::cpu::panel::Panels;
use crate::cpu::reference;
use crate::cpu::shape::ConvShape;

fn shape(channels: [usize; 2], size: [usize; 2]) -> ConvShape {
    ConvShape {
        batch: 2,
        channels_in: channels[0],
        channels_out: channels[1],
        size,
        kernel: [1; 2],
        stride: [1; 2],
        padding: [(0, 0); 2],
        dilation: [1; 2],
        groups: 1,
    }
}

fn values(count: usize, seed: u32) -> Vec<f32> {
    let value = |at: usize| (at as u32 ^ seed).wrapping_mul(2_654_435_761).rotate_left(11) >> 8;
    (0..count).map(|at| value(at) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0, |scale: f32, value| scale.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= 1e-5 * scale;
        assert!(close, "{what}: {found} is not {expected} at {at}");
    }
}

fn check(panels: &'static Panels, shape: &ConvShape) {
    let what = format!("{shape:?}");
    let way = Pointwise::with(panels, shape).expect("served");
    let (size, len) = (shape.sample_in(), shape.sample_out());
    let (input, weight) = (values(2 * size, 1), values(shape.weights(), 2));
    let (bias, gradient) = (values(shape.channels_out, 3), values(2 * len, 4));
    let (output, _) = in_pieces(2 * len, len, 2, |at, out| {
        way.forward(&input[at * size..][..size], &weight, Some(&bias), out);
    });
    assert_close(&output, &reference::conv2d(shape, &input, &weight, &bias), &what);
    let expected = reference::conv2d_backward(shape, &input, &weight, &gradient);
    let (found, _) = in_pieces(2 * size, size, 2, |at, target| {
        way.input_gradient(&gradient[at * len..][..len], &weight, target);
    });
    assert_close(&found, &expected.input.expect("all"), &what);
    let mut sums = way.gradient_sums();
    for (input, gradient) in input.chunks(size).zip(gradient.chunks(len)) {
        way.add_weight_gradient(input, gradient, &mut sums);
    }
    assert_close(&way.finish(&sums), &expected.weight.expect("all"), &what);
}

#[test]
fn every_kind_of_panel_equals_the_reference() {
    for panels in Panels::all() {
        // Either side longer, channels that fill no vector, and pixels that fill none.
        check(panels, &shape([16, 96], [8, 8]));
        check(panels, &shape([144, 24], [16, 16]));
        check(panels, &shape([5, 7], [9, 8]));
        check(panels, &shape([40, 33], [14, 14]));
    }
}

#[test]
fn only_one_tap_is_taken() {
    let taken = |shape: &ConvShape| Pointwise::new(shape).is_some();
    let plain = shape([16, 32], [8, 8]);
    assert_eq!(taken(&plain), Panels::all().next().is_some());
    assert!(!taken(&shape([16, 32], [7, 7])), "few pixels");
    assert!(!taken(&ConvShape { stride: [2, 2], ..plain }));
    assert!(!taken(&ConvShape { groups: 2, ..plain }));
}
