//! ResNet-18, 34 and 50 (<https://arxiv.org/abs/1512.03385>) with the names of torchvision, whose files start them and
//! which reads what is written.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use salamander_models::resnet::{Arch, ResNet};
//!
//! let device = Device::flex();
//! let model = ResNet::new("resnet18".parse::<Arch>()?, 10, &device);
//! let pictures = Tensor::<4>::zeros([1, 3, 32, 32], &device);
//! assert_eq!(model.forward(pictures).dims(), [1, 10]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod onnx;

use std::path::Path;
use std::str::FromStr;

use burn::module::Module;
use burn::nn::{Initializer, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use salamander_kernels::layers::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig,
    Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
};

use crate::foreign::{self, Naming};
use crate::{Error, Head};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 11.7 million parameters.
    ResNet18,
    /// 21.8 million parameters.
    ResNet34,
    /// 25.6 million parameters; its blocks have three convolutions.
    ResNet50,
}

impl Arch {
    /// The name that torchvision has for it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::ResNet18 => "resnet18",
            Arch::ResNet34 => "resnet34",
            Arch::ResNet50 => "resnet50",
        }
    }

    /// Blocks of each stage.
    fn blocks(self) -> [usize; 4] {
        match self {
            Arch::ResNet18 => [2, 2, 2, 2],
            Arch::ResNet34 | Arch::ResNet50 => [3, 4, 6, 3],
        }
    }

    /// How many times wider a block's output is than its convolutions.
    fn expansion(self) -> usize {
        if self == Arch::ResNet50 { 4 } else { 1 }
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Arch::ResNet18, Arch::ResNet34, Arch::ResNet50];
        let known = all.map(Arch::name).join(", ");
        let found = all.into_iter().find(|arch| arch.name() == name);
        found.ok_or_else(|| format!("arch {name:?}: only {known} are known"))
    }
}

/// The network: a convolution, four stages of blocks, the mean of each channel, a linear layer.
#[derive(Module, Debug)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm,
    maxpool: MaxPool2d,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    avgpool: AdaptiveAvgPool2d,
    fc: Linear,
    frozen: usize,
}

/// Two or three convolutions beside a shortcut.
#[derive(Module, Debug)]
pub struct Block {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm>,
    downsample: Option<Downsample>,
}

/// The shortcut where channels or size change.
#[derive(Module, Debug)]
pub struct Downsample {
    conv: Conv2d,
    norm: BatchNorm,
}

/// A convolution without a bias, initialised as torchvision does.
pub(crate) fn conv(
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    groups: usize,
    device: &Device,
) -> Conv2d {
    let pad = kernel / 2;
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
        .with_groups(groups)
        .with_bias(false)
        .with_initializer(Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: true })
        .init(device)
}

pub(crate) fn norm(channels: usize, device: &Device) -> BatchNorm {
    BatchNormConfig::new(channels).init(device)
}

impl Block {
    fn new(arch: Arch, from: usize, width: usize, stride: usize, device: &Device) -> Self {
        let to = width * arch.expansion();
        let shortcut = (stride != 1 || from != to).then(|| Downsample {
            conv: conv([from, to], 1, stride, 1, device),
            norm: norm(to, device),
        });
        let wide = arch.expansion() > 1;
        let (first, second) = match wide {
            true => {
                (conv([from, width], 1, 1, 1, device), conv([width, width], 3, stride, 1, device))
            }
            false => {
                (conv([from, width], 3, stride, 1, device), conv([width, width], 3, 1, 1, device))
            }
        };
        Self {
            conv1: first,
            bn1: norm(width, device),
            conv2: second,
            bn2: norm(width, device),
            conv3: wide.then(|| conv([width, to], 1, 1, 1, device)),
            bn3: wide.then(|| norm(to, device)),
            downsample: shortcut,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.bn1.forward_relu(self.conv1.forward(x.clone()));
        let shortcut = match &self.downsample {
            Some(Downsample { conv, norm }) => norm.forward(conv.forward(x)),
            None => x,
        };
        let y = self.conv2.forward(y);
        match (&self.conv3, &self.bn3) {
            (Some(conv3), Some(bn3)) => {
                bn3.forward_add_relu(conv3.forward(self.bn2.forward_relu(y)), shortcut)
            }
            _ => self.bn2.forward_add_relu(y, shortcut),
        }
    }
}

fn stage(arch: Arch, number: usize, device: &Device) -> Vec<Block> {
    let width = 64 << number;
    let out = width * arch.expansion();
    let before = if number == 0 { 64 } else { out / 2 };
    let block = |at: usize| match at {
        0 => Block::new(arch, before, width, if number == 0 { 1 } else { 2 }, device),
        _ => Block::new(arch, out, width, 1, device),
    };
    (0..arch.blocks()[number]).map(block).collect()
}

impl ResNet {
    /// With fresh parameters.
    pub fn new(arch: Arch, classes: usize, device: &Device) -> Self {
        let pad = PaddingConfig2d::Explicit(1, 1, 1, 1);
        Self {
            conv1: conv([3, 64], 7, 2, 1, device),
            bn1: norm(64, device),
            maxpool: MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(pad).init(),
            layer1: stage(arch, 0, device),
            layer2: stage(arch, 1, device),
            layer3: stage(arch, 2, device),
            layer4: stage(arch, 3, device),
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            fc: LinearConfig::new(512 * arch.expansion(), classes).init(device),
            frozen: 0,
        }
    }

