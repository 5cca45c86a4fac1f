//! DeepFM (<https://arxiv.org/abs/1703.04247>): a factorisation machine and a network on the same embeddings.

use salamander::prelude::*;

use super::criteo::{Click, ClickBatch, FIELDS};
use super::factor_net::{FactorNet, FactorSizes};
use super::ranking;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 0.02, min = 0.0)]
    table_rate: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = vec![128, 64])]
    hidden: Vec<usize>,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// A factorisation machine and hidden layers.
#[derive(Module, Debug)]
pub struct DeepFm {
    net: FactorNet,
}

impl Trial for DeepFm {
    const NAME: &str = "deepfm";
    type Hparams = Hp;
    type Example = Click;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { dim, hidden, dropout, table_rate, .. } = &cx.hp;
        let (dim, dropout, table_rate) = (*dim, *dropout, *table_rate);
        let sizes = FactorSizes { fields: FIELDS, dim, hidden, dropout, table_rate };
        Ok(Self { net: FactorNet::new(cx, &sizes) })
    }

    fn forward(&self, batch: &ClickBatch) -> Tensor<2> {
        self.net.forward(&batch.ids())
    }

    fn loss(&self, output: &Tensor<2>, batch: &ClickBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &ClickBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
