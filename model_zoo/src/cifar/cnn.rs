//! A plain convolutional network for CIFAR-10, as ElasticDL's zoo has one: three stages of two convolutions.

use std::path::Path;

use salamander::prelude::*;

use super::{Picture, PictureBatch};

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.002, min = 0.0, range = 0.0002..=0.02, log)]
    learning_rate: f64,
    #[hparam(default = 32, min = 1, range = 8..=64, log)]
    width: usize,
    #[hparam(default = 0.2, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// Three stages - linear10.
#[derive(Module, Debug)]
pub struct Cnn {
    stages: Vec<Stage>,
    pool: MaxPool2d,
    dropout: Dropout,
    fc: Linear,
}

/// conv - norm - relu, twice; then half of the pixels of each side are left.
#[derive(Module, Debug)]
pub struct Stage {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
}

impl Stage {
    fn new([from, to]: [usize; 2], device: &Device) -> Self {
        let conv = |channels| {
            let same = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Conv2dConfig::new(channels, [3, 3]).with_padding(same).with_bias(false).init(device)
        };
        Self {
            conv1: conv([from, to]),
            norm1: BatchNormConfig::new(to).init(device),
            conv2: conv([to, to]),
            norm2: BatchNormConfig::new(to).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.norm1.forward_relu(self.conv1.forward(x));
        self.norm2.forward_relu(self.conv2.forward(x))
    }
}

impl Trial for Cnn {
    const NAME: &str = "cifar_cnn";
    type Hparams = Hp;
    type Example = Picture;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let width = cx.hp.width;
        let channels = [3, width, 2 * width, 4 * width];
        let stages = channels.array_windows::<2>().map(|pair| Stage::new(*pair, &cx.device));
        Ok(Self {
            stages: stages.collect(),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout: DropoutConfig::new(cx.hp.dropout).init(),
            fc: LinearConfig::new(4 * width * 4 * 4, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PictureBatch) -> Tensor<2> {
        let stage = |x, stage: &Stage| self.dropout.forward(self.pool.forward(stage.forward(x)));
        let x = self.stages.iter().fold(batch.image.clone(), stage);
        self.fc.forward(x.flatten(1, 3))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PictureBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PictureBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, image| {
            let mut x = image.clone();
            for (at, stage) in self.stages.iter().enumerate() {
                let part = |part: &str| format!("stages.{at}.{part}");
                x = graph.conv2d(&part("conv1"), &stage.conv1, &x)?;
                x = graph.batch_norm(&part("norm1"), &stage.norm1, &x);
                x = graph.relu(&part("norm1"), &x);
                x = graph.conv2d(&part("conv2"), &stage.conv2, &x)?;
                x = graph.batch_norm(&part("norm2"), &stage.norm2, &x);
                x = graph.relu(&part("norm2"), &x);
                x = graph.max_pool2d("pool", &self.pool, &x)?;
            }
            let x = graph.flatten("pool", &x);
            Ok(graph.linear("fc", &self.fc, &x))
        })
    }
}
