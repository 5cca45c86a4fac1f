//! One weight per record, as a parameter or as rows of a table: each time a record is applied its weight grows by one
//! over the records of the step, so the final weights show how often that was, whatever the ledger says.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use salamander::prelude::*;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 100, min = 1)]
    records: usize,
    /// Of each record.
    #[hparam(default = 1.0, min = 0.0)]
    learning_rate: f64,
    /// How long a micro-batch takes, so that there is time to kill somebody.
    #[hparam(default = 0, min = 0)]
    delay_ms: u64,
    /// A file: a micro-batch takes that long only while it is there.
    #[hparam(default = None)]
    slow_file: Option<String>,
    /// A file: whichever worker removes it hangs from then on.
    #[hparam(default = None)]
    hang_file: Option<String>,
    /// A folder: each worker keeps a file in it that says whether its model computes, for those who kill it at a
    /// chosen moment.
    #[hparam(default = None)]
    phases: Option<String>,
}

impl Hp {
    fn pace(&self) -> Pace {
        Pace {
            delay_ms: self.delay_ms,
            slow_file: self.slow_file.clone(),
            phases: self.phases.clone(),
        }
    }
}

/// Whether this process has computed a batch.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// How long a micro-batch takes.
#[derive(Module, Debug)]
struct Pace {
    delay_ms: u64,
    slow_file: Option<String>,
    phases: Option<String>,
}

impl Pace {
    /// A process may try the model on two records before its run: its first batch takes no time, and gives false.
    fn wait(&self) -> bool {
        if !HAS_BEGUN.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.note("computing ");
        self.sleep();
        // Nearly all of a step that is not spent here.
        self.note("exchanging");
        true
    }

    /// All words have the same length, so that none is ever read in part.
    fn note(&self, doing: &str) {
        let Some(folder) = &self.phases else { return };
        let path = std::path::Path::new(folder).join(format!("phase-{}", std::process::id()));
        let file = File::options().write(true).create(true).truncate(false).open(path);
        // Who finds nothing there fails by itself; the folder may be gone before the worker.
        let _ = file.and_then(|file| file.write_all_at(doing.as_bytes(), 0));
    }

    fn sleep(&self) {
        if self.slow_file.as_ref().is_none_or(|file| std::path::Path::new(file).exists()) {
            std::thread::sleep(Duration::from_millis(self.delay_ms));
        }
    }
}

/// A record's number.
#[derive(Example)]
#[example(unlabelled)]
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
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = EmbeddingConfig::new(cx.hp.records, 1).with_initializer(Initializer::Zeros);
        let hang_file = cx.hp.hang_file.clone();
        Ok(Self { weights: config.init(&cx.device), pace: cx.hp.pace(), hang_file })
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        let [records] = batch.id.dims();
        let is_first = !self.pace.wait();
        let hang_file = self.hang_file.as_ref().filter(|_| !is_first);
        if hang_file.is_some_and(|file| std::fs::remove_file(file).is_ok()) {
            std::thread::sleep(Duration::from_secs(3600));
        }
        self.weights.forward(batch.id.clone().reshape([records, 1])).reshape([records, 1])
    }

    fn loss(&self, output: &Tensor<2>, _batch: &NumberedBatch) -> Tensor<1> {
        -output.clone().flatten(0, 1)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate)
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
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self { weights: cx.table("weights", 1).zeros().build(), pace: cx.hp.pace() })
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        self.pace.wait();
        self.weights.lookup_one(&batch.id)
    }

    fn loss(&self, output: &Tensor<2>, _batch: &NumberedBatch) -> Tensor<1> {
        -output.clone().flatten(0, 1)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate)
    }
}
