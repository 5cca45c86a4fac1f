//! A plain network of linear layers: the quickest to train, and the one that benches compare.

use std::path::Path;

use salamander::prelude::*;

use super::{Digit, DigitBatch};

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.05, min = 0.0, range = 1e-3..=0.5, log)]
    learning_rate: f64,
    #[hparam(default = 0.9, min = 0.0, max = 1.0, range = 0.0..=0.99)]
    momentum: f64,
    #[hparam(default = 512, min = 1, range = 32..=1024, log)]
    hidden: usize,
}

/// linear - linear - linear.
#[derive(Module, Debug)]
pub struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Trial for Mlp {
    const NAME: &str = "mnist_mlp";
    type Hparams = Hp;
    type Example = Digit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hidden = cx.hp.hidden;
        Ok(Self {
            fc1: LinearConfig::new(784, hidden).init(&cx.device),
            fc2: LinearConfig::new(hidden, hidden).init(&cx.device),
            fc3: LinearConfig::new(hidden, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &DigitBatch) -> Tensor<2> {
        let x = relu(self.fc1.forward(batch.image.clone().flatten(1, 3)));
        self.fc3.forward(relu(self.fc2.forward(x)))
    }

    fn loss(&self, output: &Tensor<2>, batch: &DigitBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate).momentum(hp.momentum)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &DigitBatch) -> Metrics {
        accuracy(output, &batch.label).and(top_k(5, output, &batch.label))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, _cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        super::IMAGE.export_onnx(Self::NAME, folder, |graph, x| {
            let x = graph.flatten("image", x);
            let x = graph.linear("fc1", &self.fc1, &x);
            let x = graph.relu("fc1", &x);
            let x = graph.linear("fc2", &self.fc2, &x);
            let x = graph.relu("fc2", &x);
            Ok(graph.linear("fc3", &self.fc3, &x))
        })
    }
}
