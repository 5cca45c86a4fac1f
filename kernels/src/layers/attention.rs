//! Attention of several heads.

use std::sync::Arc;

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::Initializer;
use burn::nn::attention as burns;
use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, Device, Tensor};

use super::{Dropout, DropoutConfig, Linear, LinearConfig};
use crate::cpu::attention::{Masks, Weighing};
use crate::cpu::dropout::Mask;
use crate::ops::{attention, attention_is_served, draw, masked};

/// Configuration of a [`MultiHeadAttention`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// Columns of the inputs and of the output.
    pub d_model: usize,
    /// Independent blocks of columns.
    pub n_heads: usize,
    /// The probability that a weight is dropped in training.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The score of a masked pair.
    #[config(default = -1.0e4)]
    pub min_float: f64,
    /// Whether weights may sum to less than one (<https://www.evanmiller.org/attention-is-off-by-one.html>).
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// How parameters start.
    #[config(default = "burns::MultiHeadAttentionConfig::new(1, 1).initializer")]
    pub initializer: Initializer,
    /// Whether the keys have a bias.
    #[config(default = true)]
    pub key_bias: bool,
    /// Whether the values have a bias.
    #[config(default = true)]
    pub value_bias: bool,
    /// Whether the queries have a bias.
    #[config(default = true)]
    pub query_bias: bool,
    /// Whether the output has a bias.
    #[config(default = true)]
    pub output_bias: bool,
}

impl MultiHeadAttentionConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    pub fn init(&self, device: &Device) -> MultiHeadAttention {
        let linear = |bias: bool| {
            LinearConfig::new(self.d_model, self.d_model)
                .with_initializer(self.initializer.clone())
                .with_bias(bias)
                .init(device)
        };
        MultiHeadAttention {
            query: linear(self.query_bias),
            key: linear(self.key_bias),
            value: linear(self.value_bias),
            output: linear(self.output_bias),
            dropout: DropoutConfig::new(self.dropout).init(),
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_k: self.d_model / self.n_heads,
            min_float: self.min_float,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

/// Attention of several heads (<https://arxiv.org/abs/1706.03762>).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MultiHeadAttention {
    /// Makes queries.
    pub query: Linear,
    /// Makes keys.
    pub key: Linear,
    /// Makes values.
    pub value: Linear,
    /// Makes the output of what the heads give.
    pub output: Linear,
    /// Drops weights.
    pub dropout: Dropout,
    /// Columns of the inputs and of the output.
    pub d_model: usize,
    /// Independent blocks of columns.
    pub n_heads: usize,
    /// Columns of one head.
    pub d_k: usize,
    /// The score of a masked pair.
    pub min_float: f64,
    /// Whether weights may sum to less than one.
    pub quiet_softmax: bool,
}

/// What a [`MultiHeadAttention`] is applied to.
#[derive(Clone, Debug)]
pub struct MhaInput {
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
}

impl MhaInput {
    /// `[batch, places, d_model]`, whose places ask each other.
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// Who asks, who is asked, and what they answer.
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }

    /// Leaves keys out: `true` is padding.
    #[must_use]
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// Leaves pairs of query and key out: `true` does not count.
    #[must_use]
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }
}

/// What a [`MultiHeadAttention`] gives.
#[derive(Clone, Debug)]
pub struct MhaOutput {
    /// `[batch, queries, d_model]`
    pub context: Tensor<3>,
    weights: Weights,
}

/// The weights, or what they are computed from.
#[derive(Clone, Debug)]
enum Weights {
    Known(Box<Tensor<4>>),
    Open { scores: Box<Scores>, dropout: Option<Mask> },
}

impl MhaOutput {
    /// The weights, `[batch, heads, queries, keys]`. Burn has them as a field; here they are computed when they are
    /// asked for.
    pub fn weights(self) -> Tensor<4> {
        match self.weights {
            Weights::Known(weights) => *weights,
            Weights::Open { scores, dropout } => {
                let weights = softmax(scores.compute(), 3);
                dropout.map_or(weights.clone(), |mask| masked(weights, mask))
            }
        }
    }
}

/// What scores are computed from.
#[derive(Clone, Debug)]
struct Scores {
    query: Tensor<3>,
    key: Tensor<3>,
    heads: usize,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
    min_float: f64,
}

