//! A GPT that learns the same passages as PyTorch's: from the same weights, and from weights of its own.

use std::error::Error;
use std::path::Path;

use burn::tensor::{Device, Int, Tensor};
use salamander::models::foreign::{self, Naming};
use salamander::models::gpt::{Gpt, GptConfig};
use salamander_core::optimizer::Optimizer;
use salamander_train::example::Tokens;
use serde::Deserialize;

use crate::{follow, name};

/// How far the loss of the last steps may be from PyTorch's, as a part of it.
const WITHIN: f32 = 0.02;

/// Steps at the end whose losses are averaged.
const LAST: usize = 50;

#[derive(Deserialize)]
struct GptCase {
    sizes: GptSizes,
    /// Of each step, where its passages begin.
    starts: Vec<Vec<usize>>,
    rate: f64,
    losses: Vec<f32>,
}

#[derive(Deserialize)]
struct GptSizes {
    tokens: usize,
    places: usize,
    width: usize,
    heads: usize,
    layers: usize,
}

pub(crate) fn compare(folder: &Path, expected: &[u8]) -> Result<bool, Box<dyn Error>> {
    let expected: GptCase = serde_json::from_slice(expected)?;
    let text = std::fs::read(folder.join("passages.txt"))?;
    let GptSizes { tokens, places, width, heads, layers } = expected.sizes;
    let config = GptConfig { tokens, places, width, heads, layers, dropout: 0.0 };
    let device = Device::flex().autodiff();
    device.seed(1);
    let own = Gpt::new(&config, &device)?;
    let file = folder.join("weights.safetensors");
    let naming = Naming {
        name: &|path| path.replace(".gamma", ".weight").replace(".beta", ".bias"),
        known: &|name| Some(name.to_string()),
        optional: &|_| false,
    };
    let (same, _) = foreign::load(own.clone(), &file, foreign::read(&file)?, &naming)?;
    let theirs = last_mean(&expected.losses);
    let mut good = true;
    for (whose, model) in [("the same", same), ("own", own)] {
        let batches = expected.starts.iter().map(|starts| batch(&text, starts, places, &device));
        let scores = |model: &Gpt, (seen, next): (Tokens, _)| (model.forward(&seen), next);
        let losses = follow::losses(model, Optimizer::adam(expected.rate), batches, scores)?;
        let ours = last_mean(&losses);
        println!(
            "{:<14} ours: from {whose} weights a loss of {ours:.4} in the last {LAST} of {} steps, \
             PyTorch's {theirs:.4}",
            name(folder),
            losses.len()
        );
        good &= (ours - theirs).abs() <= WITHIN * theirs;
    }
    Ok(good)
}

fn last_mean(losses: &[f32]) -> f32 {
    let last = &losses[losses.len().saturating_sub(LAST)..];
    last.iter().sum::<f32>() / last.len() as f32
}

/// Passages without their last bytes, and for each byte the one after it.
fn batch(
    text: &[u8],
    starts: &[usize],
    places: usize,
    device: &Device,
) -> (Tokens, Tensor<1, Int>) {
    let ids = |from: usize| text[from..from + places].iter().map(|byte| i64::from(*byte));
    let seen: Vec<Vec<i64>> = starts.iter().map(|start| ids(*start).collect()).collect();
    let next: Vec<i64> = starts.iter().flat_map(|start| ids(start + 1)).collect();
    let seen = Tokens::new("text", &seen, device).expect("passages have tokens");
    (seen, Tensor::from_data(next.as_slice(), device))
}
