//! DeepFM (<https://arxiv.org/abs/1703.04247>): a factorisation machine and a network on the same embeddings, for any
//! examples that are ids.

use std::fmt::Debug;
use std::marker::PhantomData;

use salamander::prelude::*;
use salamander::train::example::Example;

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

/// Examples that are ids, and something that happened or not.
pub trait RecordsOfIds: Example + Clone + Debug {
    /// The name of the trial.
    const TRIAL: &'static str;
    /// RecordsOfIds of a record.
    const FIELDS: usize;

    /// `[records, fields]`
    fn ids(batch: &Self::Batch) -> Tensor<2, Int>;

    /// 1 where it happened.
    fn happened(batch: &Self::Batch) -> &Tensor<1, Int>;
}

impl RecordsOfIds for Click {
    const TRIAL: &str = "deepfm";
    const FIELDS: usize = FIELDS;

    fn ids(batch: &ClickBatch) -> Tensor<2, Int> {
        batch.ids()
    }

    fn happened(batch: &ClickBatch) -> &Tensor<1, Int> {
        &batch.label
    }
}

/// A factorisation machine and hidden layers.
#[derive(Module, Debug)]
pub struct DeepFm<E: RecordsOfIds = Click> {
    net: FactorNet,
    #[module(skip)]
    examples: PhantomData<E>,
}

impl<E: RecordsOfIds> Trial for DeepFm<E> {
    const NAME: &str = E::TRIAL;
    type Hparams = Hp;
    type Example = E;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { dim, hidden, dropout, table_rate, .. } = &cx.hp;
        let (dim, dropout, table_rate) = (*dim, *dropout, *table_rate);
        let sizes = FactorSizes { fields: E::FIELDS, dim, hidden, dropout, table_rate };
        Ok(Self { net: FactorNet::new(cx, &sizes), examples: PhantomData })
    }

    fn forward(&self, batch: &BatchOf<Self>) -> Tensor<2> {
        self.net.forward(&E::ids(batch))
    }

    fn loss(&self, output: &Tensor<2>, batch: &BatchOf<Self>) -> Tensor<1> {
        binary_cross_entropy(output, E::happened(batch))
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &BatchOf<Self>) -> Metrics {
        ranking(output, E::happened(batch))
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}