impl Scores {
    /// With Burn's operations.
    fn compute(self) -> Tensor<4> {
        let [batch, queries, columns] = self.query.dims();
        let keys = self.key.dims()[1];
        let key = by_head(self.key, self.heads).transpose();
        let root = ((columns / self.heads) as f32).sqrt();
        let mut scores = by_head(self.query, self.heads).matmul(key).div_scalar(root);
        if let Some(mask) = self.mask_pad {
            scores = scores.mask_fill(mask.reshape([batch, 1, 1, keys]), self.min_float);
        }
        if let Some(mask) = self.mask_attn {
            scores = scores.mask_fill(mask.reshape([batch, 1, queries, keys]), self.min_float);
        }
        scores
    }
}

/// `[batch, heads, places, columns of one head]`
fn by_head(tensor: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, places, columns] = tensor.dims();
    tensor.reshape([batch, places, heads, columns / heads]).swap_dims(1, 2)
}

impl MultiHeadAttention {
    /// Applies the layer.
    ///
    /// # Panics
    /// If the sizes of query, key, value and masks do not fit each other and the layer.
    pub fn forward(&self, input: MhaInput) -> MhaOutput {
        let MhaInput { query, key, value, mask_pad, mask_attn } = input;
        let [batch, queries, _] = query.dims();
        let keys = key.dims()[1];
        assert_eq!(query.dims(), [batch, queries, self.d_model], "the query does not fit");
        assert_eq!(key.dims(), [batch, keys, self.d_model], "the key does not fit");
        assert_eq!(value.dims(), [batch, keys, self.d_model], "the value does not fit");
        if let Some(mask) = &mask_pad {
            assert_eq!(mask.dims(), [batch, keys], "the mask of padding does not fit");
        }
        // One mask for all sequences is as good as one for each.
        let mask_attn = mask_attn.map(|mask| match mask.dims() {
            [1, _, _] => mask.expand([batch, queries, keys]),
            dims => {
                assert_eq!(dims, [batch, queries, keys], "the mask of pairs does not fit");
                mask
            }
        });
        let (query, key) = (self.query.forward(query), self.key.forward(key));
        let value = self.value.forward(value);
        let (heads, min_float) = (self.n_heads, self.min_float);
        let scores = Scores { query, key, heads, mask_pad, mask_attn, min_float };
        let (context, weights) = match self.is_served(&scores, &value) {
            true => self.fused(scores, value),
            false => self.by_tensors(scores, value),
        };
        MhaOutput { context: self.output.forward(context), weights }
    }

    fn is_served(&self, scores: &Scores, value: &Tensor<3>) -> bool {
        let even = self.d_k > 0 && self.d_k * self.n_heads == self.d_model;
        even && !self.quiet_softmax && attention_is_served(&scores.query, &scores.key, value)
    }

    fn fused(&self, scores: Scores, value: Tensor<3>) -> (Tensor<3>, Weights) {
        let active = self.dropout.is_active(&value);
        let dropout = active.then(|| draw(self.dropout.prob, &value.device()));
        let pad = scores.mask_pad.clone().map(bools);
        let attn = scores.mask_attn.clone().map(bools);
        let masks = Masks { pad, attention: attn, fill: self.min_float as f32 };
        let (query, key) = (scores.query.clone(), scores.key.clone());
        let context =
            attention(query, key, value, self.n_heads, Weighing { masks, causal: false, dropout });
        (context, Weights::Open { scores: Box::new(scores), dropout })
    }

    fn by_tensors(&self, scores: Scores, value: Tensor<3>) -> (Tensor<3>, Weights) {
        let shape = scores.query.dims();
        let scores = scores.compute();
        let weights =
            if self.quiet_softmax { quiet_softmax(scores, 3) } else { softmax(scores, 3) };
        let weights = self.dropout.forward(weights);
        let context = weights.clone().matmul(by_head(value, self.n_heads));
        (context.swap_dims(1, 2).reshape(shape), Weights::Known(Box::new(weights)))
    }
}

fn bools<const D: usize>(mask: Tensor<D, Bool>) -> Arc<[bool]> {
    mask.into_data().iter::<bool>().collect()
}

impl ModuleDisplay for MultiHeadAttention {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("d_model", &self.d_model)
            .add("n_heads", &self.n_heads)
            .add("d_k", &self.d_k)
            .add("dropout", &self.dropout.prob)
            .add("min_float", &self.min_float)
            .add("quiet_softmax", &self.quiet_softmax)
            .optional()
    }
}
