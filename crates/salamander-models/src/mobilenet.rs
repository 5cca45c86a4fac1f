//! MobileNetV2 (<https://arxiv.org/abs/1801.04381>) with the names of torchvision, whose files start it and which reads
//! what is written.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use salamander_models::mobilenet::MobileNetV2;
//!
//! let device = Device::flex();
//! let model = MobileNetV2::new(10, &device);
//! let pictures = Tensor::<4>::zeros([1, 3, 32, 32], &device);
//! assert_eq!(model.forward(pictures).dims(), [1, 10]);
//! ```

mod onnx;

use std::path::Path;

use burn::module::Module;
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor};
use salamander_kernels::layers::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, BatchNorm, Conv2d, Dropout, DropoutConfig, Linear,
    LinearConfig,
};

use crate::resnet::{conv, load, norm, normalised};
use crate::{Error, Head, foreign};

/// Expansion, channels, blocks and the stride of the first one, for each stage.
const STAGES: [[usize; 4]; 7] = [
    [1, 16, 1, 1],
    [6, 24, 2, 2],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
];

/// The network.
#[derive(Module, Debug)]
pub struct MobileNetV2 {
    first: ConvNorm,
    blocks: Vec<InvertedResidual>,
    last: ConvNorm,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    classifier: Linear,
}

/// A convolution and a norm.
#[derive(Module, Debug)]
pub struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        groups: usize,
        device: &Device,
    ) -> Self {
        Self {
            conv: conv(channels, kernel, stride, groups, device),
            norm: norm(channels[1], device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }

    /// With ReLU6 behind it.
    fn forward_relu6(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward_relu6(self.conv.forward(x))
    }
}

/// Wider channels that are looked at one by one, beside a shortcut where nothing changes.
#[derive(Module, Debug)]
pub struct InvertedResidual {
    expand: Option<ConvNorm>,
    depthwise: ConvNorm,
    project: ConvNorm,
    shortcut: bool,
}

impl InvertedResidual {
    fn new(from: usize, to: usize, expansion: usize, stride: usize, device: &Device) -> Self {
        let inner = from * expansion;
        Self {
            expand: (expansion != 1).then(|| ConvNorm::new([from, inner], 1, 1, 1, device)),
            depthwise: ConvNorm::new([inner, inner], 3, stride, inner, device),
            project: ConvNorm::new([inner, to], 1, 1, 1, device),
            shortcut: stride == 1 && from == to,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let wide = match &self.expand {
            Some(expand) => expand.forward_relu6(x.clone()),
            None => x.clone(),
        };
        let y = self.project.forward(self.depthwise.forward_relu6(wide));
        if self.shortcut { x + y } else { y }
    }
}

impl MobileNetV2 {
    /// With fresh parameters.
    pub fn new(classes: usize, device: &Device) -> Self {
        Self::with_steps(classes, 2, STAGES, device)
    }

    /// The same for pictures of about 32 pixels: the first convolution and the second stage look at every pixel.
    pub fn for_small_pictures(classes: usize, device: &Device) -> Self {
        let mut stages = STAGES;
        stages[1][3] = 1;
        Self::with_steps(classes, 1, stages, device)
    }

    fn with_steps(classes: usize, first: usize, stages: [[usize; 4]; 7], device: &Device) -> Self {
        let mut from = 32;
        let mut blocks = Vec::new();
        for [expansion, to, count, stride] in stages {
            for at in 0..count {
                let stride = if at == 0 { stride } else { 1 };
                blocks.push(InvertedResidual::new(from, to, expansion, stride, device));
                from = to;
            }
        }
        let normal = Initializer::Normal { mean: 0.0, std: 0.01 };
        Self {
            first: ConvNorm::new([3, 32], 3, first, 1, device),
            blocks,
            last: ConvNorm::new([from, 1280], 1, 1, 1, device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            dropout: DropoutConfig::new(0.2).init(),
            classifier: LinearConfig::new(1280, classes).with_initializer(normal).init(device),
        }
    }

    /// The same without dropout before the last layer.
    #[must_use]
    pub fn without_dropout(mut self) -> Self {
        self.dropout = DropoutConfig::new(0.0).init();
        self
    }

    /// The logits of pictures, `[pictures, 3, height, width]`, which are
    /// [normalised](crate::resnet::imagenet_normalised).
    pub fn forward(&self, pictures: Tensor<4>) -> Tensor<2> {
        let x = self.first.forward_relu6(pictures);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let x = self.pool.forward(self.last.forward_relu6(x)).flatten(1, 3);
        self.classifier.forward(self.dropout.forward(x))
    }

    /// The weights of one of torchvision's files, running values included. Returns the paths of parameters that stayed
    /// as they were.
    pub fn load(self, path: &Path, head: Head) -> Result<(Self, Vec<String>), Error> {
        load(self, path, head, &name, "classifier.")
    }

    /// Writes a file whose names are torchvision's.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        foreign::save(self, path, &name)
    }
}

/// torchvision's name of a parameter: numbers of the layers in their lists.
fn name(path: &str) -> String {
    let path = normalised(path);
    let in_pair = |rest: &str| rest.replacen("conv.", "0.", 1).replacen("norm.", "1.", 1);
    if let Some(rest) = path.strip_prefix("first.") {
        return format!("features.0.{}", in_pair(rest));
    }
    if let Some(rest) = path.strip_prefix("last.") {
        return format!("features.18.{}", in_pair(rest));
    }
    if let Some(rest) = path.strip_prefix("classifier.") {
        return format!("classifier.1.{rest}");
    }
    let mut parts = path.splitn(4, '.').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    let (number, part, rest) = (next(), next(), next());
    let number: usize = number.parse().unwrap_or_default();
    // The first block does not expand.
    let expands = usize::from(number > 0);
    let rest = match part {
        "expand" => format!("0.{}", in_pair(rest)),
        "depthwise" => format!("{expands}.{}", in_pair(rest)),
        _ => {
            let conv = expands + 1;
            rest.replacen("conv", &conv.to_string(), 1).replacen("norm", &(conv + 1).to_string(), 1)
        }
    };
    format!("features.{}.conv.{rest}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_torchvisions_names() {
        let check = |path: &str, expected: &str| assert_eq!(name(path), expected);
        check("first.conv.weight", "features.0.0.weight");
        check("last.norm.gamma", "features.18.1.weight");
        check("blocks.0.depthwise.conv.weight", "features.1.conv.0.0.weight");
        check("blocks.0.project.conv.weight", "features.1.conv.1.weight");
        check("blocks.0.project.norm.running_mean", "features.1.conv.2.running_mean");
        check("blocks.1.expand.norm.beta", "features.2.conv.0.1.bias");
        check("blocks.16.depthwise.norm.gamma", "features.17.conv.1.1.weight");
        check("blocks.16.project.norm.gamma", "features.17.conv.3.weight");
        check("classifier.bias", "classifier.1.bias");
    }
}