    /// Keeps the first convolution and so many stages (up to four) less one as they are: with 1 only the convolution,
    /// with 5 all but the last layer. No gradient is computed for them, and their norms use running values and keep
    /// them.
    #[must_use]
    pub fn freeze(mut self, parts: usize) -> Self {
        self.frozen = parts.min(5);
        self
    }

    /// The logits of pictures, `[pictures, 3, height, width]`, which are [normalised](imagenet_normalised).
    pub fn forward(&self, pictures: Tensor<4>) -> Tensor<2> {
        let trains = self.fc.weight.val().device().is_autodiff();
        let (mut x, mut from) = (pictures, 0);
        if self.frozen > 0 && trains {
            let plain = if x.device().is_autodiff() { x.inner() } else { x };
            let kept = self.valid();
            x = Tensor::from_inner((0..self.frozen).fold(plain, |x, part| kept.part(part, x)));
            from = self.frozen;
        }
        let x = (from..5).fold(x, |x, part| self.part(part, x));
        self.fc.forward(self.avgpool.forward(x).flatten(1, 3))
    }

    /// One of the five parts before the last layer.
    fn part(&self, part: usize, x: Tensor<4>) -> Tensor<4> {
        let blocks = match part {
            0 => return self.maxpool.forward(self.bn1.forward_relu(self.conv1.forward(x))),
            1 => &self.layer1,
            2 => &self.layer2,
            3 => &self.layer3,
            _ => &self.layer4,
        };
        blocks.iter().fold(x, |x, block| block.forward(x))
    }

    /// The weights of one of torchvision's files, running values included. Returns the paths of parameters that stayed
    /// as they were.
    pub fn load(self, path: &Path, head: Head) -> Result<(Self, Vec<String>), Error> {
        load(self, path, head, &name, "fc.")
    }

    /// Writes a file whose names are torchvision's.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        foreign::save(self, path, &name)
    }
}

/// Weights of a file whose names follow from paths, for a model whose last layer is called `last`.
pub(crate) fn load<M: Module>(
    model: M,
    path: &Path,
    head: Head,
    name: &dyn Fn(&str) -> String,
    last: &str,
) -> Result<(M, Vec<String>), Error> {
    let last = name(&format!("{last}weight")).trim_end_matches("weight").to_string();
    let is_head = |name: &str| name.starts_with(&last);
    let naming = Naming {
        name,
        known: &|found| {
            let found = foreign::unwrapped(found).to_string();
            Some(found).filter(|found| head != Head::Fresh || !is_head(found))
        },
        optional: &|path| head != Head::There && is_head(&name(path)),
    };
    foreign::load(model, path, foreign::read(path)?, &naming)
}

/// torchvision's name of a parameter.
fn name(path: &str) -> String {
    let path = path.replace(".downsample.conv.", ".downsample.0.");
    normalised(&path.replace(".downsample.norm.", ".downsample.1."))
}

/// A norm's parameters are called as all others.
pub(crate) fn normalised(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((start, "gamma")) => format!("{start}.weight"),
        Some((start, "beta")) => format!("{start}.bias"),
        _ => path.to_string(),
    }
}

/// The mean and deviation of each channel of ImageNet's pictures.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// Pictures with values between 0 and 1, as the networks that were trained on ImageNet expect them: each channel with
/// the mean and deviation that it has there.
pub fn imagenet_normalised(pictures: Tensor<4>) -> Tensor<4> {
    let device = pictures.device();
    let channel = |values: [f32; 3]| Tensor::<1>::from_data(values, &device).reshape([1, 3, 1, 1]);
    (pictures - channel(IMAGENET_MEAN)) / channel(IMAGENET_DEVIATION)
}
