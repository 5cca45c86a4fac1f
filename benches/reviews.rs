//! A model of Hugging Face, fine-tuned for an epoch on texts of two columns by `model_zoo/text/bert.yaml`, and by
//! transformers' Trainer with the same settings: the validation accuracy of each seed, and their mean.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench reviews -- MODEL REVIEWS SEED..`; `REVIEWS` is a
//! folder with `train.csv` and `valid.csv`, as `salamander data fetch reviews` writes them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use benches::{PythonPeer, Record, as_program};
use serde_json::Value;

const EPOCHS: &str = "1";

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(code) = as_program() {
        return Ok(code);
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [model, reviews, seeds @ ..] = words.as_slice() else {
        println!("say the folders of a model and of reviews, and seeds: see benches/reviews.rs");
        return Ok(ExitCode::SUCCESS);
    };
    // Python and runs have other current folders.
    let [model, reviews] = [model, reviews].map(|path| Path::new(path).canonicalize());
    let (model, reviews) = (model?, reviews?);
    let peer = PythonPeer::find("reviews.py", "torch, transformers, accelerate");
    let record = Record::begin("reviews");
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for seed in seeds {
        let (found, seconds) = fine_tuned(&model, &reviews, seed)?;
        ours.push(found);
        let files = ["train.csv", "valid.csv"].map(|file| reviews.join(file).display().to_string());
        let model = model.display().to_string();
        let begun = Instant::now();
        let arguments = [&model, &files[0], &files[1], seed].map(String::as_str);
        let other =
            peer.as_ref().and_then(|peer| peer.measure(&[&arguments[..], &[EPOCHS]].concat()));
        theirs.extend(other);
        let other = other.unwrap_or(f64::NAN);
        println!(
            "seed {seed}: accuracy {found:.4} in {seconds:.0} s, Trainer {other:.4} in {:.0} s",
            begun.elapsed().as_secs_f64()
        );
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let (ours, theirs) = (mean(&ours), mean(&theirs));
    println!("mean of {} seeds: accuracy {ours:.4}, Trainer {theirs:.4}", seeds.len());
    record.figure("accuracy", ("", "more"), ours, Some(theirs));
    Ok(ExitCode::SUCCESS)
}

/// The validation accuracy after an epoch, and the seconds of the whole run.
fn fine_tuned(model: &Path, reviews: &Path, seed: &str) -> Result<(f64, f64), Box<dyn Error>> {
    let out = tempfile::tempdir()?;
    let experiment: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "model_zoo", "text", "bert.yaml"].iter().collect();
    let sets = [
        format!("data.training={}", reviews.join("train.csv").display()),
        format!("data.validation={}", reviews.join("valid.csv").display()),
        format!("hyperparameters.bert_type={}", model.display()),
        format!("searcher.max_length={{epochs: {EPOCHS}}}"),
        format!("reproducibility.experiment_seed={seed}"),
        "checkpoint_policy=none".to_string(),
    ];
    let begun = Instant::now();
    let mut train = Command::new(std::env::current_exe()?);
    train.arg("train").arg(experiment).arg("--json").arg("--out").arg(out.path());
    for set in &sets {
        train.args(["--set", set]);
    }
    let ended = train.output()?;
    if !ended.status.success() {
        return Err(String::from_utf8_lossy(&ended.stderr).into());
    }
    let printed = String::from_utf8(ended.stdout)?;
    let summary: Value = serde_json::from_str(printed.lines().last().ok_or("no summary")?)?;
    let accuracy = summary["metrics"]["validation"]["accuracy"].as_f64().ok_or("no accuracy")?;
    Ok((accuracy, begun.elapsed().as_secs_f64()))
}
