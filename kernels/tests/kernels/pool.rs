//! Max-pooling and ReLU.

use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Tensor, activation, module};
use salamander_kernels::cpu::{PoolShape, pool};
use salamander_kernels::ops::{max_pool2d, relu};

use super::random::Random;
use super::reference;
use super::{assert_all_close, assert_slopes, trace, tracked, vector, with_any_threads};

fn cases() -> impl Iterator<Item = (PoolShape, Vec<f32>)> {
    let mut random = Random::new(11);
    let halving = PoolShape {
        planes: 5,
        size: [24, 24],
        kernel: [2, 2],
        stride: [2, 2],
        padding: [(0, 0); 2],
        dilation: [1, 1],
    };
    let mut shapes = vec![
        halving,
        PoolShape { planes: 150, ..halving },
        PoolShape { size: [5, 7], ..halving },
        PoolShape { size: [2, 31], ..halving },
        PoolShape { size: [7, 10], kernel: [1, 1], ..halving },
        PoolShape { size: [6, 9], kernel: [1, 1], stride: [3, 1], ..halving },
        PoolShape { size: [9, 9], dilation: [2, 3], ..halving },
    ];
    shapes.extend((0..60).map(|_| random.pool_shape()));
    shapes.into_iter().map(move |shape| {
        // Equal values, so that the first of them has to win.
        let input = random.values(shape.planes * shape.size[0] * shape.size[1]);
        (shape, input.into_iter().map(|value| (value * 8.0).round()).collect())
    })
}

#[test]
fn kernels_equal_the_reference() {
    for (shape, input) in cases() {
        let (maxima, winners) = pool::forward(&shape, &input);
        let (expected, places) = reference::max_pool2d(&shape, &input);
        assert_eq!(maxima, expected, "{shape:?}");
        let gradient = Random::new(12).values(maxima.len());
        let found = pool::backward(&shape, &gradient, &winners);
        let expected = reference::max_pool2d_backward(&shape, &gradient, &places);
        super::assert_close(&found, &expected, &format!("{shape:?}"));
    }
}

#[test]
fn windows_in_the_padding_have_no_winner() {
    let shape = PoolShape {
        planes: 1,
        size: [1, 1],
        kernel: [1, 1],
        stride: [1, 1],
        padding: [(1, 0), (0, 0)],
        dilation: [1, 1],
    };
    let (maxima, winners) = pool::forward(&shape, &[3.0]);
    assert_eq!(maxima, [f32::NEG_INFINITY, 3.0]);
    assert_eq!(pool::backward(&shape, &[5.0, 7.0], &winners), [7.0]);
}

#[test]
fn what_is_not_a_number_wins() {
    for (size, kernel) in [([2, 2], [2, 2]), ([3, 3], [3, 3])] {
        let shape = PoolShape {
            planes: 1,
            size,
            kernel,
            stride: kernel,
            padding: [(0, 0); 2],
            dilation: [1, 1],
        };
        let mut input = vec![1.0; size[0] * size[1]];
        input[1] = f32::NAN;
        assert!(pool::forward(&shape, &input).0[0].is_nan());
    }
}

fn traced(
    shape: &PoolShape,
    input: &[f32],
    operation: fn(Tensor<4>, MaxPoolOptions<2>) -> Tensor<4>,
) -> Vec<Vec<f32>> {
    let x = tracked(input, [1, shape.planes, shape.size[0], shape.size[1]]);
    let options = MaxPoolOptions::new(shape.kernel)
        .with_stride(shape.stride)
        .with_padding_pairs(shape.padding)
        .with_dilation(shape.dilation);
    trace(operation(x.clone(), options), |gradients| vec![vector(x.grad(gradients).expect("used"))])
}

#[test]
fn operations_equal_burns() {
    for (shape, input) in cases() {
        let found = traced(&shape, &input, max_pool2d);
        let expected = traced(&shape, &input, module::max_pool2d);
        assert_all_close(&found, &expected, &format!("{shape:?}"));
    }
}

#[test]
fn partial_windows_use_burns_operation() {
    let x = tracked(&Random::new(13).values(25), [1, 1, 5, 5]);
    let options = MaxPoolOptions::new([2, 2]).with_ceil_mode(true);
    assert_eq!(max_pool2d(x, options).dims(), [1, 1, 3, 3]);
}

#[test]
fn gradients_are_slopes() {
    for (shape, _) in cases().take(20) {
        // Values that are far enough apart for a winner to stay one.
        let count = shape.planes * shape.size[0] * shape.size[1];
        let input: Vec<f32> =
            (0..count).map(|i| ((i * 37) % 101) as f32 + i as f32 / 8.0).collect();
        let (maxima, winners) = pool::forward(&shape, &input);
        let gradient = Random::new(14).values(maxima.len());
        let found = pool::backward(&shape, &gradient, &winners);
        let loss = |input: &[f32]| {
            let (maxima, _) = pool::forward(&shape, input);
            let terms = maxima.iter().zip(&gradient).filter(|(y, _)| y.is_finite());
            terms.map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        assert_slopes(input, &found, &format!("{shape:?}"), loss);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (shape, input) in cases().take(5) {
        with_any_threads(|| {
            let (maxima, winners) = pool::forward(&shape, &input);
            let gradient = pool::backward(&shape, &maxima, &winners);
            (maxima, winners, gradient)
        });
    }
}

#[test]
fn relu_equals_burns_and_leaves_shared_input_alone() {
    let values = Random::new(15).values(100_000);
    let run = |operation: fn(Tensor<2>) -> Tensor<2>| {
        let x = tracked(&values, [100, 1000]);
        let doubled = x.clone() * 2.0;
        let output = operation(doubled.clone()) + doubled;
        trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))])
    };
    assert_all_close(&run(relu), &run(activation::relu), "relu");
    // A view of something larger must not be written through.
    let whole = tracked(&values, [100, 1000]).inner();
    let part = relu(whole.clone().narrow(0, 10, 20));
    let expected = activation::relu(whole.clone().narrow(0, 10, 20));
    assert_eq!(vector(part), vector(expected));
    assert_eq!(vector(whole), values);
}
