//! Everything that makes resuming hard in one small model: dropout, BatchNorm, momentum, a schedule
//! and a draw of its own. The kill tests train it.

use model_zoo::mnist::{Digit, DigitBatch};
use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.05, min = 0.0)]
    learning_rate: f64,
}

/// linear - BatchNorm - dropout - linear.
#[derive(Module, Debug)]
pub struct Resilient {
    fc1: Linear,
    norm: BatchNorm,
    dropout: Dropout,
    fc2: Linear,
}

impl Trial for Resilient {
    const NAME: &str = "resilient";
    type Hparams = Hp;
    type Example = Digit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self {
            fc1: LinearConfig::new(784, 32).init(&cx.device),
            norm: BatchNormConfig::new(32).init(&cx.device),
            dropout: DropoutConfig::new(0.3).init(),
            fc2: LinearConfig::new(32, 10).init(&cx.device),
        })
    }

    fn forward(&self, batch: &DigitBatch) -> Tensor<2> {
        let x = self.norm.forward(self.fc1.forward(batch.image.clone().flatten(1, 3)));
        self.fc2.forward(self.dropout.forward(relu(x)))
    }

    fn loss(&self, output: &Tensor<2>, batch: &DigitBatch) -> Tensor<1> {
        cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate).momentum(0.9).nesterov(true)
    }

    fn schedule(_hp: &Hp) -> Schedule {
        let curve = Curve::Cosine { over: None, floor: 0.1 };
        Schedule { by: Unit::Batch, warmup: 5, curve }
    }

    fn metrics(&self, output: &Tensor<2>, batch: &DigitBatch) -> Metrics {
        accuracy(output, &batch.label)
    }
}
