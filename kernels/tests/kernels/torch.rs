//! The kernels against PyTorch, over random shapes: values and all gradients, as `benches/peers/kernels_fixture.py`
//! wrote
//! them.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Int, Tensor};
use salamander_kernels::cpu::attention::{
    AttentionShape, Inputs, Masks, Weighing, backward, forward,
};
use salamander_kernels::layers::MaxPool2dConfig;
use salamander_kernels::ops::{Activation, conv2d, cross_entropy, gelu, layer_norm, linear};
use serde::Deserialize;

use super::random::Random;
use super::{assert_close, trace, tracked, vector};

/// Values of a result that the file has at most.
const KEPT: usize = 40;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    operation: String,
    seed: u64,
    dims: Vec<usize>,
    results: Vec<Vec<f32>>,
}

/// The output and the gradients of all inputs.
fn ours(case: &Case) -> Vec<Vec<f32>> {
    let mut random = Random::new(case.seed);
    match (case.operation.as_str(), case.dims.as_slice()) {
        ("linear", &[rows, inputs, outputs]) => {
            let x = tracked(&random.values(rows * inputs), [rows, inputs]);
            let w = tracked(&random.values(inputs * outputs), [inputs, outputs]);
            let b = tracked(&random.values(outputs), [outputs]);
            traced(linear(x.clone(), w.clone(), Some(b.clone())), x, w, b)
        }
        ("conv2d", dims) => convolution(&mut random, dims),
        ("max_pool2d", &[planes, height, width, kernel, stride, padding]) => {
            let x = tracked(&random.values(planes * height * width), [1, planes, height, width]);
            let pad = burn::nn::PaddingConfig2d::Explicit(padding, padding, padding, padding);
            let pool = MaxPool2dConfig::new([kernel; 2]).with_strides([stride; 2]);
            let output = pool.with_padding(pad).init().forward(x.clone());
            trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))])
        }
        ("cross_entropy", &[rows, classes]) => {
            let x = tracked(&random.values(rows * classes), [rows, classes]);
            let labels: Vec<i64> =
                (0..rows).map(|_| random.between(0, classes - 1) as i64).collect();
            let labels = Tensor::<1, Int>::from_data(labels.as_slice(), &Device::flex());
            let output = cross_entropy(x.clone(), &labels);
            trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))])
        }
        ("layer_norm", &[rows, width]) => {
            let x = tracked(&random.values(rows * width), [rows, width]);
            let gamma = tracked(&random.values(width), [width]);
            let beta = tracked(&random.values(width), [width]);
            let output = layer_norm(x.clone(), gamma.clone(), Some(beta.clone()), 1e-5);
            traced(output, x, gamma, beta)
        }
        ("gelu", &[count]) => {
            let x = tracked(&random.values(count), [count]);
            let output = gelu(x.clone() * 4.0);
            trace(output, |gradients| vec![vector(x.grad(gradients).expect("used"))])
        }
        ("attention", dims) => attention(&mut random, dims),
        (other, dims) => panic!("{other} of {dims:?}"),
    }
}

fn traced<const D: usize, const A: usize, const B: usize, const C: usize>(
    output: Tensor<D>,
    a: Tensor<A>,
    b: Tensor<B>,
    c: Tensor<C>,
) -> Vec<Vec<f32>> {
    trace(output, |gradients| {
        vec![
            vector(a.grad(gradients).expect("used")),
            vector(b.grad(gradients).expect("used")),
            vector(c.grad(gradients).expect("used")),
        ]
    })
}

fn convolution(random: &mut Random, dims: &[usize]) -> Vec<Vec<f32>> {
    let &[batch, groups, group_in, group_out, height, width, kernel, stride, padding, dilation] =
        dims
    else {
        panic!("a convolution of {dims:?}")
    };
    let (channels, filters) = (groups * group_in, groups * group_out);
    let x = random.values(batch * channels * height * width);
    let x = tracked(&x, [batch, channels, height, width]);
    let w = random.values(filters * group_in * kernel * kernel);
    let w = tracked(&w, [filters, group_in, kernel, kernel]);
    let b = tracked(&random.values(filters), [filters]);
    let options = ConvOptions::new([stride; 2], [padding; 2], [dilation; 2], groups);
    let output = conv2d(x.clone(), w.clone(), Some(b.clone()), options, Activation::None);
    traced(output, x, w, b)
}

fn attention(random: &mut Random, dims: &[usize]) -> Vec<Vec<f32>> {
    let &[batch, heads, queries, keys, width, masked] = dims else {
        panic!("an attention of {dims:?}")
    };
    let shape = AttentionShape { batch, heads, queries, keys, width };
    let query = random.values(batch * queries * heads * width);
    let key = random.values(batch * keys * heads * width);
    let value = random.values(batch * keys * heads * width);
    let mask = (masked == 1).then(|| {
        random.values(batch * queries * keys).into_iter().map(|value| value > 0.5).collect()
    });
    let masks = Masks { pad: None, attention: mask, fill: -1e4 };
    let weighing = Weighing { masks, causal: false, dropout: None };
    let inputs = Inputs { query: &query, key: &key, value: &value };
    let output = forward(&shape, inputs, &weighing);
    let weights = Random::new(7).values(output.len());
    let [query, key, value] = backward(&shape, inputs, &weighing, &weights);
    vec![output, query, key, value]
}

#[test]
fn values_and_gradients_are_pytorchs() {
    let fixture: Fixture =
        serde_json::from_str(include_str!("../fixtures/torch.json")).expect("a fixture");
    assert!(fixture.cases.len() > 40);
    for case in &fixture.cases {
        let found = ours(case);
        assert_eq!(found.len(), case.results.len());
        for (at, (found, expected)) in found.iter().zip(&case.results).enumerate() {
            let kept: Vec<f32> =
                found.iter().step_by(found.len().div_ceil(KEPT).max(1)).copied().collect();
            let what = format!("{} of {:?}, result {at}", case.operation, case.dims);
            assert_close(&kept, expected, &what);
        }
    }
}
