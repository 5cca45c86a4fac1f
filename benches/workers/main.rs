//! Two single-threaded workers with AllReduce, as `train --workers 2` starts them, beside PyTorch's DDP with two
//! processes over Gloo.
//!
//! Ours read records from files; PyTorch's are in memory. `SALAMANDER_PEERS=/path/to/python cargo bench -p benches
//! --bench workers`; words behind `--` choose models. MiniLM needs transformers, the ResNet-18 and MobileNetV2 need
//! torchvision.
//!
//! # Layout
//! - `records`: what each model is trained on; `photos`: ResNet-18 and MobileNetV2 on pictures of 64 x 64

mod photos;
mod records;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::{PythonPeer, Record, as_program_of, median, steps_per_second};
use salamander::{Models, models};

use records::WriteRecords;

const ROUNDS: usize = 3;
const SECONDS: &str = "6";

/// A model of both, and what it is trained by.
struct ComparedModel {
    name: &'static str,
    /// Its name here.
    entrypoint: &'static str,
    hyperparameters: &'static str,
    /// Records of a step.
    batch: u64,
    records: WriteRecords,
    /// Two lengths: a run's start does not count, their difference does.
    steps: [u64; 2],
}

const MODELS: [ComparedModel; 8] = [
    ComparedModel {
        name: "mlp",
        entrypoint: "mnist_mlp",
        hyperparameters: "",
        batch: 64,
        records: records::digits,
        steps: [200, 2200],
    },
    ComparedModel {
        name: "conv16",
        entrypoint: "mnist_conv16",
        hyperparameters: "",
        batch: 64,
        records: records::digits,
        steps: [100, 1300],
    },
    ComparedModel {
        name: "conv32",
        entrypoint: "mnist_conv32",
        hyperparameters: "",
        batch: 64,
        records: records::digits,
        steps: [20, 220],
    },
    ComparedModel {
        name: "resnet20",
        entrypoint: "cifar_resnet20",
        hyperparameters: "",
        batch: 64,
        records: records::pictures,
        steps: [10, 120],
    },
    ComparedModel {
        name: "resnet18",
        entrypoint: "photos",
        hyperparameters: "arch: resnet18",
        batch: 64,
        records: records::photos,
        steps: [4, 34],
    },
    ComparedModel {
        name: "mobilenet_v2",
        entrypoint: "photos",
        hyperparameters: "arch: mobilenet_v2",
        batch: 64,
        records: records::photos,
        steps: [5, 65],
    },
    ComparedModel {
        name: "minilm",
        entrypoint: "bert_reviews",
        hyperparameters: "bert_type: minilm",
        batch: 32,
        records: records::reviews,
        steps: [4, 44],
    },
    ComparedModel {
        name: "gpt",
        entrypoint: "gpt_bytes",
        hyperparameters: "dropout: 0.0",
        batch: 16,
        records: records::passages,
        steps: [2, 22],
    },
];

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = as_program_of(measured_models()) {
        return code;
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let peer = PythonPeer::find("ddp.py", "torch");
    let record = Record::begin("workers");
    println!("two workers of one thread, f32, steps/s (median of {ROUNDS} rounds)");
    println!("{:<14} {:>12} {:>12} {:>8}", "model", "salamander", "ddp (gloo)", "ratio");
    let asked =
        |model: &&ComparedModel| words.is_empty() || words.iter().any(|word| word == model.name);
    for model in MODELS.iter().filter(asked) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = model.write_experiment(folder.path());
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // In turns, so that both see the same weather on the machine.
        for _ in 0..ROUNDS {
            ours.push(steps_per_second(&file, model.steps, &["--workers", "2", "--threads", "1"]));
            theirs.extend(peer.as_ref().and_then(|peer| peer.measure(&[model.name, SECONDS])));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        record.figure(model.name, ("steps/s", "more"), ours, Some(theirs));
        println!("{:<14} {ours:>12.2} {theirs:>12.2} {:>8.2}", model.name, ours / theirs);
    }
    ExitCode::SUCCESS
}

/// Those that are measured.
fn measured_models() -> Models {
    models![
        model_zoo::cifar::resnet20::ResNet20,
        model_zoo::mnist::conv16::Conv16,
        model_zoo::mnist::conv32::Conv32,
        model_zoo::mnist::mlp::Mlp,
        model_zoo::text::bert::BertReviews,
        model_zoo::text::gpt::GptBytes,
        photos::Photos,
    ]
}

impl ComparedModel {
    fn write_experiment(&self, folder: &Path) -> PathBuf {
        let training = (self.records)(folder);
        let Self { entrypoint, hyperparameters, batch, .. } = self;
        let text = format!(
            "entrypoint: {entrypoint}\ndata: {{training: \"{}\"}}\n\
             hyperparameters: {{global_batch_size: {batch}, {hyperparameters}}}\ncheckpoint_policy: none\n\
             searcher: {{metric: loss}}\nreproducibility: {{experiment_seed: 1}}\n",
            training.display()
        );
        let file = folder.join("experiment.yaml");
        std::fs::write(&file, text).expect("written");
        file
    }
}
