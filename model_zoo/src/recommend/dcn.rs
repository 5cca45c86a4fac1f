//! Deep & Cross Network (<https://arxiv.org/abs/1708.05123>): layers that cross all inputs with the first ones, beside a
//! network of hidden layers.

use burn::module::Param;
use burn::nn::Initializer;
use salamander::prelude::*;

use super::criteo::{COUNTS, Click, ClickBatch, FIELDS};
use super::ranking;
use super::tower::Tower;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 0.05, min = 0.0)]
    table_rate: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = 3)]
    crosses: usize,
    #[hparam(default = vec![128, 64])]
    hidden: Vec<usize>,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// One crossing of the first inputs with those of the layer: `x0 (x . w) + b + x`.
#[derive(Module, Debug)]
pub struct Cross {
    weight: Linear,
    bias: Param<Tensor<1>>,
}

impl Cross {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            weight: LinearConfig::new(width, 1).with_bias(false).init(device),
            bias: Initializer::Zeros.init([width], device),
        }
    }

    fn forward(&self, first: Tensor<2>, x: Tensor<2>) -> Tensor<2> {
        first * self.weight.forward(x.clone()) + self.bias.val().unsqueeze() + x
    }
}

/// Crosses and hidden layers on the same embeddings and counts.
#[derive(Module, Debug)]
pub struct Dcn {
    factors: Table,
    crosses: Vec<Cross>,
    tower: Tower,
    out: Linear,
}

impl Trial for Dcn {
    const NAME: &str = "dcn";
    type Hparams = Hp;
    type Example = Click;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = FIELDS * hp.dim + COUNTS;
        let adagrad = Optimizer::adagrad(hp.table_rate);
        Ok(Self {
            factors: cx.table("factors", hp.dim).normal(0.0, 0.05).optimizer(adagrad).build(),
            crosses: (0..hp.crosses).map(|_| Cross::new(inputs, &cx.device)).collect(),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(inputs + Tower::outputs(inputs, &hp.hidden), 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &ClickBatch) -> Tensor<2> {
        let factors = self.factors.lookup(&batch.ids()).flatten(1, 2);
        let first = Tensor::cat(vec![factors, batch.dense()], 1);
        let crossed = self.crosses.iter().fold(first.clone(), |x, c| c.forward(first.clone(), x));
        let deep = self.tower.forward(first);
        self.out.forward(Tensor::cat(vec![crossed, deep], 1))
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
