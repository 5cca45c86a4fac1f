//! The network of Twister2's PyTorch integration: two 3x3 convolutions, dropout, log-softmax.

use std::path::Path;

use salamander::prelude::*;

use super::{Digit, DigitBatch};

/// Hyperparameters, with Twister2's values as defaults.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.01, min = 0.0, range = 0.001..=0.1, log)]
    learning_rate: f64,
    #[hparam(default = 0.5, min = 0.0, max = 1.0, range = 0.0..=0.99)]
    momentum: f64,
}

/// conv32 - conv64 - pool - dropout - linear128 - dropout - linear10 - log-softmax.
#[derive(Module, Debug)]
pub struct Conv32 {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    dropout1: Dropout,
    fc1: Linear,
    dropout2: Dropout,
    fc2: Linear,
}

impl Trial for Conv32 {
    const NAME: &str = "mnist_conv32";
    type Hparams = Hp;
    type Example = Digit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self {
            conv1: Conv2dConfig::new([1, 32], [3, 3]).init(&cx.device),
            conv2: Conv2dConfig::new([32, 64], [3, 3]).init(&cx.device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            dropout1: DropoutConfig::new(0.25).init(),
            fc1: LinearConfig::new(64 * 12 * 12, 128).init(&cx.device),
            dropout2: DropoutConfig::new(0.5).init(),
            fc2: LinearConfig::new(128, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &DigitBatch) -> Tensor<2> {
        let x = relu(self.conv1.forward(batch.image.clone()));
        let x = self.pool.forward(self.conv2.forward(x));
        let x = self.dropout1.forward(x).flatten(1, 3);
        let x = self.dropout2.forward(relu(self.fc1.forward(x)));
        log_softmax(self.fc2.forward(x), 1)
    }

    fn loss(&self, output: &Tensor<2>, batch: &DigitBatch) -> Tensor<1> {
        nll(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate).momentum(hp.momentum)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &DigitBatch) -> Metrics {
        accuracy(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        output.exp()
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, x| {
            let x = graph.conv2d("conv1", &self.conv1, x)?;
            let x = graph.relu("conv1", &x);
            let x = graph.conv2d("conv2", &self.conv2, &x)?;
            let x = graph.max_pool2d("pool", &self.pool, &x)?;
            let x = graph.flatten("pool", &x);
            let x = graph.linear("fc1", &self.fc1, &x);
            let x = graph.relu("fc1", &x);
            Ok(graph.linear("fc2", &self.fc2, &x))
        })
    }
}
