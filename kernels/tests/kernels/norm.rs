//! Batch normalisation and average pooling.

use burn::module::Module;
use burn::tensor::ops::AvgPoolOptions;
use burn::tensor::{DType, Device, FloatDType, Tensor, activation, module};
use salamander_kernels::cpu::average::{self, AverageShape, Windows};
use salamander_kernels::cpu::batch_norm::{
    Affine, NO_CEILING, NormShape, Rectified, Saved, backward, forward,
};
use salamander_kernels::layers::{BatchNorm, BatchNormConfig};
use salamander_kernels::ops::{Activation, adaptive_avg_pool2d, avg_pool2d, batch_norm_train};

use super::random::Random;
use super::reference::norm as reference;
use super::{
    assert_all_close, assert_close, assert_slopes, trace, tracked, vector, with_any_threads,
};

const EPSILON: f64 = 1e-5;

struct Case {
    shape: NormShape,
    input: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    residual: Vec<f32>,
    gradient: Vec<f32>,
}

impl Case {
    fn affine(&self) -> Affine<'_> {
        Affine { gamma: &self.gamma, beta: &self.beta, epsilon: EPSILON }
    }

    fn dims(&self) -> [usize; 4] {
        let NormShape { batch, channels, pixels } = self.shape;
        [batch, channels, 1, pixels]
    }

    /// The output and all gradients, by our operation or by Burn's.
    fn traced(&self, ours: bool, residual: bool, activation: Activation) -> Vec<Vec<f32>> {
        // Around zero, where both round so little that no value comes out on the other side of a ReLU.
        let input: Vec<f32> = self.input.iter().map(|value| value - 30.0).collect();
        let x = tracked(&input, self.dims());
        let r = tracked(&self.residual, self.dims());
        let [gamma, beta] = [&self.gamma, &self.beta].map(|v| tracked(v, [self.shape.channels]));
        let parameters = [gamma.clone(), beta.clone()];
        let (output, mean, variance) = if ours {
            let residual = residual.then(|| r.clone());
            let found = batch_norm_train(x.clone(), parameters, EPSILON, residual, activation);
            (found.output, found.mean, found.variance)
        } else {
            let found = module::batch_norm_train(x.clone(), gamma.clone(), beta.clone(), EPSILON);
            let output = if residual { found.output + r.clone() } else { found.output };
            let output = match activation {
                Activation::None => output,
                Activation::Relu => activation::relu(output),
                Activation::Relu6 => output.clamp(0.0, 6.0),
            };
            (output, found.mean, found.variance)
        };
        let mut all = trace(output, |gradients| {
            let mut all = vec![
                vector(x.grad(gradients).expect("used")),
                vector(gamma.grad(gradients).expect("used")),
                vector(beta.grad(gradients).expect("used")),
            ];
            all.extend(residual.then(|| vector(r.grad(gradients).expect("used"))));
            all
        });
        all.extend([vector(mean.inner()), vector(variance.inner())]);
        all
    }
}

fn cases() -> Vec<Case> {
    let mut random = Random::new(41);
    let wide = [[64, 16, 49], [3, 5, 64], [1, 1, 4], [9, 4, 1024]];
    // Planes of several channels in a line, whole blocks of them and rests.
    let narrow = [[2, 33, 7], [5, 3, 31], [3, 192, 4], [9, 34, 1], [4, 67, 16]];
    let case = |[batch, channels, pixels]: [usize; 3]| {
        let shape = NormShape { batch, channels, pixels };
        let mut values = |count: usize| random.values(count);
        // Far from zero, where squares lose what variances are made of.
        let input = values(shape.len()).into_iter().map(|value| 30.0 + value).collect();
        Case {
            shape,
            input,
            gamma: values(channels),
            beta: values(channels),
            residual: values(shape.len()),
            gradient: values(shape.len()),
        }
    };
    wide.into_iter().chain(narrow).map(case).collect()
}

