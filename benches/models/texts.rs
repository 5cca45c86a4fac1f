//! BERT and RoBERTa beside transformers.

use std::error::Error;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use model_zoo::text::Review;
use salamander::models::bert::{self, BertClassifier, BertConfig, Head, Tokenizer, Tokens};
use salamander_core::optimizer::Optimizer;
use salamander_train::example::{AssetFiles, Assets, Example};
use serde::Deserialize;

use crate::{LOGITS_WITHIN, follow, largest_difference, name};

/// The most tokens of a text.
const LENGTH: usize = 128;

/// How far a loss may be from PyTorch's, as a part of it.
const LOSSES_WITHIN: f32 = 1e-3;

#[derive(Deserialize)]
struct TextCase {
    texts: Vec<String>,
    ids: Vec<Vec<i64>>,
    compared: Vec<String>,
    logits: Vec<Vec<f32>>,
    labels: Vec<i64>,
    rate: f64,
    losses: Vec<f32>,
}

pub(crate) fn compare(folder: &Path, expected: &[u8]) -> Result<bool, Box<dyn Error>> {
    let expected: TextCase = serde_json::from_slice(expected)?;
    let config = BertConfig::parse(&std::fs::read(folder.join("config.json"))?)?;
    let tokenizer = Tokenizer::parse(&std::fs::read(folder.join("tokenizer.json"))?, LENGTH)?;
    let others = other_tokens(&tokenizer, &expected)?;
    let device = Device::flex().autodiff();
    let fresh = BertClassifier::new(&config, expected.logits[0].len(), &device);
    let (model, _) = fresh.load(folder, Head::There)?;
    let apart =
        largest_difference(&logits(&model, &tokenizer, &expected.compared)?, &expected.logits);
    export(&model, &config, folder)?;
    let losses = ten_losses(model, &tokenizer, &expected)?;
    let off = follow::apart(&losses, &expected.losses);
    println!(
        "{:<14} ours: logits differ by {apart:.1e} at most, {others} of {} texts by tokens, \
         losses of {} steps by {off:.1e} of themselves",
        name(folder),
        expected.texts.len(),
        losses.len()
    );
    Ok(apart <= LOGITS_WITHIN && others == 0 && off <= LOSSES_WITHIN)
}

/// Texts whose ids are not those of Python.
fn other_tokens(tokenizer: &Tokenizer, expected: &TextCase) -> Result<usize, String> {
    let mut others = 0;
    for (text, ids) in expected.texts.iter().zip(&expected.ids) {
        let found = tokenizer.encode(text)?;
        if &found != ids {
            others += 1;
            println!("other tokens: {text:?}\n  {found:?}\n  {ids:?}");
        }
    }
    Ok(others)
}

fn tokens(
    tokenizer: &Tokenizer,
    texts: &[String],
    device: &Device,
) -> Result<Tokens, Box<dyn Error>> {
    let ids = texts.iter().map(|text| tokenizer.encode(text)).collect::<Result<Vec<_>, _>>()?;
    Ok(Tokens::new("text", &ids, device)?)
}

fn logits(
    model: &BertClassifier,
    tokenizer: &Tokenizer,
    texts: &[String],
) -> Result<Vec<f32>, Box<dyn Error>> {
    let (plain, device) = (model.valid(), Device::flex());
    let mut found = Vec::new();
    for texts in texts.chunks(32) {
        let logits = plain.forward(&tokens(tokenizer, texts, &device)?);
        found.extend(logits.into_data().iter::<f32>());
    }
    Ok(found)
}

fn ten_losses(
    model: BertClassifier,
    tokenizer: &Tokenizer,
    expected: &TextCase,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let count = expected.labels.len();
    let batch = tokens(tokenizer, &expected.compared[..count], &device)?;
    let labels = TensorData::new(expected.labels.clone(), [count]);
    let labels = Tensor::<1, Int>::from_data(labels, &device);
    let steps = expected.losses.iter();
    let scores = |model: &BertClassifier, _| (model.forward(&batch), labels.clone());
    Ok(follow::losses(model, Optimizer::sgd(expected.rate), steps, scores)?)
}

/// What `salamander export --format huggingface` writes.
fn export(
    model: &BertClassifier,
    config: &BertConfig,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let classes = ["a", "b", "c"].map(String::from);
    std::fs::write(folder.join("classes.txt"), classes.join("\n"))?;
    let files = AssetFiles::find(Review::ASSETS, &[folder])?;
    let assets = Assets::load(Review::ASSETS, files)?;
    Ok(bert::export(model, config, &classes, &assets, &folder.join("ours"))?)
}
