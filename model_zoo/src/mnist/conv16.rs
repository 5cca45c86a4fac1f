//! The network of ElasticDL's PyTorch design: two 5x5 convolutions and one linear layer.
//! The zoo's default: small, quick and above 98.5 % after three passes over MNIST.

use std::path::Path;

use salamander::prelude::*;

use super::{Digit, DigitBatch};

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
}

/// conv16 - pool - conv32 - pool - linear.
#[derive(Module, Debug)]
pub struct Conv16 {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    out: Linear,
}

impl Trial for Conv16 {
    const NAME: &str = "mnist_conv16";
    type Hparams = Hp;
    type Example = Digit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let same = PaddingConfig2d::Explicit(2, 2, 2, 2);
        let conv = |channels| Conv2dConfig::new(channels, [5, 5]).with_padding(same.clone());
        Ok(Self {
            conv1: conv([1, 16]).init(&cx.device),
            conv2: conv([16, 32]).init(&cx.device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            out: LinearConfig::new(32 * 7 * 7, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &DigitBatch) -> Tensor<2> {
        let x = self.pool.forward(relu(self.conv1.forward(batch.image.clone())));
        let x = self.pool.forward(relu(self.conv2.forward(x)));
        self.out.forward(x.flatten(1, 3))
    }

    fn loss(&self, output: &Tensor<2>, batch: &DigitBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &DigitBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, x| {
            let x = graph.conv2d("conv1", &self.conv1, x)?;
            let x = graph.relu("conv1", &x);
            let x = graph.max_pool2d("pool", &self.pool, &x)?;
            let x = graph.conv2d("conv2", &self.conv2, &x)?;
            let x = graph.relu("conv2", &x);
            let x = graph.max_pool2d("pool", &self.pool, &x)?;
            let x = graph.flatten("pool", &x);
            Ok(graph.linear("out", &self.out, &x))
        })
    }
}
