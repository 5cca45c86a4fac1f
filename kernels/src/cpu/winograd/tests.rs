//! Winograd's kernels of every kind that this CPU can run, against the plain reference.

use super::{TileKernels, Winograd};
use crate::cpu::panel::Panels;
use crate::cpu::reference;
use crate::cpu::shape::ConvShape;

fn shape(channels: [usize; 2], size: [usize; 2], kernel: usize) -> ConvShape {
    let before = kernel / 2;
    ConvShape {
        batch: 9,
        channels_in: channels[0],
        channels_out: channels[1],
        size,
        kernel: [kernel; 2],
        stride: [1, 1],
        padding: [(before, before); 2],
        dilation: [1, 1],
        groups: 1,
    }
}

/// Tiles that fit and such that do not, groups of all widths, and batches of several pieces.
fn shapes() -> Vec<ConvShape> {
    let odd = shape([80, 112], [7, 13], 3);
    vec![
        shape([16, 16], [8, 8], 3),
        ConvShape { batch: 70, ..shape([32, 48], [4, 4], 3) },
        ConvShape { padding: [(0, 2), (1, 0)], ..odd },
        shape([16, 32], [7, 6], 5),
        ConvShape { padding: [(0, 0); 2], ..shape([48, 16], [9, 8], 5) },
        // More weights than tasks have sums of their own for.
        shape([128, 64], [5, 4], 3),
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
        let close = (found - expected).abs() <= 2e-5 * scale;
        assert!(close, "{what}: {found} is not {expected} at {at}");
    }
}

#[test]
fn every_kind_of_kernel_equals_the_reference() {
    for (number, (kernels, panels)) in TileKernels::all().zip(Panels::all()).enumerate() {
        for shape in shapes() {
            let what = format!("kernels {number}, {shape:?}");
            let way = Winograd::with(kernels, panels, &shape).expect("served");
            let input = values(shape.batch * shape.sample_in(), 1);
            let (weight, bias) = (values(shape.weights(), 2), values(shape.channels_out, 3));
            let gradient = values(shape.batch * shape.sample_out(), 4);
            let output = way.forward(&input, &weight, Some(&bias));
            assert_close(&output, &reference::conv2d(&shape, &input, &weight, &bias), &what);
            let expected = reference::conv2d_backward(&shape, &input, &weight, &gradient);
            let all = [&input[..], &weight, &gradient];
            let found = way.backward(all, [true, true]);
            assert_close(&found.input.expect("wanted"), &expected.input.expect("all"), &what);
            assert_close(&found.weight.expect("wanted"), &expected.weight.expect("all"), &what);
            assert!(way.backward(all, [false, true]).input.is_none());
            assert!(way.backward(all, [true, false]).weight.is_none());
        }
    }
}

#[test]
fn only_what_pays_is_taken() {
    let taken = |shape: &ConvShape| Winograd::new(shape).is_some();
    let plain = shape([16, 32], [8, 8], 3);
    assert_eq!(taken(&plain), TileKernels::all().next().is_some());
    assert!(!taken(&ConvShape { batch: 1, ..plain }), "few tiles");
    assert!(!taken(&ConvShape { batch: 64, ..shape([16, 32], [2, 2], 3) }), "mostly padding");
    assert!(!taken(&ConvShape { stride: [2, 2], ..plain }));
    assert!(!taken(&ConvShape { dilation: [2, 2], ..plain }));
    assert!(!taken(&ConvShape { channels_in: 24, ..plain }));
    assert!(!taken(&ConvShape { groups: 2, ..plain }));
}

#[test]
fn a_sample_has_the_same_bits_in_every_batch() {
    let shape = ConvShape { batch: 40, ..shape([16, 32], [8, 8], 3) };
    let Some(way) = Winograd::new(&shape) else { return };
    let (input, weight) = (values(shape.batch * shape.sample_in(), 5), values(shape.weights(), 6));
    let all = way.forward(&input, &weight, None);
    let few = ConvShape { batch: 9, ..shape };
    let way = Winograd::new(&few).expect("served as well");
    let found = way.forward(&input[..9 * shape.sample_in()], &weight, None);
    assert_eq!(found, all[..9 * shape.sample_out()]);
}
