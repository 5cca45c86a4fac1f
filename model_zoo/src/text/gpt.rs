//! A small GPT on the bytes of texts: each byte is guessed from those before it, and a text can be gone on with.

use std::path::Path;

use burn::tensor::{FloatDType, IndexingUpdateOp};
use salamander::data::Row;
use salamander::models::gpt::{Gpt, GptConfig, Sampling};
use salamander::ops;
use salamander::prelude::*;
use salamander::run::TrainedModel;
use salamander::train::example::{Batch, DecodeError, Example, ExampleContext, InputSpec, Packed};
use salamander::train::{build, device, weights};

/// The most bytes of a passage that are read; the last one is only guessed.
const BYTES: usize = 129;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0)]
    learning_rate: f64,
    #[hparam(default = 0.1, min = 0.0)]
    weight_decay: f64,
    /// Steps in which the rate rises; then it falls along a cosine.
    #[hparam(default = 100)]
    warmup: u64,
    #[hparam(default = 384, min = 1)]
    width: usize,
    #[hparam(default = 6, min = 1)]
    heads: usize,
    #[hparam(default = 6, min = 1)]
    layers: usize,
    #[hparam(default = 0.2, min = 0.0, max = 1.0)]
    dropout: f64,
}

/// The bytes of a passage, from the column `text`.
pub struct Passage(Vec<u8>);

/// Passages without their last bytes, and for each byte the one after it.
#[derive(Clone, Debug)]
pub struct PassageBatch {
    /// What is seen.
    pub texts: Tokens,
    /// What is guessed.
    pub next: Tensor<1, Int>,
}

impl Batch for PassageBatch {
    fn records(&self) -> usize {
        self.texts.records()
    }

    fn cast(self, _: FloatDType) -> Self {
        self
    }
}

impl Example for Passage {
    type Batch = PassageBatch;
    const PACKED: bool = true;
    const INPUTS: &'static [InputSpec] = &[InputSpec {
        field: "text",
        columns: &["text"],
        datatype: "BYTES",
        shape: &[],
        ragged: false,
        optional: false,
    }];

    fn decode(row: &Row<'_>, _: &ExampleContext) -> Result<Self, DecodeError> {
        let wrong = |reason: String| DecodeError::new("text", reason);
        let text = row.text("text").map_err(|error| wrong(error.to_string()))?;
        match text.len() {
            0 | 1 => Err(wrong("it has no two bytes, of which one could be guessed".to_string())),
            length => Ok(Self(text.as_bytes()[..length.min(BYTES)].to_vec())),
        }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        self.0.pack(out);
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        Packed::unpack(bytes).map(Self)
    }

    fn collate(
        passages: &[Self],
        _: &ExampleContext,
        device: &Device,
    ) -> Result<PassageBatch, DecodeError> {
        let ids = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(*byte)).collect::<Vec<i64>>();
        let seen: Vec<_> = passages.iter().map(|Self(text)| ids(&text[..text.len() - 1])).collect();
        let next: Vec<i64> = passages.iter().flat_map(|Self(text)| ids(&text[1..])).collect();
        let texts = Tokens::new("text", &seen, device)?;
        Ok(PassageBatch { texts, next: Tensor::from_data(next.as_slice(), device) })
    }
}

/// The scores of the byte after each byte, of all passages.
pub struct Guesses {
    scores: Tensor<2>,
    /// Where the last byte of each passage is.
    lasts: Tensor<1, Int>,
}

impl Output for Guesses {
    /// The scores of what comes after each passage.
    fn rows(self) -> Tensor<2> {
        self.scores.select(0, self.lasts)
    }

    fn without_autodiff(self) -> Self {
        Self { scores: self.scores.inner(), ..self }
    }
}

/// The model.
#[derive(Module, Debug)]
pub struct GptBytes {
    gpt: Gpt,
}

impl GptBytes {
    /// As a run has left it; its weights are exported into a folder on the way.
    pub fn trained(run: &TrainedModel, export: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let device = device::select("cpu")?.autodiff();
        let fresh: Self = build(run.experiment(), &device)?;
        Ok(weights::load(fresh, &run.export(export)?)?)
    }

    /// A text with bytes after it that are drawn one by one: the same for the same seed. What is no UTF-8 is replaced.
    pub fn go_on(&self, text: &str, how: Sampling, seed: u64) -> Result<String, String> {
        let start: Vec<i64> = text.bytes().map(i64::from).collect();
        let ids = self.gpt.generate(&start, how, &mut Rng::new(seed))?;
        // There are 256 different ones.
        let bytes: Vec<u8> = ids.into_iter().map(|id| id as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Trial for GptBytes {
    const NAME: &str = "gpt_bytes";
    type Hparams = Hp;
    type Example = Passage;
    type Output = Guesses;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let Hp { width, heads, layers, dropout, .. } = cx.hp;
        let config = GptConfig { tokens: 256, places: BYTES - 1, width, heads, layers, dropout };
        Ok(Self { gpt: Gpt::new(&config, &cx.device)? })
    }

    fn forward(&self, batch: &PassageBatch) -> Guesses {
        let mut next = -1;
        let last = |length: &usize| {
            next += *length as i64;
            next
        };
        let lasts: Vec<i64> = batch.texts.lengths.iter().map(last).collect();
        let lasts = Tensor::from_data(lasts.as_slice(), &batch.next.device());
        Guesses { scores: self.gpt.forward(&batch.texts), lasts }
    }

    /// The mean over the bytes of a passage.
    fn loss(&self, output: &Guesses, batch: &PassageBatch) -> Tensor<1> {
        let each = ops::cross_entropy(output.scores.clone(), &batch.next);
        let lengths: Vec<f32> = batch.texts.lengths.iter().map(|length| *length as f32).collect();
        let lengths = Tensor::<1>::from_data(lengths.as_slice(), &each.device()).cast(each.dtype());
        let sums = lengths.zeros_like();
        sums.select_assign(0, batch.texts.rows.clone(), each, IndexingUpdateOp::Add) / lengths
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adamw(hp.learning_rate).weight_decay(hp.weight_decay)
    }

    fn groups(_: &Hp) -> Vec<ParamGroup> {
        let plain = ["*.bias", "*.gamma", "*.beta", "gpt.embeddings.*"];
        vec![ParamGroup::of(plain).weight_decay(0.0)]
    }

    fn schedule(hp: &Hp) -> Schedule {
        let curve = Curve::Cosine { over: None, floor: 0.1 };
        Schedule { warmup: hp.warmup, curve, ..Schedule::default() }
    }

    fn metrics(&self, output: &Guesses, batch: &PassageBatch) -> Metrics {
        accuracy(&output.scores, &batch.next)
    }
}
