//! A small GPT (<https://arxiv.org/abs/2005.14165>): a decoder whose tokens look back only, whose table of tokens is
//! its last layer too, and which goes on with a text.
//!
//! ```
//! use burn::tensor::Device;
//! use salamander_core::seed::Rng;
//! use salamander_models::gpt::{Gpt, GptConfig, Sampling};
//!
//! let device = Device::flex();
//! let config = GptConfig { tokens: 256, places: 16, width: 32, heads: 4, layers: 2, dropout: 0.0 };
//! let model = Gpt::new(&config, &device)?;
//! let how = Sampling { temperature: 0.8, top_k: Some(40), count: 5 };
//! let text = model.generate(&[b'T' as i64, b'o' as i64], how, &mut Rng::new(1))?;
//! assert_eq!(text.len(), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use burn::module::Module;
use burn::nn::Initializer;
use burn::tensor::Device;
use burn::tensor::Tensor;
use salamander_core::seed::Rng;
use salamander_kernels::layers::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig,
};
use salamander_kernels::ops::{self, PackedAttention, packed_attention};
use salamander_train::example::Tokens;

/// Sizes of a [`Gpt`].
#[derive(Clone, Debug, PartialEq)]
pub struct GptConfig {
    /// Different tokens; 256 for bytes.
    pub tokens: usize,
    /// The most tokens that are looked at together.
    pub places: usize,
    /// Columns of every layer.
    pub width: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// The share of values that is dropped in training.
    pub dropout: f64,
}

/// The decoder.
#[derive(Module, Debug)]
pub struct Gpt {
    embeddings: Tables,
    layers: Vec<GptLayer>,
    norm: LayerNorm,
    dropout: Dropout,
    places: usize,
}

/// Rows of tokens and places.
#[derive(Module, Debug)]
pub struct Tables {
    token: Embedding,
    place: Embedding,
}

/// Attention to what came before, then two linear layers, both beside a shortcut.
#[derive(Module, Debug)]
pub struct GptLayer {
    norm1: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Dropout,
    heads: usize,
}

fn linear(from: usize, to: usize, std: f64, device: &Device) -> Linear {
    let initializer = Initializer::Normal { mean: 0.0, std };
    let mut layer = LinearConfig::new(from, to).with_initializer(initializer).init(device);
    layer.bias = Some(Initializer::Zeros.init([to], device));
    layer
}

impl GptLayer {
    fn new(config: &GptConfig, device: &Device) -> Self {
        let width = config.width;
        // What is added to the shortcut grows with the layers.
        let small = 0.02 / (2.0 * config.layers as f64).sqrt();
        let norm = || LayerNormConfig::new(width).init(device);
        Self {
            norm1: norm(),
            query: linear(width, width, 0.02, device),
            key: linear(width, width, 0.02, device),
            value: linear(width, width, 0.02, device),
            out: linear(width, width, small, device),
            norm2: norm(),
            up: linear(width, 4 * width, 0.02, device),
            down: linear(4 * width, width, small, device),
            dropout: DropoutConfig::new(config.dropout).init(),
            heads: config.heads,
        }
    }

    fn forward(&self, x: Tensor<2>, lengths: &Arc<[usize]>) -> Tensor<2> {
        let how = PackedAttention {
            lengths: Arc::clone(lengths),
            heads: self.heads,
            causal: true,
            dropout: if self.dropout.is_active(&x) { self.dropout.prob } else { 0.0 },
        };
        let y = self.norm1.forward(x.clone());
        let [query, key, value] =
            [&self.query, &self.key, &self.value].map(|linear| linear.forward(y.clone()));
        let seen = self.out.forward(packed_attention(query, key, value, &how));
        let x = x + self.dropout.forward(seen);
        let y = self.down.forward(self.up.forward_gelu(self.norm2.forward(x.clone())));
        x + self.dropout.forward(y)
    }
}

impl Gpt {
    /// With fresh parameters; an error says which sizes do not fit.
    pub fn new(config: &GptConfig, device: &Device) -> Result<Self, String> {
        let GptConfig { tokens, places, width, heads, layers, dropout } = config.clone();
        if [tokens, places, width, heads].contains(&0) {
            return Err("a size is zero".to_string());
        }
        if !width.is_multiple_of(heads) {
            return Err(format!("{heads} heads do not divide a width of {width}"));
        }
        let table = |rows| {
            let initializer = Initializer::Normal { mean: 0.0, std: 0.02 };
            EmbeddingConfig::new(rows, width).with_initializer(initializer).init(device)
        };
        Ok(Self {
            embeddings: Tables { token: table(tokens), place: table(places) },
            layers: (0..layers).map(|_| GptLayer::new(config, device)).collect(),
            norm: LayerNormConfig::new(width).init(device),
            dropout: DropoutConfig::new(dropout).init(),
            places,
        })
    }

