//! Training steps (forward, backward, optimizer) per second of the zoo's networks, beside PyTorch: by the clock, and by
//! the processor's time, which tells more on a machine that does other things too.
//!
//! PyTorch gets glibc settings that keep its memory between steps, as our allocator does.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench train_step`; words behind `--` choose models.
//! MiniLM needs transformers.

use std::process::Command;
use std::time::Duration;

use benches::{MINILM, PythonPeer, REVIEW_LENGTHS, Rates, Record, median, rates, training_step};
use burn::tensor::{Device, Int, Tensor};
use model_zoo::cifar::resnet20::ResNet20;
use model_zoo::cifar::{Picture, PictureBatch};
use model_zoo::imagenet::trial::ImageNetTrial;
use model_zoo::imagenet::{Photo, PhotoBatch};
use model_zoo::mnist::conv16::Conv16;
use model_zoo::mnist::conv32::Conv32;
use model_zoo::mnist::mlp::Mlp;
use model_zoo::mnist::{Digit, DigitBatch};
use model_zoo::sequence::{SequenceBatch, SequenceEncoder};
use model_zoo::text::ReviewBatch;
use model_zoo::text::bert::BertReviews;
use model_zoo::text::gpt::{GptBytes, PassageBatch};
use salamander::Trial;
use salamander_core::experiment::Experiment;
use salamander_train::BatchOf;
use salamander_train::example::{Example, Tokens};

const BATCH: usize = 64;
const TIME: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
const MODELS: [(&str, Measurement); 9] = [
    ("mlp", rate::<Mlp>),
    ("conv16", rate::<Conv16>),
    ("conv32", rate::<Conv32>),
    ("resnet20", rate::<ResNet20>),
    ("encoder", || rate_on::<SequenceEncoder>("", BATCH, sequences)),
    ("resnet18", || rate_with::<ImageNetTrial>("arch: resnet18, classes: 10")),
    ("mobilenet_v2", || rate_with::<ImageNetTrial>("arch: mobilenet_v2, classes: 10")),
    ("minilm", minilm),
    ("gpt", || rate_on::<GptBytes>("dropout: 0.0", PASSAGES, passages)),
];

/// Passages of 128 bytes in a batch of the GPT's.
const PASSAGES: usize = 16;

/// Gives samples per second.
type Measurement = fn() -> Rates;

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
        let Rates { clock, processor } = rate();
        println!("{clock} {processor}");
        return;
    }
    let peer = PythonPeer::find("train_step.py", "torch");
    let record = Record::begin("train_step");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("training steps, f32, samples/s (median of {ROUNDS} interleaved runs),");
    println!("and samples per second of the processor's time");
    println!(
        "{:<12} {:>7} {:>12} {:>12} {:>6}   {:>12} {:>12} {:>6}",
        "model", "threads", "salamander", "torch", "ratio", "salamander", "torch", "ratio"
    );
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
fn report(name: &str, threads: usize, peer: Option<&PythonPeer>, record: &Record) {
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    let seconds = TIME.as_secs().to_string();
    let count = threads.to_string();
    for _ in 0..ROUNDS {
        mine.push(in_own_process(name, &count));
        theirs.extend(peer.and_then(|peer| peer.rates(&[name, &seconds, &count])));
    }
    let middle = |rates: &[Rates], part: fn(&Rates) -> f64| {
        median(&mut rates.iter().map(part).collect::<Vec<_>>())
    };
    let clock = [&mine, &theirs].map(|rates| middle(rates, |rates| rates.clock));
    let processor = [&mine, &theirs].map(|rates| middle(rates, |rates| rates.processor));
    let what = format!("{name}, {threads} threads");
    record.figure(&what, ("samples/s", "more"), clock[0], Some(clock[1]));
    let what = format!("{name}, {threads} threads, processor");
    record.figure(&what, ("samples/CPU-s", "more"), processor[0], Some(processor[1]));
    let columns =
        |[mine, theirs]: [f64; 2]| format!("{mine:>12.1} {theirs:>12.1} {:>6.2}", mine / theirs);
    println!("{name:<12} {threads:>7} {}   {}", columns(clock), columns(processor));
}

fn in_own_process(name: &str, threads: &str) -> Rates {
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program)
        .args(["--measure", name])
        .env("RAYON_NUM_THREADS", threads)
        .output()
        .expect("this program can be started again");
    Rates::parse(&output.stdout).expect("two rates")
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

impl Made for Photo {
    const SHAPE: [usize; 3] = [3, 64, 64];

    fn batch(image: Tensor<4>, label: Tensor<1, Int>) -> PhotoBatch {
        PhotoBatch { image, label }
    }
}

impl Made for Picture {
    const SHAPE: [usize; 3] = [3, 32, 32];

    fn batch(image: Tensor<4>, label: Tensor<1, Int>) -> PictureBatch {
        PictureBatch { image, label }
    }
}

fn rate<T: Trial<Example: Made>>() -> Rates {
    rate_with::<T>("")
}

fn rate_with<T: Trial<Example: Made>>(hyperparameters: &str) -> Rates {
    rate_on::<T>(hyperparameters, BATCH, |device| {
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

/// A step of fine-tuning: MiniLM's sizes, texts of real lengths, AdamW.
fn minilm() -> Rates {
    // What the trial reads in its folder; the tokenizer is not used, because there are ids already.
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = "../crates/salamander-models/tests/fixtures/bert/tokenizer.json";
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    std::fs::copy(fixture, folder.path().join("tokenizer.json")).expect("a fixture");
    std::fs::write(folder.path().join("config.json"), MINILM).expect("written");
    std::fs::write(folder.path().join("classes.txt"), "negative\npositive\n").expect("written");
    std::env::set_current_dir(folder.path()).expect("a folder");
    rate_on::<BertReviews>("bert_type: .", REVIEW_LENGTHS.len(), |device| {
        let id = |at: usize| (at * 7919 % 30522) as i64;
        let text = |length: &usize| (0..*length).map(|at| id(at + length)).collect::<Vec<_>>();
        let texts: Vec<Vec<i64>> = REVIEW_LENGTHS.iter().map(text).collect();
        let labels: Vec<i64> = (0..REVIEW_LENGTHS.len() as i64).map(|at| at % 2).collect();
        ReviewBatch {
            text: Tokens::new("text", &texts, device).expect("tokens"),
            label: Tensor::from_data(labels.as_slice(), device),
        }
    })
}

fn passages(device: &Device) -> PassageBatch {
    let byte = |at: usize| (at * 7919 % 256) as i64;
    let texts: Vec<Vec<i64>> =
        (0..PASSAGES).map(|start| (0..128).map(|at| byte(start * 128 + at)).collect()).collect();
    let next: Vec<i64> = (1..=PASSAGES * 128).map(byte).collect();
    PassageBatch {
        texts: Tokens::new("text", &texts, device).expect("tokens"),
        next: Tensor::from_data(next.as_slice(), device),
    }
}

/// Samples per second of the trainer's step on a batch of so many.
fn rate_on<T: Trial>(
    hyperparameters: &str,
    records: usize,
    batch: impl Fn(&Device) -> BatchOf<T>,
) -> Rates {
    salamander_train::threads::join(None);
    let device = Device::flex().autodiff();
    let dropout = std::env::var("DROPOUT").map(|p| format!("dropout: {p}"));
    let text = dropout.unwrap_or_else(|_| hyperparameters.to_string());
    let text = format!("hyperparameters: {{{text}}}");
    let experiment = Experiment::parse(&text, &[]).expect("valid");
    let step = training_step::<T>(&experiment, &device, records, batch(&device));
    rates(records as f64, TIME, step)
}
