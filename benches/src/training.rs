//! A training step as the trainer takes it.

use burn::tensor::Device;
use salamander::Trial;
use salamander_core::experiment::Experiment;
use salamander_core::ledger::Tally;
use salamander_core::plan::MicroBatch;
use salamander_train::BatchOf;
use salamander_train::loader::Loaded;
use salamander_train::model::build;
use salamander_train::optimize::{Along, OptimizerState};
use salamander_train::step::{Arithmetic, compute};

/// Tokens of 32 film reviews, as MiniLM's tokenizer cuts them: padded to the longest they are 1.93 times as many, as in
/// the mean over VADER's snippets.
pub const REVIEW_LENGTHS: [usize; 32] = [
    20, 25, 30, 22, 34, 29, 25, 23, 52, 52, 21, 46, 31, 32, 15, 28, 14, 14, 31, 21, 24, 14, 24, 30,
    27, 25, 34, 7, 22, 40, 26, 23,
];

/// The sizes of all-MiniLM-L6-v2.
pub const MINILM: &str = r#"{"model_type": "bert", "vocab_size": 30522, "hidden_size": 384,
    "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}"#;

/// Forward, loss, backward and optimizer on the same batch of so many records, each time that it is called. `device` is
/// one that differentiates.
pub fn training_step<T: Trial + 'static>(
    experiment: &Experiment,
    device: &Device,
    records: usize,
    batch: BatchOf<T>,
) -> impl FnMut() + 'static
where
    BatchOf<T>: 'static,
{
    let mut model: Option<T> = Some(build(experiment, device).expect("the zoo's models build"));
    let hp = salamander_core::hparams::read(&experiment.hyperparameters).expect("defaults");
    let pass = T::passes(&hp).remove(0);
    let mut optimizer = OptimizerState::new(&pass);
    let tally = Tally { applied: records as u64, ..Tally::default() };
    let name = MicroBatch { epoch: 0, step: 0, k: 0 };
    let loaded = [Loaded { name, batch: Some(batch), tally, records: Vec::new() }];
    move || {
        let arithmetic = Arithmetic::plain(1);
        // Parameters that nobody else holds move in their place.
        let current = model.take().expect("put back after every step");
        let sum = compute(&current, &pass, &loaded, arithmetic, None).expect("a step");
        let along = Along { rate: pass.optimizer.learning_rate(), factor: 1.0 / records as f32 };
        let moved = optimizer.step_by(current, sum.gradient, along);
        model = Some(moved.expect("a step"));
    }
}
