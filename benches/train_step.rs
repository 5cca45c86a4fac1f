//! Training steps (forward, backward, optimizer) per second of the zoo's networks, beside PyTorch.
//!
//! PyTorch gets glibc settings that keep its memory between steps, as our allocator does.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench train_step`; words behind `--` choose models.

use std::process::Command;
use std::time::Duration;

use benches::{Peer, Record, median, median_rate, training_step};
use burn::tensor::{Device, Int, Tensor};
use model_zoo::cifar::resnet20::ResNet20;
use model_zoo::cifar::{Picture, PictureBatch};
use model_zoo::mnist::conv16::Conv16;
use model_zoo::mnist::conv32::Conv32;
use model_zoo::mnist::mlp::Mlp;
use model_zoo::mnist::{Digit, DigitBatch};
use model_zoo::sequence::{SequenceBatch, SequenceEncoder};
use salamander::Trial;
use salamander_core::experiment::Experiment;
use salamander_train::BatchOf;
use salamander_train::example::Example;

const BATCH: usize = 64;
const TIME: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
const MODELS: [(&str, Measurement); 5] = [
    ("mlp", rate::<Mlp>),
    ("conv16", rate::<Conv16>),
    ("conv32", rate::<Conv32>),
    ("resnet20", rate::<ResNet20>),
    ("encoder", || rate_on::<SequenceEncoder>(sequences)),
];

/// Gives samples per second.
type Measurement = fn() -> f64;

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    model_zoo::memory::keep();
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--measure") {
        let model = arguments.get(at + 1).map(String::as_str);
        let found = MODELS.iter().find(|(name, _)| Some(*name) == model);
        let (_, rate) = found.expect("--measure takes the name of a model");
        println!("{}", rate());
        return;
    }
    let peer = Peer::find("train_step.py", "torch");
    let record = Record::begin("train_step");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("training steps, batch {BATCH}, f32, samples/s (median of {ROUNDS} interleaved runs)");
    println!("{:<8} {:>7} {:>12} {:>12} {:>8}", "model", "threads", "salamander", "torch", "ratio");
    let words = || arguments.iter().skip(1).filter(|word| !word.starts_with("--"));
    let asked = |name: &str| words().next().is_none() || words().any(|word| word == name);
    for (name, _) in MODELS.iter().filter(|(name, _)| asked(name)) {
        for threads in [1, 2].into_iter().filter(|threads| *threads <= cores) {
            report(name, threads, peer.as_ref(), &record);
        }
    }
}

/// Interleaved, so that both see the same weather on the machine; each run in a process of its own, because the
/// number of threads is set once per process.
fn report(name: &str, threads: usize, peer: Option<&Peer>, record: &Record) {
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    let seconds = TIME.as_secs().to_string();
    let count = threads.to_string();
    for _ in 0..ROUNDS {
        mine.push(in_own_process(name, &count));
        theirs.extend(peer.and_then(|peer| peer.measure(&[name, &seconds, &count])));
    }
    let (mine, theirs) = (median(&mut mine), median(&mut theirs));
    let what = format!("{name}, {threads} threads");
    record.figure(&what, ("samples/s", "more"), mine, Some(theirs));
    println!("{name:<8} {threads:>7} {mine:>12.0} {theirs:>12.0} {:>8.2}", mine / theirs);
}

fn in_own_process(name: &str, threads: &str) -> f64 {
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program)
        .args(["--measure", name])
        .env("RAYON_NUM_THREADS", threads)
        .output()
        .expect("this program can be started again");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a rate")
}

/// Examples that a batch can be made of out of nothing.
trait Made: Example {
    /// The shape of an image.
    const SHAPE: [usize; 3];

    /// A batch of these images and labels.
    fn batch(image: Tensor<4>, label: Tensor<1, Int>) -> Self::Batch;
}

impl Made for Digit {
    const SHAPE: [usize; 3] = [1, 28, 28];

    fn batch(image: Tensor<4>, label: Tensor<1, Int>) -> DigitBatch {
        DigitBatch { image, label }
    }
}

impl Made for Picture {
    const SHAPE: [usize; 3] = [3, 32, 32];

    fn batch(image: Tensor<4>, label: Tensor<1, Int>) -> PictureBatch {
        PictureBatch { image, label }
    }
}

fn rate<T: Trial<Example: Made>>() -> f64 {
    rate_on::<T>(|device| {
        let [channels, height, width] = T::Example::SHAPE;
        let count = BATCH * channels * height * width;
        let pixels: Vec<f32> = (0..count).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
        let labels: Vec<i64> = (0..BATCH as i64).map(|i| i % 10).collect();
        let images = Tensor::<1>::from_data(pixels.as_slice(), device);
        let images = images.reshape([BATCH, channels, height, width]);
        T::Example::batch(images, Tensor::from_data(labels.as_slice(), device))
    })
}

/// Sequences of 128 tokens.
fn sequences(device: &Device) -> SequenceBatch {
    let tokens: Vec<i64> = (0..BATCH as i64 * 128).map(|i| i * 7919 % 32).collect();
    let labels: Vec<i64> = (0..BATCH as i64).map(|i| i % 2).collect();
    SequenceBatch {
        tokens: Tensor::<1, Int>::from_data(tokens.as_slice(), device).reshape([BATCH, 128]),
        label: Tensor::from_data(labels.as_slice(), device),
    }
}

/// Samples per second of the trainer's step.
fn rate_on<T: Trial>(batch: impl Fn(&Device) -> BatchOf<T>) -> f64 {
    salamander_train::threads::join(None);
    let device = Device::flex().autodiff();
    let text = std::env::var("DROPOUT").map(|p| format!("hyperparameters: {{dropout: {p}}}"));
    let experiment = Experiment::parse(&text.unwrap_or_default(), &[]).expect("valid");
    median_rate(BATCH as f64, TIME, training_step::<T>(&experiment, &device, BATCH, batch(&device)))
}
