//! The kernels against their plain references, against Burn's own operations, PyTorch's, differences, and against
//! themselves with another number of threads.

mod bucket;
mod conv;
mod encoder;
mod layers;
mod linear;
mod norm;
mod pool;
mod random;
#[path = "../reference/mod.rs"]
mod reference;
mod torch;

use burn::tensor::{Device, Tensor, TensorData};
use random::Random;
// Where `reference` looks for them.
use salamander_kernels::{cpu, ops};

/// Fails unless all values are close, in parts of the largest.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0, |scale: f32, value| scale.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= 2e-5 * scale;
        assert!(close, "{what}: {found} is not {expected} at {at}");
    }
}

/// Fails unless `gradient` is what differences of `loss` give at some of the places.
fn assert_slopes(mut values: Vec<f32>, gradient: &[f32], what: &str, loss: impl Fn(&[f32]) -> f64) {
    const STEP: f32 = 1.0 / 64.0;
    let scale = gradient.iter().fold(1.0, |scale: f32, value| scale.max(value.abs()));
    let places = values.len().div_ceil(17);
    for at in (0..values.len()).step_by(places) {
        let middle = values[at];
        values[at] = middle + STEP;
        let above = loss(&values);
        values[at] = middle - STEP;
        let below = loss(&values);
        values[at] = middle;
        let slope = (above - below) / f64::from(2.0 * STEP);
        let close = (slope - f64::from(gradient[at])).abs() <= 2e-3 * f64::from(scale);
        assert!(close, "{what}: the slope is {slope}, the gradient {} at {at}", gradient[at]);
    }
}

/// What `work` gives with one, two and three threads, which must be the same bits.
fn with_any_threads<R: Send + PartialEq + std::fmt::Debug>(work: impl Fn() -> R + Sync) {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads start").install(&work)
    };
    let one = run(1);
    assert!(one == run(2), "two threads give something else than one");
    assert!(one == run(3), "three threads give something else than one");
}

fn tracked<const D: usize>(values: &[f32], dims: [usize; D]) -> Tensor<D> {
    let device = Device::flex().autodiff();
    Tensor::from_data(TensorData::new(values.to_vec(), dims), &device).require_grad()
}

fn vector<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// The output and the gradients of `parameters` under a loss that weighs each output differently.
fn trace<const D: usize>(
    output: Tensor<D>,
    parameters: impl FnOnce(&burn::tensor::Gradients) -> Vec<Vec<f32>>,
) -> Vec<Vec<f32>> {
    let dims = output.dims();
    let weights = Random::new(7).values(dims.iter().product());
    let device = output.device();
    let weights = Tensor::<D>::from_data(TensorData::new(weights, dims), &device);
    let gradients = (output.clone() * weights).sum().backward();
    let mut all = vec![vector(output.inner())];
    all.extend(parameters(&gradients));
    all
}

fn assert_all_close(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(found, expected, &format!("{what}, result {at}"));
    }
}
