//! One weight per record, as a parameter or as rows of a table: each time a record is applied its weight grows by one
//! over the records of the step, so the final weights show how often that was, whatever the ledger says.

use std::time::Duration;

use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 100, min = 1)]
    records: usize,
    /// How long a micro-batch takes, so that there is time to kill somebody.
    #[hparam(default = 0, min = 0)]
    delay_ms: u64,
    /// A file: a micro-batch takes that long only while it is there.
    #[hparam(default = None)]
    slow_file: Option<String>,
    /// A file: whichever worker removes it hangs from then on.
    #[hparam(default = None)]
    hang_file: Option<String>,
}

impl Hp {
    fn pace(&self) -> Pace {
        Pace { delay_ms: self.delay_ms, slow_file: self.slow_file.clone() }
    }
}

/// How long a micro-batch takes.
#[derive(Module, Debug)]
struct Pace {
    delay_ms: u64,
    slow_file: Option<String>,
}

impl Pace {
    fn wait(&self) {
        if self.slow_file.as_ref().is_none_or(|file| std::path::Path::new(file).exists()) {
            std::thread::sleep(Duration::from_millis(self.delay_ms));
        }
    }
}

/// A record's number.
#[derive(Example)]
pub struct Numbered {
    #[input]
    id: u32,
}

/// The weights.
#[derive(Module, Debug)]
pub struct Tally {
    weights: Embedding,
    pace: Pace,
    hang_file: Option<String>,
}

impl Trial for Tally {
    const NAME: &str = "tally";
    type Hparams = Hp;
    type Example = Numbered;

    fn build(cx: &Context<Hp>) -> Self {
        let config = EmbeddingConfig::new(cx.hp.records, 1).with_initializer(Initializer::Zeros);
        let hang_file = cx.hp.hang_file.clone();
        Self { weights: config.init(&cx.device), pace: cx.hp.pace(), hang_file }
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        self.pace.wait();
        if self.hang_file.as_ref().is_some_and(|file| std::fs::remove_file(file).is_ok()) {
            std::thread::sleep(Duration::from_secs(3600));
        }
        let [records] = batch.id.dims();
        self.weights.forward(batch.id.clone().reshape([records, 1])).reshape([records, 1])
    }

    fn loss(&self, output: &Tensor<2>, _batch: &NumberedBatch) -> Tensor<1> {
        -output.clone().flatten(0, 1)
    }

    fn optimizer(_hp: &Hp) -> Optimizer {
        Optimizer::sgd(1.0).into()
    }
}

/// The same with the weights as rows of a table.
#[derive(Module, Debug)]
pub struct TableTally {
    weights: Table,
    pace: Pace,
}

impl Trial for TableTally {
    const NAME: &str = "table_tally";
    type Hparams = Hp;
    type Example = Numbered;

    fn build(cx: &Context<Hp>) -> Self {
        Self { weights: cx.table("weights", 1).zeros().build(), pace: cx.hp.pace() }
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        self.pace.wait();
        self.weights.lookup_one(&batch.id)
    }

    fn loss(&self, output: &Tensor<2>, _batch: &NumberedBatch) -> Tensor<1> {
        -output.clone().flatten(0, 1)
    }

    fn optimizer(_hp: &Hp) -> Optimizer {
        Optimizer::sgd(1.0).into()
    }
}
