//! The network of DeepFM (<https://arxiv.org/abs/1703.04247>): a factorisation machine and hidden layers on the same
//! embeddings. [`deepfm`](super::deepfm) has it for clicks, [`frappe`](super::frappe) for apps.

use salamander::prelude::*;

use super::tower::Tower;

/// Sizes and rates of a [`FactorNet`].
pub struct FactorSizes<'a> {
    /// Ids of a record.
    pub fields: usize,
    /// Columns of an embedding.
    pub dim: usize,
    /// Widths of the hidden layers.
    pub hidden: &'a [usize],
    /// The share of values that is dropped in training.
    pub dropout: f64,
    /// The learning rate of the tables.
    pub table_rate: f64,
}

/// A weight and an embedding per id; the embeddings meet in pairs and in a network.
#[derive(Module, Debug)]
pub struct FactorNet {
    linear: Table,
    factors: Table,
    tower: Tower,
    out: Linear,
}

impl FactorNet {
    /// With tables of the context's run.
    pub fn new<H>(cx: &Context<H>, sizes: &FactorSizes<'_>) -> Self {
        let FactorSizes { fields, dim, hidden, dropout, table_rate } = *sizes;
        let inputs = fields * dim;
        let adagrad = || Optimizer::adagrad(table_rate);
        Self {
            linear: cx.table("linear", 1).zeros().optimizer(adagrad()).build(),
            factors: cx.table("factors", dim).normal(0.0, 0.01).optimizer(adagrad()).build(),
            tower: Tower::new(inputs, hidden, dropout, &cx.device),
            out: LinearConfig::new(Tower::outputs(inputs, hidden), 1).init(&cx.device),
        }
    }

    /// One score for each record of ids.
    pub fn forward(&self, ids: &Tensor<2, Int>) -> Tensor<2> {
        let linear = self.linear.lookup(ids).sum_dim(1).flatten(1, 2);
        let factors = self.factors.lookup(ids);
        let pairs = all_pairs(factors.clone());
        linear + pairs + self.out.forward(self.tower.forward(factors.flatten(1, 2)))
    }
}

/// The sum of the products of all pairs of fields: half of the square of the sum less the sum of the squares
/// (equation 3 of <https://doi.org/10.1109/ICDM.2010.127>), which takes one pass instead of one per pair.
fn all_pairs(factors: Tensor<3>) -> Tensor<2> {
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
