//! Compares a classifier with what Python's `transformers` made of the same texts:
//! `cargo run --release --example compare -- FOLDER`, where `tests/fixtures/make.py full` has written the folder.

use std::error::Error;
use std::path::PathBuf;

use burn::module::Module;
use burn::tensor::Device;
use salamander_models::bert::{BertClassifier, BertConfig, Head, Tokenizer, Tokens};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    ids: Vec<Vec<i64>>,
    logits: Vec<Vec<f32>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("say the folder")?);
    let config = BertConfig::parse(&std::fs::read(folder.join("config.json"))?)?;
    let expected: Expected = serde_json::from_slice(&std::fs::read(folder.join("expected.json"))?)?;
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
    let (model, _) = model.load(&folder, Head::There)?;
    let model = model.valid();
    let mut largest = 0f32;
    for (ids, logits) in expected.ids.chunks(32).zip(expected.logits.chunks(32)) {
        let tokens = Tokens::new("text", &ids[..logits.len()], &device)?;
        let found: Vec<f32> = model.forward(&tokens).into_data().iter().collect();
        for (found, expected) in found.iter().zip(logits.iter().flatten()) {
            largest = largest.max((found - expected).abs());
        }
    }
    println!("{} logits, the largest difference is {largest:e}", expected.logits.len() * classes);
    Ok(())
}
