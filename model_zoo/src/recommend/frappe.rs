//! DeepFM on Frappe (Baltrunas et al.: <https://arxiv.org/abs/1505.03014>): which apps are used in which situation, as
//! ElasticDL's zoo has it. `salamander data fetch frappe` writes what it reads.

use salamander::prelude::*;

use super::factor_net::{FactorNet, FactorSizes};
use super::ranking;

/// The user, the app and eight things about the situation.
const FIELDS: usize = 10;

/// A situation, and whether the app was used in it.
#[derive(Example)]
pub struct Visit {
    #[input(columns = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9"])]
    ids: [i64; FIELDS],
    #[label]
    label: u8,
}

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 0.05, min = 0.0)]
    table_rate: f64,
    #[hparam(default = 16, min = 1)]
    dim: usize,
    #[hparam(default = vec![64, 32])]
    hidden: Vec<usize>,
    #[hparam(default = 0.2, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// A factorisation machine and hidden layers.
#[derive(Module, Debug)]
pub struct FrappeDeepFm {
    net: FactorNet,
}

impl Trial for FrappeDeepFm {
    const NAME: &str = "frappe_deepfm";
    type Hparams = Hp;
    type Example = Visit;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { dim, hidden, dropout, table_rate, .. } = &cx.hp;
        let (dim, dropout, table_rate) = (*dim, *dropout, *table_rate);
        let sizes = FactorSizes { fields: FIELDS, dim, hidden, dropout, table_rate };
        Ok(Self { net: FactorNet::new(cx, &sizes) })
    }

    fn forward(&self, batch: &VisitBatch) -> Tensor<2> {
        self.net.forward(&batch.ids)
    }

    fn loss(&self, output: &Tensor<2>, batch: &VisitBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &VisitBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
