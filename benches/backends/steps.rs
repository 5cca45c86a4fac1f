//! Whole training steps as the trainer takes them, and its optimizer alone.

use benches::training_step;
use burn::nn::LinearConfig as BurnLinearConfig;
use burn::tensor::{Device, Tensor};
use model_zoo::mnist::conv32::Conv32;
use model_zoo::mnist::mlp::Mlp;
use model_zoo::mnist::{Digit, DigitBatch};
use salamander::Trial;
use salamander_core::experiment::Experiment;
use salamander_core::optimizer::Optimizer;
use salamander_train::gradients::{GradientSum, ParamGradient};
use salamander_train::optimize::OptimizerState;
use salamander_train::trial::Pass;

use crate::work::Sizes;

pub(crate) fn mlp(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    network::<Mlp>(device, sizes.batch)
}

pub(crate) fn cnn(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    network::<Conv32>(device, sizes.batch)
}

fn network<T: Trial<Example = Digit> + 'static>(
    device: &Device,
    records: usize,
) -> Box<dyn FnMut()> {
    let device = device.clone().autodiff();
    let experiment = Experiment::parse("", &[]).expect("defaults are valid");
    let digits = digits(records, &device);
    Box::new(training_step::<T>(&experiment, &device, records, digits))
}

fn digits(records: usize, device: &Device) -> DigitBatch {
    let pixels: Vec<f32> = (0..records * 784).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
    let labels: Vec<i64> = (0..records as i64).map(|i| i % 10).collect();
    DigitBatch {
        image: Tensor::<1>::from_data(pixels.as_slice(), device).reshape([records, 1, 28, 28]),
        label: Tensor::from_data(labels.as_slice(), device),
    }
}

/// Adam over one large matrix, its gradient where the device wants it.
pub(crate) fn optimizer(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let autodiff = device.clone().autodiff();
    let linear = BurnLinearConfig::new(1000, sizes.thousands).with_bias(false).init(&autodiff);
    let mut model = Some(linear);
    let pass = Pass::new("train", Optimizer::adam(0.001));
    let mut state = OptimizerState::new(&pass);
    let values: Vec<f32> = (0..1000 * sizes.thousands).map(|i| (i as f32).sin()).collect();
    let gradient = vec![ParamGradient { path: "weight".to_string(), sum: Some(values) }];
    let gradient = GradientSum::from_params(gradient).near(device);
    Box::new(move || {
        let current = model.take().expect("put back after every step");
        model = Some(state.step(current, gradient.clone(), 0.001).expect("a step"));
    })
}
