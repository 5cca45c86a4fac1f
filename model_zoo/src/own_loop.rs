//! A training loop written by hand: for those who want the library's pieces but not its trainer.
//!
//! `cargo run --release -p salamander-zoo --example own_loop` runs it on the digits of the zoo.

use salamander::prelude::*;
use salamander::train::*;

use crate::mnist::{Digit, mlp::Mlp};

const SEED: u64 = 7;
const BATCH: u64 = 64;

/// What the loop leaves behind.
pub struct Trained {
    /// The trained model.
    pub model: Mlp,
    /// Its validation after the last epoch.
    pub validation: Evaluation,
    /// Which records were applied.
    pub ledger: Ledger,
}

/// Trains on the two files of a folder and writes `model.safetensors` into `out`.
pub fn train(folder: &str, out: &str, epochs: u64) -> Result<Trained, Error> {
    let device = device::select("cpu")?.autodiff();
    let open = |file| open_data("digits", &[format!("{folder}/{file}")], &Data::default());
    let (training, validation) = (open("mnist-train.recordio")?, open("mnist-valid.recordio")?);
    let experiment = Experiment::parse("hyperparameters: {hidden: 64}", &[])?;
    let mut model: Mlp = build(&experiment, &device)?;

    let pass = Pass::new("train", Optimizer::sgd(0.1).momentum(0.9));
    let mut optimizer = OptimizerState::new(&pass);
    let mut ledger = Ledger::default();
    let over = Over::batches_of(BATCH);
    let mut found = evaluate(&model, &validation, over, &mut || {})?;
    for number in 0..epochs {
        let epoch = Epoch { number, batch: BATCH, seed: SEED };
        for loaded in Loader::epoch::<Digit>(&training, epoch, &device)? {
            let mut sum = compute(&model, &pass, &[loaded?], Arithmetic::plain(SEED), None)?;
            sum.gradient.scale(1.0 / sum.tally.applied as f32);
            model = optimizer.step(model, sum.gradient, pass.optimizer.learning_rate())?;
            ledger.commit(number, training.len(), &sum.tally);
        }
        found = evaluate(&model, &validation, over, &mut || {})?;
        println!("epoch {}: accuracy {:.4}", number + 1, found.metrics.values()["accuracy"]);
    }
    weights::save(&model, format!("{out}/model.safetensors").as_ref())?;
    Ok(Trained { model, validation: found, ledger })
}
