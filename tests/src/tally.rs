//! One weight per record, as a parameter or as rows of a table: each time a record is applied its weight grows by one
//! over the records of the step, so the final weights show how often that was, whatever the ledger says.
//!
//! Such weights have the same bits in whatever order gradients are added. So there may be others beside them, which all
//! records move together: their last bits depend on the order of every sum and of every step.

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
    /// Only who computes this record does so.
    #[hparam(default = None)]
    hang_record: Option<u64>,
    /// A folder: each worker keeps a file in it that says whether its model computes, for those who kill it at a
    /// chosen moment.
    #[hparam(default = None)]
    phases: Option<String>,
    /// With weights that all records move together.
    #[hparam(default = false)]
    blend: bool,
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

/// A record's input is one over its number's remainders by these, and one: fractions without an end in binary, whose
/// sums are rounded in almost every step.
const REMAINDERS: [i64; 3] = [7, 11, 13];
/// What they come to is drawn towards 1 so slowly that it never gets there.
const PULL: f64 = 1.0 / 64.0;
/// So many records share a row of the table.
const SHARED_ROWS: i64 = 16;

/// A model that every record moves a little.
#[derive(Module, Debug)]
struct Blend {
    common: Linear,
}

impl Blend {
    fn of(cx: &Context<Hp>) -> Option<Self> {
        let common = || LinearConfig::new(REMAINDERS.len(), 1).init(&cx.device);
        cx.hp.blend.then(|| Self { common: common() })
    }

    fn forward(&self, id: &Tensor<1, Int>) -> Tensor<2> {
        let part = |by: &i64| (id.clone().remainder_scalar(*by).float() + 1.0).recip();
        self.common.forward(Tensor::stack(REMAINDERS.iter().map(part).collect(), 1))
    }

    /// How far records are from 1.
    fn loss(output: Tensor<2>) -> Tensor<1> {
        (output.flatten::<1>(0, 1) - 1.0).square() * PULL
    }
}

/// When a worker hangs.
#[derive(Module, Debug)]
struct Hang {
    file: Option<String>,
    record: Option<u64>,
}

impl Hang {
    fn take_place(&self, ids: &Tensor<1, Int>) {
        let is_one = |record: u64| ids.to_data().iter::<i64>().any(|id| id as u64 == record);
        let Some(file) = self.file.as_ref().filter(|_| self.record.is_none_or(is_one)) else {
            return;
        };
        if std::fs::remove_file(file).is_ok() {
            std::thread::sleep(Duration::from_secs(3600));
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
    blend: Option<Blend>,
    pace: Pace,
    hang: Hang,
}

impl Trial for Tally {
    const NAME: &str = "tally";
    type Hparams = Hp;
    type Example = Numbered;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let config = EmbeddingConfig::new(cx.hp.records, 1).with_initializer(Initializer::Zeros);
        let hang = Hang { file: cx.hp.hang_file.clone(), record: cx.hp.hang_record };
        let (weights, blend, pace) = (config.init(&cx.device), Blend::of(cx), cx.hp.pace());
        Ok(Self { weights, blend, pace, hang })
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        let [records] = batch.id.dims();
        if self.pace.wait() {
            self.hang.take_place(&batch.id);
        }
        self.weights.forward(batch.id.clone().reshape([records, 1])).reshape([records, 1])
    }

    fn loss(&self, output: &Tensor<2>, batch: &NumberedBatch) -> Tensor<1> {
        let counted = -output.clone().flatten::<1>(0, 1);
        match &self.blend {
            Some(blend) => counted + Blend::loss(blend.forward(&batch.id)),
            None => counted,
        }
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate)
    }
}

/// The same with the weights as rows of a table.
#[derive(Module, Debug)]
pub struct TableTally {
    weights: Table,
    /// Rows that many records have in common, so that several workers move each of them in a step.
    shared: Option<Table>,
    blend: Option<Blend>,
    pace: Pace,
}

impl Trial for TableTally {
    const NAME: &str = "table_tally";
    type Hparams = Hp;
    type Example = Numbered;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let weights = cx.table("weights", 1).zeros().build();
        let shared = || cx.table("shared", 2).normal(0.0, 0.1).build();
        let shared = cx.hp.blend.then(shared);
        Ok(Self { weights, shared, blend: Blend::of(cx), pace: cx.hp.pace() })
    }

    fn forward(&self, batch: &NumberedBatch) -> Tensor<2> {
        self.pace.wait();
        self.weights.lookup_one(&batch.id)
    }

    fn loss(&self, output: &Tensor<2>, batch: &NumberedBatch) -> Tensor<1> {
        let counted = -output.clone().flatten::<1>(0, 1);
        let (Some(blend), Some(shared)) = (&self.blend, &self.shared) else { return counted };
        let rows = shared.lookup_one(&batch.id.clone().remainder_scalar(SHARED_ROWS));
        counted + Blend::loss(blend.forward(&batch.id) + rows.sum_dim(1))
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::sgd(hp.learning_rate)
    }
}
