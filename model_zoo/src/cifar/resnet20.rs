//! ResNet-20, the small residual network for CIFAR-10 (He, Zhang, Ren, Sun: <https://arxiv.org/abs/1512.03385>,
//! section 4.2): three stages of three blocks with 16, 32 and 64 channels, and shortcuts without parameters.

use std::path::Path;

use salamander::models::onnx::{Attribute, Edge, Graph, Unsupported};
use salamander::prelude::*;

use super::{Picture, PictureBatch, SgdHp};

/// conv16 - three stages of three blocks - mean of each channel - linear10.
#[derive(Module, Debug)]
pub struct ResNet20 {
    conv: Conv2d,
    norm: BatchNorm,
    blocks: Vec<ResidualBlock>,
    pool: AdaptiveAvgPool2d,
    fc: Linear,
}

/// Two convolutions beside a shortcut.
#[derive(Module, Debug)]
pub struct ResidualBlock {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    /// Takes every second pixel where the stage changes.
    halve: Option<MaxPool2d>,
}

fn conv3x3(channels: [usize; 2], stride: usize, device: &Device) -> Conv2d {
    Conv2dConfig::new(channels, [3, 3])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}

impl ResidualBlock {
    fn new([from, to]: [usize; 2], device: &Device) -> Self {
        let stride = if from == to { 1 } else { 2 };
        Self {
            conv1: conv3x3([from, to], stride, device),
            norm1: BatchNormConfig::new(to).init(device),
            conv2: conv3x3([to, to], 1, device),
            norm2: BatchNormConfig::new(to).init(device),
            halve: (from != to).then(|| MaxPool2dConfig::new([1, 1]).with_strides([2, 2]).init()),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.norm1.forward_relu(self.conv1.forward(x.clone()));
        self.norm2.forward_add_relu(self.conv2.forward(y), self.shortcut(x))
    }

    /// The input itself; where the stage changes, fewer pixels and new channels of zeros.
    fn shortcut(&self, x: Tensor<4>) -> Tensor<4> {
        let Some(halve) = &self.halve else { return x };
        let x = halve.forward(x);
        let zeros = x.zeros_like();
        Tensor::cat(vec![x, zeros], 1)
    }
}

impl Trial for ResNet20 {
    const NAME: &str = "cifar_resnet20";
    type Hparams = SgdHp;
    type Example = Picture;
    type Output = Tensor<2>;

    fn build(cx: &Context<SgdHp>) -> Result<Self, BuildError> {
        let stages = [[16, 16, 16, 16], [16, 32, 32, 32], [32, 64, 64, 64]];
        let blocks = stages.iter().flat_map(|stage| stage.array_windows::<2>());
        Ok(Self {
            conv: conv3x3([3, 16], 1, &cx.device),
            norm: BatchNormConfig::new(16).init(&cx.device),
            blocks: blocks.map(|channels| ResidualBlock::new(*channels, &cx.device)).collect(),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            fc: LinearConfig::new(64, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PictureBatch) -> Tensor<2> {
        let x = self.norm.forward_relu(self.conv.forward(batch.image.clone()));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.fc.forward(self.pool.forward(x).flatten(1, 3))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PictureBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &SgdHp) -> impl Into<Optimizer> {
        hp.optimizer()
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PictureBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<SgdHp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, image| {
            let x = graph.conv2d("conv", &self.conv, image)?;
            let x = graph.batch_norm("norm", &self.norm, &x);
            let mut x = graph.relu("norm", &x);
            for (at, block) in self.blocks.iter().enumerate() {
                x = block.lay_out(graph, &format!("blocks.{at}"), &x)?;
            }
            let x = graph.mean_of_channels("pool", &self.pool, &x)?;
            let x = graph.flatten("pool", &x);
            Ok(graph.linear("fc", &self.fc, &x))
        })
    }
}

impl ResidualBlock {
    fn lay_out(&self, graph: &mut Graph, name: &str, x: &Edge) -> Result<Edge, Unsupported> {
        let part = |part: &str| format!("{name}.{part}");
        let y = graph.conv2d(&part("conv1"), &self.conv1, x)?;
        let y = graph.batch_norm(&part("norm1"), &self.norm1, &y);
        let y = graph.relu(&part("norm1"), &y);
        let y = graph.conv2d(&part("conv2"), &self.conv2, &y)?;
        let y = graph.batch_norm(&part("norm2"), &self.norm2, &y);
        let shortcut = match &self.halve {
            Some(halve) => {
                let x = graph.max_pool2d(&part("halve"), halve, x)?;
                let zero = graph.scalar(&part("zero"), 0.0);
                let zeros = graph.mul(&part("zeros"), &x, &zero);
                graph.node(&part("wider"), "Concat", &[&x, &zeros], [("axis", Attribute::Int(1))])
            }
            None => x.clone(),
        };
        let sum = graph.add(name, &y, &shortcut);
        Ok(graph.relu(name, &sum))
    }
}
