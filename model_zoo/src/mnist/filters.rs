//! The network of Determined's PyTorch MNIST tutorial: its size is a matter of hyperparameters.

use std::path::Path;

use salamander::prelude::*;

use super::{Digit, DigitBatch};

/// Hyperparameters, under the names of the tutorial.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 40, min = 1, range = 8..=64, log)]
    n_filters1: usize,
    #[hparam(default = 40, min = 1, range = 8..=64, log)]
    n_filters2: usize,
    #[hparam(default = 0.5, min = 0.0, max = 0.99, range = 0.0..=0.6)]
    dropout: f64,
}

/// conv5x5 - pool - conv5x5 - pool - linear50 - dropout - linear10 - log-softmax.
#[derive(Module, Debug)]
pub struct Filters {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl Trial for Filters {
    // As the tutorial's experiment file calls it: `entrypoint: model_def:MNistTrial`.
    const NAME: &str = "MNistTrial";
    type Hparams = Hp;
    type Example = Digit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { n_filters1, n_filters2, dropout, .. } = cx.hp;
        Ok(Self {
            conv1: Conv2dConfig::new([1, n_filters1], [5, 5]).init(&cx.device),
            conv2: Conv2dConfig::new([n_filters1, n_filters2], [5, 5]).init(&cx.device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            fc1: LinearConfig::new(16 * n_filters2, 50).init(&cx.device),
            dropout: DropoutConfig::new(dropout).init(),
            fc2: LinearConfig::new(50, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &DigitBatch) -> Tensor<2> {
        let x = relu(self.pool.forward(self.conv1.forward(batch.image.clone())));
        let x = relu(self.pool.forward(self.conv2.forward(x)));
        let x = relu(self.fc1.forward(x.flatten(1, 3)));
        log_softmax(self.fc2.forward(self.dropout.forward(x)), 1)
    }

    fn loss(&self, output: &Tensor<2>, batch: &DigitBatch) -> Tensor<1> {
        nll(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate).momentum(0.9)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &DigitBatch) -> Metrics {
        accuracy(output, &batch.label).and(error_rate(output, &batch.label))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        output.exp()
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, x| {
            let x = graph.conv2d("conv1", &self.conv1, x)?;
            let x = graph.max_pool2d("pool", &self.pool, &x)?;
            let x = graph.relu("conv1", &x);
            let x = graph.conv2d("conv2", &self.conv2, &x)?;
            let x = graph.max_pool2d("pool", &self.pool, &x)?;
            let x = graph.relu("conv2", &x);
            let x = graph.flatten("pool", &x);
            let x = graph.linear("fc1", &self.fc1, &x);
            let x = graph.relu("fc1", &x);
            Ok(graph.linear("fc2", &self.fc2, &x))
        })
    }
}