#[test]
fn kernels_equal_the_reference() {
    for case in cases() {
        let what = format!("{:?}", case.shape);
        let parameters = [&case.gamma[..], &case.beta[..]];
        let [expected, means, variances] =
            reference::batch_norm(&case.shape, &case.input, parameters, EPSILON);
        let (found, statistics) = forward(case.shape, &case.input, case.affine(), None, None);
        assert_close(&found, &expected, &what);
        assert_close(&statistics.mean, &means, &what);
        assert_close(&statistics.variance, &variances, &what);
        let added: Vec<f32> =
            expected.iter().zip(&case.residual).map(|(a, b)| (a + b).max(0.0)).collect();
        let (found, _) =
            forward(case.shape, &case.input, case.affine(), Some(&case.residual), Some(NO_CEILING));
        assert_close(&found, &added, &what);

        let relu = Rectified::Not;
        let saved =
            Saved { input: &case.input, statistics: &statistics, relu, ceiling: NO_CEILING };
        let found = backward(case.shape, saved, case.affine(), &case.gradient, true);
        let expected = reference::batch_norm_backward(
            &case.shape,
            &case.input,
            &case.gamma,
            EPSILON,
            &case.gradient,
        );
        assert_close(&found.input, &expected.input, &what);
        assert_close(&found.gamma, &expected.gamma, &what);
        assert_close(&found.beta, &expected.beta, &what);
        assert_eq!(found.residual, expected.residual);
    }
}

#[test]
fn operations_equal_burns() {
    for case in cases() {
        for activation in [Activation::None, Activation::Relu, Activation::Relu6] {
            for residual in [false, true] {
                let what = format!("{:?}, residual {residual}, {activation:?}", case.shape);
                let expected = case.traced(false, residual, activation);
                assert_all_close(&case.traced(true, residual, activation), &expected, &what);
            }
        }
    }
}

