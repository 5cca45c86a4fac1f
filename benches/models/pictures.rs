//! ResNet and MobileNetV2 beside torchvision.

use std::error::Error;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use salamander::models::mobilenet::MobileNetV2;
use salamander::models::resnet::{Arch, ResNet};
use salamander::models::{Error as ModelError, Head, foreign};
use salamander_core::optimizer::Optimizer;
use serde::Deserialize;

use crate::{LOGITS_WITHIN, follow, largest_difference, name};

/// How far a loss may be from PyTorch's, as a part of it.
const LOSSES_WITHIN: f32 = 1e-3;

#[derive(Deserialize)]
struct PictureCase {
    arch: String,
    logits: Vec<Vec<f32>>,
    labels: Vec<i64>,
    rate: f64,
    /// Empty where no steps are compared.
    losses: Vec<f32>,
}

/// One of torchvision's networks.
trait Network: Module {
    fn load(self, path: &Path) -> Result<Self, ModelError>;
    fn save(&self, path: &Path) -> Result<(), ModelError>;
    fn forward(&self, pictures: Tensor<4>) -> Tensor<2>;
}

impl Network for ResNet {
    fn load(self, path: &Path) -> Result<Self, ModelError> {
        Ok(ResNet::load(self, path, Head::There)?.0)
    }

    fn save(&self, path: &Path) -> Result<(), ModelError> {
        ResNet::save(self, path)
    }

    fn forward(&self, pictures: Tensor<4>) -> Tensor<2> {
        ResNet::forward(self, pictures)
    }
}

impl Network for MobileNetV2 {
    fn load(self, path: &Path) -> Result<Self, ModelError> {
        Ok(MobileNetV2::load(self, path, Head::There)?.0)
    }

    fn save(&self, path: &Path) -> Result<(), ModelError> {
        MobileNetV2::save(self, path)
    }

    fn forward(&self, pictures: Tensor<4>) -> Tensor<2> {
        MobileNetV2::forward(self, pictures)
    }
}

pub(crate) fn compare(folder: &Path, expected: &[u8]) -> Result<bool, Box<dyn Error>> {
    let expected: PictureCase = serde_json::from_slice(expected)?;
    let device = Device::flex().autodiff();
    let classes = expected.logits[0].len();
    match expected.arch.as_str() {
        "mobilenet_v2" => compare_network(MobileNetV2::new(classes, &device), folder, &expected),
        arch => {
            compare_network(ResNet::new(arch.parse::<Arch>()?, classes, &device), folder, &expected)
        }
    }
}

fn compare_network<N: Network>(
    fresh: N,
    folder: &Path,
    expected: &PictureCase,
) -> Result<bool, Box<dyn Error>> {
    let model = fresh.load(&folder.join("weights.pth"))?;
    let pictures = foreign::read(&folder.join("pictures.safetensors"))?.remove("pictures");
    let pictures = pictures.ok_or("pictures.safetensors has no pictures")?;
    let seen = Tensor::<4>::from_data(pictures.clone(), &Device::flex());
    let found: Vec<f32> = model.valid().forward(seen).into_data().iter().collect();
    let apart = largest_difference(&found, &expected.logits);
    std::fs::create_dir_all(folder.join("ours"))?;
    model.save(&folder.join("ours").join(format!("{}.safetensors", expected.arch)))?;
    let losses = ten_losses(model, pictures, expected)?;
    let off = follow::apart(&losses, &expected.losses);
    println!(
        "{:<14} ours: logits differ by {apart:.1e} at most, losses of {} steps by {off:.1e} of themselves",
        name(folder),
        losses.len()
    );
    Ok(apart <= LOGITS_WITHIN && off <= LOSSES_WITHIN)
}

fn ten_losses<N: Network>(
    model: N,
    pictures: TensorData,
    expected: &PictureCase,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let pictures = Tensor::<4>::from_data(pictures, &device);
    let labels = TensorData::new(expected.labels.clone(), [expected.labels.len()]);
    let labels = Tensor::<1, Int>::from_data(labels, &device);
    let steps = expected.losses.iter();
    let scores = |model: &N, _| (model.forward(pictures.clone()), labels.clone());
    Ok(follow::losses(model, Optimizer::sgd(expected.rate), steps, scores)?)
}
