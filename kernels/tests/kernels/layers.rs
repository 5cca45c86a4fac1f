//! The layers against Burn's of the same names: the same configurations, parameters, text and output.

use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{PaddingConfig2d, conv as burns_conv, pool as burns_pool};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use salamander_kernels::layers::{
    Conv2d, Conv2dConfig, Dropout, DropoutConfig, Linear, LinearConfig, MaxPool2dConfig, Relu,
};

use salamander_kernels::ops::relu6;

use super::{assert_close, assert_slopes, random::Random, trace, tracked, vector};

/// Names and values of all parameters.
#[derive(Default)]
struct Listing {
    path: Vec<String>,
    found: Vec<(String, Vec<f32>)>,
}

impl ModuleVisitor for Listing {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(format!("{container}/{name}"));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.join("."), vector(param.val().inner())));
    }
}

pub(super) fn listing(module: &impl Module) -> Vec<(String, Vec<f32>)> {
    let mut listing = Listing::default();
    module.visit(&mut listing);
    listing.found
}

/// Burn's random generator is one per process: who draws from it does so alone.
pub(super) static GENERATOR: Mutex<()> = Mutex::new(());

#[test]
fn layers_are_burns_but_for_the_kernels() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    let padding = PaddingConfig2d::Same;
    device.seed(5);
    let ours: Conv2d = Conv2dConfig::new([4, 6], [3, 2])
        .with_stride([1, 1])
        .with_groups(2)
        .with_padding(padding.clone())
        .init(&device);
    let ours_found = listing(&ours);
    device.seed(5);
    let burns = burns_conv::Conv2dConfig::new([4, 6], [3, 2])
        .with_groups(2)
        .with_padding(padding)
        .init(&device);
    assert_eq!(ours_found, listing(&burns));
    assert_eq!(ours.to_string(), burns.to_string());
    let x = tracked(&Random::new(31).values(2 * 4 * 9 * 8), [2, 4, 9, 8]);
    let expected = vector(burns.forward(x.clone()).inner());
    assert_close(&vector(ours.forward(x.clone()).inner()), &expected, "conv2d");
    let clipped: Vec<f32> = expected.iter().map(|value| value.max(0.0)).collect();
    assert_close(&vector(ours.forward_relu(x.clone()).inner()), &clipped, "conv2d and relu");
    assert_close(&vector(Conv2d::from(burns).forward(x).inner()), &expected, "from Burn's");

    device.seed(6);
    let ours: Linear = LinearConfig::new(8, 3).init(&device);
    let ours_found = listing(&ours);
    device.seed(6);
    let burns = burn::nn::LinearConfig::new(8, 3).init(&device);
    assert_eq!(ours_found, listing(&burns));
    assert_eq!(ours.to_string(), burns.to_string());
    let x = tracked(&Random::new(32).values(40), [5, 8]);
    let expected = vector(burns.forward(x.clone()).inner());
    assert_close(&vector(ours.forward(x).inner()), &expected, "linear");
    let x = tracked(&Random::new(33).values(8), [8]);
    let expected = vector(burns.forward(x.clone()).inner());
    assert_close(&vector(Linear::from(burns).forward(x).inner()), &expected, "one row");
}

#[test]
fn dropout_keeps_its_share_in_training_and_its_mask_in_the_backward_pass() {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let layer: Dropout = DropoutConfig::new(0.25).init();
    let burns = burn::nn::DropoutConfig::new(0.25).init();
    assert_eq!(layer.to_string(), burns.to_string());
    assert_eq!(listing(&layer), listing(&burns));
    let x = tracked(&vec![3.0; 50_000], [50, 1000]);
    let output = layer.forward(x.clone());
    let gradients = output.clone().sum().backward();
    let gradient = vector(x.grad(&gradients).expect("used"));
    let output = vector(output.inner());
    let kept = output.iter().filter(|value| **value != 0.0).count();
    assert!((36_500..38_500).contains(&kept), "{kept} of 50000 kept");
    for (output, gradient) in output.iter().zip(&gradient) {
        assert!((output / 3.0 - gradient).abs() < 1e-6, "{output} with gradient {gradient}");
    }
    let second = vector(layer.forward(x.clone()).inner());
    assert_ne!(second, output, "every call draws a mask of its own");
    assert_eq!(vector(layer.forward(x.clone().inner())), vector(x.inner()));
}

#[test]
fn poolings_are_burns_but_for_the_kernel() {
    let x = tracked(&Random::new(34).values(2 * 3 * 9 * 8), [2, 3, 9, 8]);
    let ours =
        MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(PaddingConfig2d::Same);
    let burns = burns_pool::MaxPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(PaddingConfig2d::Same);
    let (ours, burns) = (ours.init(), burns.init());
    assert_eq!(ours.to_string(), burns.to_string());
    assert_eq!(vector(ours.forward(x.clone()).inner()), vector(burns.forward(x.clone()).inner()));
    assert_eq!(MaxPool2dConfig::new([3, 2]).init().stride, [3, 2]);
    let clipped: Vec<f32> = vector(x.clone().inner()).iter().map(|value| value.max(0.0)).collect();
    assert_eq!(vector(Relu::new().forward(x).inner()), clipped);
    assert_eq!(Relu::new().to_string(), burn::nn::Relu::new().to_string());
}

#[test]
fn relu6_is_a_clamp_and_its_gradients_are_slopes() {
    // Slopes are taken a little to both sides, where no end may be.
    let away = |value: f32| match [0.0, 6.0].iter().any(|end| (value - end).abs() < 0.1) {
        true => 2.0,
        false => value,
    };
    let values: Vec<f32> =
        Random::new(35).values(90).iter().map(|value| away(6.0 * value + 3.0)).collect();
    let run = |by: &dyn Fn(Tensor<2>) -> Tensor<2>| {
        let x = tracked(&values, [9, 10]);
        trace(by(x.clone()), |gradients| vec![vector(x.grad(gradients).expect("used"))])
    };
    let ours = run(&relu6::<2>);
    assert_eq!(ours, run(&|x| x.clamp(0.0, 6.0)));
    assert!(ours[0].contains(&0.0) && ours[0].contains(&6.0), "both ends are met");
    let weights = Random::new(7).values(90);
    assert_slopes(values.clone(), &ours[1], "relu6", |values| {
        let clipped = values.iter().map(|value| f64::from(value.clamp(0.0, 6.0)));
        clipped.zip(&weights).map(|(value, weight)| value * f64::from(*weight)).sum()
    });
    let double = tracked(&values, [9, 10]).cast(FloatDType::F64);
    assert_eq!(relu6(double.clone()).dtype(), DType::F64);
    assert_eq!(vector(relu6(double).inner()), ours[0]);
}
