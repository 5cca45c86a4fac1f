//! Convolutions pixel by pixel, with panels of every kind that this CPU can run, against the plain reference.

use super::Pixelwise;
use crate::cpu::panel::Panels;
use crate::cpu::reference;
use crate::cpu::shape::ConvShape;

fn shape(channels: [usize; 2], size: usize, kernel: usize, stride: usize) -> ConvShape {
    let before = kernel / 2;
    ConvShape {
        batch: 17,
        channels_in: channels[0],
        channels_out: channels[1],
        size: [size; 2],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [(before, before); 2],
        dilation: [1, 1],
        groups: 1,
    }
}

/// Groups of all widths, pixels that nobody reads, windows in the padding.
fn shapes() -> Vec<ConvShape> {
    let far = shape([48, 16], 2, 1, 1);
    vec![
        shape([16, 32], 2, 3, 1),
        shape([48, 64], 5, 3, 2),
        shape([32, 16], 4, 1, 2),
        shape([64, 48], 3, 1, 1),
        ConvShape { padding: [(1, 2), (0, 1)], ..far },
        ConvShape { dilation: [2, 1], ..shape([16, 16], 4, 3, 1) },
    ]
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

#[test]
fn every_kind_of_panel_equals_the_reference() {
    for (number, panels) in Panels::all().enumerate() {
        for shape in shapes() {
            let what = format!("panels {number}, {shape:?}");
            let way = Pixelwise::with(panels, &shape).expect("served");
            let input = values(shape.batch * shape.sample_in(), 1);
            let (weight, bias) = (values(shape.weights(), 2), values(shape.channels_out, 3));
            let gradient = values(shape.batch * shape.sample_out(), 4);
            let output = way.forward(&input, &weight, Some(&bias));
            assert_close(&output, &reference::conv2d(&shape, &input, &weight, &bias), &what);
            let expected = reference::conv2d_backward(&shape, &input, &weight, &gradient);
            let [of_input, of_weight] = way.backward([&input, &weight, &gradient], [true, true]);
            assert_close(&of_input.expect("wanted"), &expected.input.expect("all"), &what);
            assert_close(&of_weight.expect("wanted"), &expected.weight.expect("all"), &what);
        }
    }
}

#[test]
fn only_few_pixels_of_many_samples_are_taken() {
    let taken = |shape: &ConvShape| Pixelwise::new(shape).is_some();
    let plain = shape([16, 32], 2, 3, 1);
    assert_eq!(taken(&plain), Panels::all().next().is_some());
    assert!(!taken(&ConvShape { batch: 4, ..plain }));
    assert!(!taken(&shape([16, 32], 5, 3, 1)));
    assert!(!taken(&ConvShape { channels_out: 24, ..plain }));
    assert!(!taken(&ConvShape { groups: 2, ..plain }));
}
