//! The linear operation.

use burn::tensor::{DType, FloatDType, Tensor, activation, module};
use salamander_kernels::cpu::gelu::backward_by_slope;
use salamander_kernels::cpu::linear::{
    LinearShape, LinearValues, bias_gradient, forward, forward_gelu, forward_gelu_with_slope,
    input_gradient, weight_gradient,
};
use salamander_kernels::ops::{linear, linear_gelu};

use super::random::Random;
use super::reference;
use super::{
    assert_all_close, assert_close, assert_slopes, trace, tracked, vector, with_any_threads,
};

const SHAPES: [[usize; 3]; 9] = [
    [64, 784, 512],
    [64, 512, 10],
    [1, 1, 1],
    [3, 5, 7],
    [7, 300, 129],
    [64, 1000, 65],
    [5, 64, 700],
    [2500, 40, 70],
    [2048, 3, 1],
];

struct Case {
    shape: LinearShape,
    input: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    gradient: Vec<f32>,
}

fn cases() -> impl Iterator<Item = Case> {
    let mut random = Random::new(21);
    SHAPES.into_iter().map(move |[rows, inputs, outputs]| Case {
        shape: LinearShape { rows, inputs, outputs },
        input: random.values(rows * inputs),
        weight: random.values(inputs * outputs),
        bias: random.values(outputs),
        gradient: random.values(rows * outputs),
    })
}

#[test]
fn kernels_equal_the_reference() {
    for Case { shape, input, weight, bias, .. } in cases() {
        let expected = reference::linear(shape.rows, &input, &weight, &bias);
        let what = format!("{shape:?}");
        let values = LinearValues { input: &input, weight: &weight, bias: Some(&bias) };
        assert_close(&forward(shape, values, false), &expected, &what);
        let clipped: Vec<f32> = expected.iter().map(|value| value.max(0.0)).collect();
        assert_close(&forward(shape, values, true), &clipped, &what);
        let without = reference::linear(shape.rows, &input, &weight, &vec![0.0; bias.len()]);
        assert_close(
            &forward(shape, LinearValues { bias: None, ..values }, false),
            &without,
            &what,
        );
        // Within the reach of the reference's series.
        let small: Vec<f32> = weight.iter().map(|value| value / shape.inputs as f32).collect();
        let values = LinearValues { weight: &small, ..values };
        let expected = reference::linear(shape.rows, &input, &small, &bias);
        let expected = reference::encoder::gelu(&expected);
        assert_close(&forward_gelu(shape, values), &expected, &what);
        assert_eq!(forward_gelu(shape, values), forward_gelu_with_slope(shape, values).0);
    }
}

#[test]
fn operations_equal_burns() {
    type Operation = fn(Tensor<3>, Tensor<2>, Option<Tensor<1>>) -> Tensor<3>;
    for case in cases() {
        let LinearShape { rows, inputs, outputs } = case.shape;
        let run = |operation: Operation, with_bias: bool| {
            let x = tracked(&case.input, [1, rows, inputs]);
            let w = tracked(&case.weight, [inputs, outputs]);
            let b = tracked(&case.bias, [outputs]);
            let output = operation(x.clone(), w.clone(), with_bias.then(|| b.clone()));
            trace(output, |gradients| {
                let mut all = vec![
                    vector(x.grad(gradients).expect("used")),
                    vector(w.grad(gradients).expect("used")),
                ];
                all.extend(with_bias.then(|| vector(b.grad(gradients).expect("used"))));
                all
            })
        };
        let what = format!("{:?}", case.shape);
        assert_all_close(&run(linear, true), &run(module::linear, true), &what);
        assert_all_close(&run(linear, false), &run(module::linear, false), &what);
        let plain: Operation = |x, w, b| activation::gelu(module::linear(x, w, b));
        assert_all_close(&run(linear_gelu, true), &run(plain, true), &what);
        assert_all_close(&run(linear_gelu, false), &run(plain, false), &what);
    }
}

#[test]
fn other_types_have_burns_operations() {
    let case = cases().nth(3).expect("a small one");
    let LinearShape { rows, inputs, outputs } = case.shape;
    let half =
        |values: &[f32], dims: [usize; 2]| tracked(values, dims).inner().cast(FloatDType::BF16);
    let (x, w) = (half(&case.input, [rows, inputs]), half(&case.weight, [inputs, outputs]));
    let found = linear_gelu(x.clone(), w.clone(), None);
    assert_eq!(found.dtype(), DType::BF16);
    assert_eq!(vector(found), vector(activation::gelu(module::linear(x, w, None))));
}

#[test]
fn gradients_are_slopes() {
    for Case { shape, input, weight, bias, gradient } in cases().skip(2).take(2) {
        let loss = |input: &[f32], weight: &[f32], bias: &[f32]| {
            let output = forward(shape, LinearValues { input, weight, bias: Some(bias) }, false);
            output.iter().zip(&gradient).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        let found = input_gradient(shape, &weight, &gradient);
        assert_slopes(input.clone(), &found, "input", |x| loss(x, &weight, &bias));
        let found = weight_gradient(shape, &input, &gradient);
        assert_slopes(weight.clone(), &found, "weight", |w| loss(&input, w, &bias));
        let found = bias_gradient(shape, &gradient);
        assert_slopes(bias.clone(), &found, "bias", |b| loss(&input, &weight, b));
    }
}

#[test]
fn gradients_behind_a_gelu_are_slopes() {
    for Case { shape, input, weight, bias, gradient } in cases().skip(2).take(2) {
        let values = LinearValues { input: &input, weight: &weight, bias: Some(&bias) };
        let mut behind = gradient.clone();
        backward_by_slope(&mut behind, &forward_gelu_with_slope(shape, values).1);
        let loss = |weight: &[f32], bias: &[f32]| {
            let output = forward_gelu(shape, LinearValues { weight, bias: Some(bias), ..values });
            output.iter().zip(&gradient).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        let found = weight_gradient(shape, &input, &behind);
        assert_slopes(weight.clone(), &found, "weight", |w| loss(w, &bias));
        let found = bias_gradient(shape, &behind);
        assert_slopes(bias.clone(), &found, "bias", |b| loss(&weight, b));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for Case { shape, input, weight, bias, gradient } in cases() {
        with_any_threads(|| {
            let values = LinearValues { input: &input, weight: &weight, bias: Some(&bias) };
            let output = (forward(shape, values, true), forward_gelu_with_slope(shape, values));
            let of_input = input_gradient(shape, &weight, &gradient);
            let of_weight = weight_gradient(shape, &input, &gradient);
            (output, of_input, of_weight)
        });
    }
}
