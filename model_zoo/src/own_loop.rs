//! A training loop written by hand: for those who want the library's pieces but not its trainer.
//!
//! `cargo run --release -p model_zoo --example own_loop` runs it on the digits of the zoo.

use std::path::Path;
use std::sync::Arc;

use salamander::core::experiment::{Data, Experiment, OnBadRecord};
use salamander::core::ledger::Ledger;
use salamander::core::order::{Order, Shuffle};
use salamander::core::plan::Plan;
use salamander::data::Dataset;
use salamander::prelude::*;
use salamander::train::evaluate::{Evaluation, Over, evaluate};
use salamander::train::loader::{Job, Loader, Options};
use salamander::train::model::build;
use salamander::train::optimize::OptimizerState;
use salamander::train::step::{Arithmetic, compute};
use salamander::train::trainer::open_data;
use salamander::train::{Error, device, weights};

use crate::mnist::Digit;
use crate::mnist::mlp::Mlp;

const SEED: u64 = 7;
const BATCH: u64 = 64;

/// What the loop leaves behind.
pub struct Result {
    /// The trained model.
    pub model: Mlp,
    /// Its validation after the last epoch.
    pub validation: Evaluation,
    /// Which records were applied.
    pub ledger: Ledger,
}

/// Trains on the two files of a folder and writes `model.safetensors` into `out`.
pub fn train(folder: &Path, out: &Path, epochs: u64) -> std::result::Result<Result, Error> {
    let device = device::select("cpu")?.autodiff();
    let training = open(&folder.join("mnist-train.recordio"))?;
    let validation = open(&folder.join("mnist-valid.recordio"))?;
    let experiment = Experiment::parse("hyperparameters: {hidden: 64}", &[])?;
    let mut model: Mlp = build(&experiment, &device)?;

    let pass = Pass::new("train", Optimizer::sgd(0.1).momentum(0.9));
    let mut optimizer = OptimizerState::new(&pass);
    let mut ledger = Ledger::default();
    let plan = Plan { records: training.len(), batch: BATCH, aggregation: 1, slices: 1 };
    let over = Over { batch: BATCH, on_bad_record: OnBadRecord::Fail, labels: true, threads: 1 };
    let mut found = evaluate(&model, &validation, over, &mut || {})?;
    for epoch in 0..epochs {
        let order = Order::new(plan.records, Shuffle::Full, SEED, epoch);
        let jobs = (0..plan.steps())
            .flat_map(move |step| plan.micro_batches(epoch, step, 1))
            .map(move |slice| Job { slice, order });
        let options = Options {
            device: device.clone(),
            on_bad_record: OnBadRecord::Fail,
            labels: true,
            augment: None,
            threads: 1,
        };
        for loaded in Loader::start::<Digit>(Arc::clone(&training), jobs, options)? {
            let arithmetic = Arithmetic::plain(SEED);
            let mut sum = compute(&model, &pass, &[loaded?], arithmetic, None)?;
            sum.gradient.scale(1.0 / sum.tally.applied as f32);
            model = optimizer.step(model, sum.gradient, pass.optimizer.learning_rate())?;
            ledger.commit(epoch, plan.records, &sum.tally);
        }
        found = evaluate(&model, &validation, over, &mut || {})?;
        println!("epoch {}: accuracy {:.4}", epoch + 1, found.metrics.values()["accuracy"]);
    }
    weights::save(&model, &out.join("model.safetensors"))?;
    Ok(Result { model, validation: found, ledger })
}

fn open(path: &Path) -> std::result::Result<Arc<Dataset>, Error> {
    open_data("digits", &[path.display().to_string()], &Data::default())
}
