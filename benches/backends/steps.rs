//! Whole training steps as the trainer takes them, and its optimizer alone.

use burn::nn::LinearConfig as BurnLinearConfig;
use burn::tensor::{Device, Tensor};
use model_zoo::mnist::conv32::Conv32;
use model_zoo::mnist::mlp::Mlp;
use model_zoo::mnist::{Digit, DigitBatch};
use salamander::Trial;
use salamander::core::experiment::Experiment;
use salamander::core::ledger::Tally;
use salamander::core::optimizer::Optimizer;
use salamander::core::plan::MicroBatch;
use salamander::train::gradients::{GradientSum, ParamGradient};
use salamander::train::loader::Loaded;
use salamander::train::model::build;
use salamander::train::optimize::OptimizerState;
use salamander::train::step::{Arithmetic, compute};
use salamander::train::trial::Pass;

use crate::work::Sizes;

pub(crate) fn mlp(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    network::<Mlp>(device, sizes.batch)
}

pub(crate) fn cnn(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    network::<Conv32>(device, sizes.batch)
}

/// Forward, loss, backward and optimizer.
fn network<T: Trial<Example = Digit>>(device: &Device, records: usize) -> Box<dyn FnMut()> {
    let device = device.clone().autodiff();
    let experiment = Experiment::parse("", &[]).expect("defaults are valid");
    let mut model: T = build(&experiment, &device).expect("the zoo's models build");
    let hp = salamander::core::hparams::read(&experiment.hyperparameters).expect("defaults");
    let pass = T::passes(&hp).remove(0);
    let mut optimizer = OptimizerState::new(&pass);
    let loaded = [digits(records, &device)];
    Box::new(move || {
        let arithmetic = Arithmetic::plain(1);
        let mut sum = compute(&model, &pass, &loaded, arithmetic, None).expect("a step");
        sum.gradient.scale(1.0 / records as f32);
        let rate = pass.optimizer.learning_rate();
        model = optimizer.step(model.clone(), sum.gradient, rate).expect("a step");
    })
}

fn digits(records: usize, device: &Device) -> Loaded<DigitBatch> {
    let pixels: Vec<f32> = (0..records * 784).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
    let labels: Vec<i64> = (0..records as i64).map(|i| i % 10).collect();
    let batch = DigitBatch {
        image: Tensor::<1>::from_data(pixels.as_slice(), device).reshape([records, 1, 28, 28]),
        label: Tensor::from_data(labels.as_slice(), device),
    };
    let tally = Tally { applied: records as u64, ..Tally::default() };
    let name = MicroBatch { epoch: 0, step: 0, k: 0 };
    Loaded { name, batch: Some(batch), tally, records: Vec::new() }
}

/// Adam over one large matrix, its gradient where the device wants it.
pub(crate) fn optimizer(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let autodiff = device.clone().autodiff();
    let mut model = BurnLinearConfig::new(1000, sizes.thousands).with_bias(false).init(&autodiff);
    let pass = Pass::new("train", Optimizer::adam(0.001));
    let mut state = OptimizerState::new(&pass);
    let values: Vec<f32> = (0..1000 * sizes.thousands).map(|i| (i as f32).sin()).collect();
    let gradient = vec![ParamGradient { path: "weight".to_string(), sum: Some(values) }];
    let gradient = GradientSum::from_params(gradient).near(device);
    Box::new(move || {
        model = state.step(model.clone(), gradient.clone(), 0.001).expect("a step");
    })
}
