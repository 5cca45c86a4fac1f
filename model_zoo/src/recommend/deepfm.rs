//! DeepFM (<https://arxiv.org/abs/1703.04247>): a factorisation machine and a network on the same embeddings.

use salamander::prelude::*;

use super::criteo::{Click, ClickBatch, FIELDS};
use super::ranking;
use super::tower::Tower;

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

/// A weight and an embedding per id; the embeddings meet in pairs and in a network.
#[derive(Module, Debug)]
pub struct DeepFm {
    linear: Table,
    factors: Table,
    tower: Tower,
    out: Linear,
}

impl Trial for DeepFm {
    const NAME: &str = "deepfm";
    type Hparams = Hp;
    type Example = Click;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = FIELDS * hp.dim;
        let adagrad = || Optimizer::adagrad(hp.table_rate);
        Ok(Self {
            linear: cx.table("linear", 1).zeros().optimizer(adagrad()).build(),
            factors: cx.table("factors", hp.dim).normal(0.0, 0.01).optimizer(adagrad()).build(),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(Tower::outputs(inputs, &hp.hidden), 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &ClickBatch) -> Tensor<2> {
        let ids = batch.ids();
        let linear = self.linear.lookup(&ids).sum_dim(1).flatten(1, 2);
        let factors = self.factors.lookup(&ids);
        let pairs = all_pairs(factors.clone());
        linear + pairs + self.out.forward(self.tower.forward(factors.flatten(1, 2)))
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

/// The sum of the products of all pairs of fields: half of the square of the sum less the sum of the squares
/// (equation 3 of <https://doi.org/10.1109/ICDM.2010.127>), which takes one pass instead of one per pair.
pub(super) fn all_pairs(factors: Tensor<3>) -> Tensor<2> {
    let square_of_sum = factors.clone().sum_dim(1).powi_scalar(2);
    let sum_of_squares = factors.powi_scalar(2).sum_dim(1);
    ((square_of_sum - sum_of_squares) * 0.5).sum_dim(2).flatten(1, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_summed_without_those_of_a_field_with_itself() {
        let device = Device::flex();
        let factors = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]]], &device);
        let found: Vec<f32> = all_pairs(factors).into_data().iter::<f32>().collect();
        let expected = (1.0 * 3.0 - 2.0) + (1.0 * 0.5 + 2.0 * 4.0) + (3.0 * 0.5 - 4.0);
        assert_eq!(found, [expected]);
    }
}
