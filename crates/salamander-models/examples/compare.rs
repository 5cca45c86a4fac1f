//! Compares a classifier with what Python made of the same texts or pictures:
//! `cargo run --release -p salamander-models --example compare -- FOLDER`, where `tests/fixtures/make.py full` (with
//! transformers) or `tests/fixtures/reference.py` (with numpy) has written the folder.

use std::error::Error;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use salamander_models::bert::{BertClassifier, BertConfig, Head, Tokenizer, Tokens};
use salamander_models::mobilenet::MobileNetV2;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    #[serde(default)]
    texts: Vec<String>,
    #[serde(default)]
    ids: Vec<Vec<i64>>,
    /// Of every so many texts there are logits.
    #[serde(default = "one")]
    every: usize,
    logits: Vec<Vec<f32>>,
}

fn one() -> usize {
    1
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("say the folder")?);
    let expected: Expected = serde_json::from_slice(&std::fs::read(folder.join("expected.json"))?)?;
    let pictures = folder.join("mobilenet_v2.pth");
    let found = match pictures.is_file() {
        true => of_pictures(&pictures, &expected)?,
        false => of_texts(&folder, &expected)?,
    };
    let logits: Vec<f32> = expected.logits.concat();
    let differences = found.iter().zip(&logits).map(|(found, expected)| (found - expected).abs());
    let largest = differences.fold(0f32, f32::max);
    assert_eq!(found.len(), logits.len());
    println!("{} logits, the largest difference is {largest:e}", logits.len());
    Ok(())
}

/// Compares the tokens of all texts, and gives the logits of some.
fn of_texts(folder: &Path, expected: &Expected) -> Result<Vec<f32>, Box<dyn Error>> {
    let config = BertConfig::parse(&std::fs::read(folder.join("config.json"))?)?;
    let tokenizer = Tokenizer::parse(&std::fs::read(folder.join("tokenizer.json"))?, 128)?;
    let mut others = 0;
    for (text, ids) in expected.texts.iter().zip(&expected.ids) {
        let found = tokenizer.encode(text)?;
        if &found != ids {
            others += 1;
            println!("other ids: {text:?}\n  {found:?}\n  {ids:?}");
        }
    }
    println!("{} texts, {others} of them with other ids", expected.texts.len());
    let device = Device::flex();
    let classes = expected.logits.first().map_or(0, Vec::len);
    let model = BertClassifier::new(&config, classes, &device.clone().autodiff());
    let (model, _) = model.load(folder, Head::There)?;
    let model = model.valid();
    let ids: Vec<Vec<i64>> =
        expected.ids.iter().step_by(expected.every).take(expected.logits.len()).cloned().collect();
    let mut found = Vec::new();
    for ids in ids.chunks(32) {
        let tokens = Tokens::new("text", ids, &device)?;
        found.extend(model.forward(&tokens).into_data().iter::<f32>());
    }
    Ok(found)
}

/// The logits of two pictures of waves.
fn of_pictures(weights: &Path, expected: &Expected) -> Result<Vec<f32>, Box<dyn Error>> {
    let device = Device::flex();
    let classes = expected.logits.first().map_or(0, Vec::len);
    let model = MobileNetV2::new(classes, &device.clone().autodiff());
    let (model, _) = model.load(weights, Head::There)?;
    let shape: [usize; 4] = [2, 3, 224, 224];
    let count: usize = shape.iter().product();
    let fan_in = (3 * 224 * 224) as f64;
    let value = |at: usize| {
        // Eight letters has the name "pictures", as Python's script counts them.
        let wave = (at as f64 * 0.37 + 8.0).sin() * 43758.5453;
        let wave = 2.0 * (wave - wave.floor()) - 1.0;
        f64::from((wave * (3.0 / fan_in).sqrt()) as f32) * 200.0
    };
    let values: Vec<f32> = (0..count).map(|at| value(at) as f32).collect();
    let pictures = Tensor::<4>::from_data(TensorData::new(values, shape), &device);
    Ok(model.valid().forward(pictures).into_data().iter::<f32>().collect())
}
