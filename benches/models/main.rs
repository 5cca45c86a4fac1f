//! The models of `salamander-models` beside Python's libraries: the same logits, tokens and losses from the same
//! weights, and the same logits again from what we export, loaded by transformers and torchvision.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p benches --bench models -- FOLDER KEY=PATH..`, with the keys of
//! `benches/peers/models.py`. Without keys the cases that the folder has already are compared.
//!
//! # Layout
//! - `texts`: BERT and RoBERTa; `pictures`: ResNet and MobileNetV2; `gpt`: 500 steps of a GPT
//! - `follow`: steps of training and how far their losses are from Python's

mod follow;
mod gpt;
mod pictures;
mod texts;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::PythonPeer;
use serde_json::Value;

/// The allocator of the program `salamander`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How far logits may be from Python's.
const LOGITS_WITHIN: f32 = 1e-4;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    model_zoo::memory::keep();
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [folder, keys @ ..] = words.as_slice() else {
        println!("say a folder, and where weights and texts are: see benches/models/main.rs");
        return Ok(ExitCode::SUCCESS);
    };
    let Some(peer) = PythonPeer::find("models.py", "torch, torchvision, transformers") else {
        return Ok(ExitCode::SUCCESS);
    };
    if !keys.is_empty() {
        let make = ["make".to_string(), folder.clone()].into_iter().chain(keys.iter().cloned());
        if !peer.run(make) {
            return Err("models.py make failed".into());
        }
    }
    let mut good = true;
    for case in cases(Path::new(folder))? {
        good &= compare(&case)?;
    }
    good &= peer.run(["check".to_string(), folder.clone()]);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folders of cases, by name.
fn cases(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.join("expected.json").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a case is as near to Python's as it has to be.
fn compare(case: &Path) -> Result<bool, Box<dyn Error>> {
    let expected = std::fs::read(case.join("expected.json"))?;
    let kind: Value = serde_json::from_slice(&expected)?;
    match kind["kind"].as_str() {
        Some("text") => texts::compare(case, &expected),
        Some("picture") => pictures::compare(case, &expected),
        Some("gpt") => gpt::compare(case, &expected),
        _ => Err(format!("{}: expected.json has a kind that is not known", case.display()).into()),
    }
}

/// The last part of a path, for the table.
fn name(case: &Path) -> String {
    case.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The largest difference between what was found and what Python has.
fn largest_difference(found: &[f32], expected: &[Vec<f32>]) -> f32 {
    let expected = expected.concat();
    assert_eq!(found.len(), expected.len(), "as many logits as Python has");
    let differences = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs());
    // A value that is none is a difference too.
    differences.fold(0.0, |most, difference| if difference <= most { most } else { difference })
}
