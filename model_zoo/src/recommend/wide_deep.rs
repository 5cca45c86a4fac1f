//! Wide & Deep (<https://arxiv.org/abs/1606.07792>): a linear model that remembers crosses of words beside a network
//! that generalises over their embeddings, trained together. As in the paper the wide half learns by FTRL with an L1
//! penalty, the deep half by Adagrad.

use salamander::prelude::*;

use super::census::{NUMBERS, Person, PersonBatch, WORDS};
use super::ranking;
use super::tower::Tower;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.05, min = 0.0, range = 0.005..=0.5, log)]
    learning_rate: f64,
    #[hparam(default = 0.1, min = 0.0)]
    wide_rate: f64,
    #[hparam(default = 0.0001, min = 0.0)]
    wide_l1: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = vec![100, 50])]
    hidden: Vec<usize>,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// A weight per id and per cross, and a network on the words' embeddings and the numbers.
#[derive(Module, Debug)]
pub struct WideDeep {
    wide: Table,
    words: Table,
    tower: Tower,
    out: Linear,
}

impl Trial for WideDeep {
    const NAME: &str = "wide_deep";
    type Hparams = Hp;
    type Example = Person;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = WORDS * hp.dim + NUMBERS;
        let wide = Optimizer::ftrl(hp.wide_rate).l1(hp.wide_l1);
        let deep = Optimizer::adagrad(hp.learning_rate);
        Ok(Self {
            wide: cx.table("wide", 1).zeros().optimizer(wide).build(),
            words: cx.table("words", hp.dim).normal(0.0, 0.1).optimizer(deep).build(),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(Tower::outputs(inputs, &hp.hidden), 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PersonBatch) -> Tensor<2> {
        let wide = self.wide.lookup(&batch.wide()).sum_dim(1).flatten(1, 2);
        let words = self.words.lookup(&batch.words).flatten(1, 2);
        let deep = self.tower.forward(Tensor::cat(vec![words, batch.dense()], 1));
        wide + self.out.forward(deep)
    }

    fn loss(&self, output: &Tensor<2>, batch: &PersonBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adagrad(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PersonBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