#[test]
fn gradients_are_slopes() {
    for case in cases().into_iter().skip(1) {
        let loss = |input: &[f32], gamma: &[f32], beta: &[f32]| {
            let affine = Affine { gamma, beta, epsilon: EPSILON };
            let (output, _) = forward(case.shape, input, affine, None, None);
            let products = output.iter().zip(&case.gradient);
            products.map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        let (_, statistics) = forward(case.shape, &case.input, case.affine(), None, None);
        let relu = Rectified::Not;
        let saved =
            Saved { input: &case.input, statistics: &statistics, relu, ceiling: NO_CEILING };
        let found = backward(case.shape, saved, case.affine(), &case.gradient, false);
        let what = format!("{:?}", case.shape);
        assert_slopes(case.gamma.clone(), &found.gamma, &what, |gamma| {
            loss(&case.input, gamma, &case.beta)
        });
        assert_slopes(case.beta.clone(), &found.beta, &what, |beta| {
            loss(&case.input, &case.gamma, beta)
        });
        if case.shape.batch * case.shape.pixels > 100 {
            assert_slopes(case.input.clone(), &found.input, &what, |input| {
                loss(input, &case.gamma, &case.beta)
            });
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in cases() {
        let (_, statistics) = forward(case.shape, &case.input, case.affine(), None, None);
        let residual = Some(&case.residual[..]);
        with_any_threads(|| {
            forward(case.shape, &case.input, case.affine(), residual, Some(NO_CEILING))
        });
        let relu = Rectified::ByOutput(&case.residual);
        let saved =
            Saved { input: &case.input, statistics: &statistics, relu, ceiling: NO_CEILING };
        with_any_threads(|| backward(case.shape, saved, case.affine(), &case.gradient, true));
        let saved = Saved { relu: Rectified::ByInput, ..saved };
        with_any_threads(|| backward(case.shape, saved, case.affine(), &case.gradient, false));
    }
}

#[test]
fn the_layer_is_burns_but_for_the_kernels_and_pytorchs_running_variance() {
    let device = Device::flex().autodiff();
    let (ours, burns): (BatchNorm, _) = (
        BatchNormConfig::new(5).with_momentum(0.3).init(&device),
        burn::nn::BatchNormConfig::new(5).with_momentum(0.3).init(&device),
    );
    assert_eq!(ours.to_string(), burns.to_string());
    let mut random = Random::new(43);
    let mut variances = vec![1.0; 5];
    // Images, and rows of features, which Burn's operation serves.
    for step in 0..3 {
        let values = random.values(4 * 5 * 12);
        follow(&mut variances, NormShape { batch: 4, channels: 5, pixels: 12 }, &values);
        let x = tracked(&values, [4, 5, 3, 4]);
        let expected = vector(burns.forward(x.clone()).inner());
        let found = match step {
            0 => ours.forward(x),
            1 => return_relu(&ours, x, &expected),
            _ => ours.forward_add_relu(x, Tensor::zeros([4, 5, 3, 4], &device)),
        };
        let clipped: Vec<f32> = expected.iter().map(|value| value.max(0.0)).collect();
        let expected = if step == 0 { &expected } else { &clipped };
        assert_close(&vector(found.inner()), expected, "training");
        let values = random.values(15);
        follow(&mut variances, NormShape { batch: 3, channels: 5, pixels: 1 }, &values);
        let rows = tracked(&values, [3, 5]);
        let expected = vector(burns.forward(rows.clone()).inner());
        assert_close(&vector(ours.forward(rows).inner()), &expected, "rows");
    }
    let (ours, mut burns) = (ours.valid(), burns.valid());
    assert_close(
        &vector(ours.running_mean.value()),
        &vector(burns.running_mean.value()),
        "running mean",
    );
    assert_close(&vector(ours.running_var.value()), &variances, "running variance");
    // Burn divides by the number of values, PyTorch by one less.
    assert!(vector(burns.running_var.value()) != variances);
    burns.running_var = ours.running_var.clone();
    let x = tracked(&random.values(2 * 5 * 6), [2, 5, 2, 3]).inner();
    let expected = vector(burns.forward(x.clone()));
    assert_close(&vector(ours.forward(x.clone())), &expected, "outside of training");
    assert_close(&vector(BatchNorm::from(burns).forward(x)), &expected, "from Burn's");
}

/// Moves running variances as PyTorch does: by 0.3 of a batch's, which is divided by one less than its values.
fn follow(running: &mut [f32], shape: NormShape, values: &[f32]) {
    let count = (shape.batch * shape.pixels) as f32;
    let affine = [&[1.0; 5][..], &[0.0; 5]];
    let [_, _, variances] = reference::batch_norm(&shape, values, affine, EPSILON);
    for (running, variance) in running.iter_mut().zip(variances) {
        *running = 0.7 * *running + 0.3 * variance * count / (count - 1.0);
    }
}

/// The layer with a ReLU, which must leave the running values as a plain call does.
fn return_relu(layer: &BatchNorm, x: Tensor<4>, expected: &[f32]) -> Tensor<4> {
    assert!(expected.iter().any(|value| *value < 0.0), "there is something to clip");
    layer.forward_relu(x)
}

#[test]
fn averages_equal_burns() {
    let mut random = Random::new(47);
    for _ in 0..40 {
        let shape = random.pool_shape();
        let dims = [shape.planes, 1, shape.size[0], shape.size[1]];
        let values = random.values(dims.iter().product());
        let count_padding = random.between(0, 1) == 1;
        let options = AvgPoolOptions::new(shape.kernel)
            .with_stride(shape.stride)
            .with_padding_pairs(shape.padding)
            .with_count_include_pad(count_padding);
        let size = [random.between(1, 5), random.between(1, 5)];
        let run = |pool: &dyn Fn(Tensor<4>) -> Tensor<4>| {
            let x = tracked(&values, dims);
            trace(pool(x.clone()), |gradients| vec![vector(x.grad(gradients).expect("used"))])
        };
        let what = format!("{shape:?}, {options:?}");
        let ours = run(&|x| avg_pool2d(x, options.clone()));
        assert_all_close(&ours, &run(&|x| module::avg_pool2d(x, options.clone())), &what);
        let ours = run(&|x| adaptive_avg_pool2d(x, size));
        let what = format!("{:?} to {size:?}", shape.size);
        assert_all_close(&ours, &run(&|x| module::adaptive_avg_pool2d(x, size)), &what);
        let windows = [0, 1].map(|axis| Windows::of_parts(shape.size[axis], size[axis]));
        let shape = AverageShape { planes: shape.planes, size: shape.size, windows };
        with_any_threads(|| average::forward(&shape, &values));
    }
}

#[test]
fn other_types_use_burns_operations() {
    let case = &cases()[1];
    let x = tracked(&case.input, case.dims()).cast(FloatDType::F64);
    let parameters = [&case.gamma, &case.beta]
        .map(|values| tracked(values, [case.shape.channels]).cast(FloatDType::F64));
    let found = batch_norm_train(x.clone(), parameters, EPSILON, None, Activation::Relu);
    assert_eq!(found.output.dtype(), DType::F64);
    let (expected, _) = forward(case.shape, &case.input, case.affine(), None, Some(NO_CEILING));
    assert_close(&vector(found.output.inner()), &expected, "f64");
    assert_eq!(adaptive_avg_pool2d(x, [1, 1]).dtype(), DType::F64);
}
