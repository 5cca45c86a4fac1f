//! The deep half of Wide & Deep alone (<https://arxiv.org/abs/1606.07792>): embeddings of words and numbers into hidden
//! layers. What the wide half adds is seen beside it.

use salamander::prelude::*;

use super::census::{NUMBERS, Person, PersonBatch, WORDS};
use super::ranking;
use super::tower::Tower;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.002, min = 0.0, range = 0.0002..=0.02, log)]
    learning_rate: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = vec![100, 50])]
    hidden: Vec<usize>,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// embeddings and numbers - hidden layers - linear.
#[derive(Module, Debug)]
pub struct Dnn {
    words: Table,
    tower: Tower,
    out: Linear,
}

impl Trial for Dnn {
    const NAME: &str = "census_dnn";
    type Hparams = Hp;
    type Example = Person;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = WORDS * hp.dim + NUMBERS;
        Ok(Self {
            // Without an optimizer of its own: its rows follow the model's, each with its own count of steps.
            words: cx.table("words", hp.dim).normal(0.0, 0.1).build(),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(Tower::outputs(inputs, &hp.hidden), 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PersonBatch) -> Tensor<2> {
        let words = self.words.lookup(&batch.words).flatten(1, 2);
        self.out.forward(self.tower.forward(Tensor::cat(vec![words, batch.dense()], 1)))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PersonBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PersonBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
