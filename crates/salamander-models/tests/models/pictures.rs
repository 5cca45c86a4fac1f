//! ResNet and MobileNetV2 beside torchvision: `tests/fixtures/make.py` wrote what is compared with.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use salamander_core::optimizer::Optimizer;
use salamander_models::Head;
use salamander_models::foreign::{self, Tensors};
use salamander_models::mobilenet::MobileNetV2;
use salamander_models::resnet::ResNet;
use salamander_train::Pass;
use salamander_train::gradients::GradientSum;
use salamander_train::optimize::OptimizerState;
use salamander_train::params;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    names: BTreeMap<String, Vec<usize>>,
    logits: Vec<Vec<f32>>,
    losses: Option<Vec<f32>>,
}

fn expected(arch: &str) -> Expected {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision/expected.json");
    let text = std::fs::read(path).expect("a fixture");
    let mut all: BTreeMap<String, Expected> = serde_json::from_slice(&text).expect("JSON");
    all.remove(arch).expect("is there")
}

/// The values that `make.py` makes as well.
pub(crate) fn waves(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let fan_in = count as f64 / shape[0] as f64;
    let value = |at: usize| {
        let wave = (at as f64 * 0.37 + name.len() as f64).sin() * 43758.5453;
        let wave = 2.0 * (wave - wave.floor()) - 1.0;
        let centre = if name.ends_with("weight") { 1.0 } else { 0.0 };
        match shape.len() {
            _ if name.ends_with("running_var") => 1.0 + 0.5 * wave * wave,
            1 => centre + 0.1 * wave,
            _ => wave * (3.0 / fan_in).sqrt(),
        }
    };
    (0..count).map(|at| value(at) as f32).collect()
}

fn tensor(name: &str, shape: &[usize]) -> TensorData {
    TensorData::new(waves(name, shape), shape.to_vec())
}

fn images(device: &Device) -> Tensor<4> {
    Tensor::from_data(tensor("images", &[4, 3, 64, 64]), device)
}

/// A file with torchvision's names.
fn file(expected: &Expected, folder: &Path) -> std::path::PathBuf {
    let tensors: Tensors =
        expected.names.iter().map(|(name, shape)| (name.clone(), tensor(name, shape))).collect();
    let path = folder.join("torchvision.safetensors");
    foreign::write(&path, &tensors).expect("written");
    path
}

fn close(found: Tensor<2>, expected: &[Vec<f32>], within: f32) {
    let found: Vec<f32> = found.into_data().iter().collect();
    let expected = expected.concat();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < within * largest, "{found} and {expected}");
    }
}

/// Ten steps of SGD.
fn train<M: Module>(mut model: M, forward: impl Fn(&M, Tensor<4>) -> Tensor<2>) -> (Vec<f32>, M) {
    let device = Device::flex().autodiff();
    let pass = Pass::new("train", Optimizer::sgd(0.01));
    let mut optimizer = OptimizerState::new(&pass);
    let labels = Tensor::<1, Int>::from_data([1, 0, 2, 1], &device);
    let images = images(&device);
    let mut losses = Vec::new();
    for _ in 0..10 {
        let scores = log_softmax(forward(&model, images.clone()), 1);
        let loss = scores.gather(1, labels.clone().unsqueeze_dim(1)).mean().neg();
        losses.push(loss.clone().inner().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let sum = GradientSum::of(&model, gradients, &pass);
        model = optimizer.step(model, sum, 0.01).expect("a step");
    }
    (losses, model)
}

fn check<M: Module>(
    arch: &str,
    model: M,
    load: impl Fn(M, &Path, Head) -> Result<(M, Vec<String>), salamander_models::Error>,
    save: impl Fn(&M, &Path) -> Result<(), salamander_models::Error>,
    forward: impl Fn(&M, Tensor<4>) -> Tensor<2>,
) {
    let expected = expected(arch);
    let folder = tempfile::tempdir().expect("a folder");
    let original = file(&expected, folder.path());
    let (model, kept) = load(model, &original, Head::There).expect("loads");
    assert!(kept.is_empty());
    let written = folder.path().join("ours.safetensors");
    save(&model, &written).expect("saves");
    assert!(foreign::read(&original) == foreign::read(&written), "{arch} changed on its way");
    // Running values that were imported are what counts in evaluation.
    close(forward(&model.valid(), images(&Device::flex())), &expected.logits, 1e-4);
    let Some(losses) = expected.losses else { return };
    let (found, _) = train(model, &forward);
    for (found, expected) in found.iter().zip(&losses) {
        assert!((found - expected).abs() <= 1e-3 * expected.abs() + 1e-5, "{found} and {expected}");
    }
}

fn resnet(arch: &str) {
    let device = Device::flex().autodiff();
    let model = ResNet::new(arch.parse().expect("an architecture"), 5, &device);
    check(arch, model, ResNet::load, ResNet::save, ResNet::forward);
}

#[test]
fn resnet18_is_torchvisions() {
    resnet("resnet18");
}

#[test]
fn resnet34_is_torchvisions() {
    resnet("resnet34");
}

#[test]
fn resnet50_is_torchvisions() {
    resnet("resnet50");
}

#[test]
fn mobilenet_v2_is_torchvisions() {
    let device = Device::flex().autodiff();
    let model = MobileNetV2::new(5, &device).without_dropout();
    check("mobilenet_v2", model, MobileNetV2::load, MobileNetV2::save, MobileNetV2::forward);
}

#[test]
fn other_classes_begin_with_a_fresh_last_layer() {
    let expected = expected("resnet18");
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&expected, folder.path());
    let device = Device::flex().autodiff();
    let fresh = || ResNet::new("resnet18".parse().expect("an architecture"), 3, &device);
    let error = fresh().load(&path, Head::IfThere).expect_err("five classes").to_string();
    assert!(error.contains("fc.weight has shape [5, 512], the model's is [3, 512]"), "{error}");
    let (_, kept) = fresh().load(&path, Head::Fresh).expect("loads");
    assert_eq!(kept, ["fc.weight", "fc.bias"]);
    let error = "resnet7".parse::<salamander_models::resnet::Arch>().expect_err("unknown");
    assert_eq!(error, "arch \"resnet7\": only resnet18, resnet34, resnet50 are known");
}

#[test]
fn frozen_parts_keep_their_weights_and_running_values() {
    let device = Device::flex().autodiff();
    let model = ResNet::new("resnet18".parse().expect("an architecture"), 5, &device).freeze(3);
    params::list(&model);
    let before: BTreeMap<_, _> = params::read(&model).into_iter().collect();
    let (_, model) = train(model, ResNet::forward);
    for (path, data) in params::read(&model) {
        let frozen =
            ["conv1.", "bn1.", "layer1.", "layer2."].iter().any(|part| path.starts_with(part));
        assert_eq!(data == before[&path], frozen, "{path}");
    }
}
