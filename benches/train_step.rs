//! Training steps (forward, backward, optimizer) per second of the zoo's networks, beside PyTorch.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench train_step`

use std::time::Duration;

use benches::{Peer, median, median_rate};
use burn::tensor::{Device, Tensor};
use model_zoo::mnist::conv16::Conv16;
use model_zoo::mnist::conv32::Conv32;
use model_zoo::mnist::mlp::Mlp;
use model_zoo::mnist::{Digit, DigitBatch};
use salamander::Trial;
use salamander::core::experiment::Experiment;
use salamander::core::ledger::Tally;
use salamander::core::plan::MicroBatch;
use salamander::train::loader::Loaded;
use salamander::train::model::build;
use salamander::train::optimize::OptimizerState;
use salamander::train::step::{Arithmetic, compute};

const BATCH: usize = 64;
const TIME: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;

fn main() {
    let peer = Peer::find("train_step.py", "torch");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!(
        "training steps, batch {BATCH}, f32, {threads} threads, samples/s (median of {ROUNDS})"
    );
    println!("{:<8} {:>12} {:>12} {:>8}", "model", "salamander", "torch", "ratio");
    report("mlp", peer.as_ref(), rate::<Mlp>);
    report("conv16", peer.as_ref(), rate::<Conv16>);
    report("conv32", peer.as_ref(), rate::<Conv32>);
}

/// Interleaved, so that both see the same weather on the machine.
fn report(name: &str, peer: Option<&Peer>, ours: fn() -> f64) {
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        mine.push(ours());
        let seconds = TIME.as_secs().to_string();
        theirs.extend(peer.and_then(|peer| peer.measure(&[name, &seconds])));
    }
    let (mine, theirs) = (median(&mut mine), median(&mut theirs));
    println!("{name:<8} {mine:>12.0} {theirs:>12.0} {:>8.2}", mine / theirs);
}

fn rate<T: Trial<Example = Digit>>() -> f64 {
    let device = Device::flex().autodiff();
    let experiment = Experiment::parse("", &[]).expect("defaults are valid");
    let mut model: T = build(&experiment, &device).expect("the zoo's models build");
    let hp = salamander::core::hparams::read(&experiment.hyperparameters).expect("defaults");
    let pass = T::passes(&hp).remove(0);
    let mut optimizer = OptimizerState::new(&pass);
    let pixels: Vec<f32> = (0..BATCH * 784).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
    let labels: Vec<i64> = (0..BATCH as i64).map(|i| i % 10).collect();
    let batch = DigitBatch {
        image: Tensor::<1>::from_data(pixels.as_slice(), &device).reshape([BATCH, 1, 28, 28]),
        label: Tensor::from_data(labels.as_slice(), &device),
    };
    let tally = Tally { applied: BATCH as u64, ..Tally::default() };
    let name = MicroBatch { epoch: 0, step: 0, k: 0 };
    let loaded = [Loaded { name, batch: Some(batch), tally, records: Vec::new() }];
    median_rate(BATCH as f64, TIME, || {
        let arithmetic = Arithmetic::plain(1);
        let mut sum = compute(&model, &pass, &loaded, arithmetic, None).expect("a step");
        sum.gradient.scale(1.0 / BATCH as f32);
        model = optimizer.step(model.clone(), &sum.gradient, pass.optimizer.learning_rate());
    })
}