    /// The most tokens that are looked at together.
    pub fn places(&self) -> usize {
        self.places
    }

    /// For each token the scores of the one after it, `[tokens, different tokens]`.
    ///
    /// # Panics
    /// If a text is longer than the model's places.
    pub fn forward(&self, texts: &Tokens) -> Tensor<2> {
        let longest = texts.lengths.iter().copied().max().unwrap_or(0);
        assert!(longest <= self.places, "{longest} tokens are more than {} places", self.places);
        let Tables { token, place } = &self.embeddings;
        let x = token.rows(texts.ids.clone()) + place.rows(texts.places.clone());
        let x = self.dropout.forward(x);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, &texts.lengths));
        ops::linear(self.norm.forward(x), token.weight.val().transpose(), None)
    }

    /// A text with tokens after it that are drawn one by one.
    pub fn generate(
        &self,
        start: &[i64],
        how: Sampling,
        rng: &mut Rng,
    ) -> Result<Vec<i64>, String> {
        if start.is_empty() {
            return Err("a text to go on with has at least one token".to_string());
        }
        let known = self.embeddings.token.weight.dims()[0] as i64;
        if let Some(id) = start.iter().find(|id| !(0..known).contains(*id)) {
            return Err(format!("the token {id} is none of the model's {known}"));
        }
        let plain = self.valid();
        let device = plain.norm.gamma.val().device();
        let mut text = start.to_vec();
        for _ in 0..how.count {
            let seen = text[text.len().saturating_sub(self.places)..].to_vec();
            let last = seen.len() - 1;
            let tokens =
                Tokens::new("text", &[seen], &device).map_err(|error| error.to_string())?;
            let scores = plain.forward(&tokens).narrow(0, last, 1);
            let scores: Vec<f32> = scores.into_data().iter::<f32>().collect();
            text.push(how.draw(&scores, rng.uniform()) as i64);
        }
        Ok(text)
    }
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Below one the likely ones are drawn more often; zero takes the most likely one always.
    pub temperature: f64,
    /// Only so many of the most likely ones are drawn.
    pub top_k: Option<usize>,
    /// Tokens to draw.
    pub count: usize,
}

impl Sampling {
    /// The number of a score, drawn by a number from 0 to 1.
    fn draw(&self, scores: &[f32], drawn: f64) -> usize {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        order.truncate(self.top_k.unwrap_or(order.len()).max(1));
        let Some(first) = order.first().copied().filter(|_| self.temperature > 0.0) else {
            return order.first().copied().unwrap_or(0);
        };
        let weight = |at: &usize| (f64::from(scores[*at] - scores[first]) / self.temperature).exp();
        let mut left = drawn * order.iter().map(weight).sum::<f64>();
        for at in &order {
            left -= weight(at);
            if left < 0.0 {
                return *at;
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_temperature_and_the_most_likely() {
        let scores = [0.0, 2.0, 1.0, -5.0];
        let check = |temperature, top_k, drawn, expected| {
            let how = Sampling { temperature, top_k, count: 1 };
            assert_eq!(how.draw(&scores, drawn), expected, "{how:?} {drawn}");
        };
        check(0.0, None, 0.99, 1);
        check(1.0, Some(1), 0.99, 1);
        check(1.0, None, 0.0, 1);
        check(1.0, Some(2), 0.999, 2);
        check(1.0, None, 0.9999, 3);
        check(100.0, None, 0.6, 0);
    }

    #[test]
    fn a_token_does_not_see_what_comes_after_it() {
        let device = Device::flex();
        let config =
            GptConfig { tokens: 9, places: 8, width: 8, heads: 2, layers: 2, dropout: 0.0 };
        let model = Gpt::new(&config, &device).expect("sizes fit");
        let scores = |texts: &[Vec<i64>]| -> Vec<f32> {
            let tokens = Tokens::new("text", texts, &device).expect("tokens");
            model.forward(&tokens).into_data().iter().collect()
        };
        let (short, long) = (scores(&[vec![1, 2, 3]]), scores(&[vec![1, 2, 3, 4, 5], vec![7]]));
        for (a, b) in short.iter().zip(&long) {
            assert!((a - b).abs() < 1e-5, "{a} and {b}");
        }
        let how = Sampling { temperature: 1.0, top_k: None, count: 1 };
        let go_on = |start: &[i64]| model.generate(start, how, &mut Rng::new(1));
        assert_eq!(go_on(&[3, 9]), Err("the token 9 is none of the model's 9".to_string()));
        assert!(go_on(&[-1]).is_err() && go_on(&[]).is_err());
        assert_eq!(go_on(&[8; 12]).map(|text| text.len()), Ok(13), "only the last places are seen");
        let wrong = GptConfig { heads: 3, ..config };
        assert_eq!(
            Gpt::new(&wrong, &device).err().as_deref(),
            Some("3 heads do not divide a width of 8")
        );
    }
}
