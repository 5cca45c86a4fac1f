//! The encoder: embeddings, and layers in which the tokens of a text look at each other.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::Initializer;
use burn::tensor::activation::gelu_approximate;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use salamander_kernels::layers::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig,
};
use salamander_kernels::ops::{PackedAttention, packed_attention, relu};
use salamander_train::example::Tokens;

use super::BertConfig;

/// How parameters start in training from nothing, as in the originals.
pub(super) fn initializer() -> Initializer {
    Initializer::Normal { mean: 0.0, std: 0.02 }
}

pub(super) fn linear(from: usize, to: usize, device: &Device) -> Linear {
    let mut layer = LinearConfig::new(from, to).with_initializer(initializer()).init(device);
    layer.bias = Some(Initializer::Zeros.init([to], device));
    layer
}

/// Rows of tokens, places and types of text, added up.
#[derive(Module, Debug)]
pub struct Embeddings {
    pub(super) word: Embedding,
    pub(super) position: Embedding,
    pub(super) token_type: Embedding,
    pub(super) norm: LayerNorm,
    pub(super) dropout: Dropout,
    pub(super) first_place: usize,
}

impl Embeddings {
    fn new(config: &BertConfig, device: &Device) -> Self {
        let table = |rows| {
            EmbeddingConfig::new(rows, config.hidden_size)
                .with_initializer(initializer())
                .init(device)
        };
        Self {
            word: table(config.vocab_size),
            position: table(config.max_position_embeddings),
            token_type: table(config.type_vocab_size),
            norm: norm(config, device),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
            first_place: config.first_place(),
        }
    }

    fn forward(&self, at: TokenPlaces) -> Tensor<2> {
        let TokenPlaces { ids, places, types } = at;
        let places = self.position.rows(places.add_scalar(self.first_place as i64));
        let kind = match types {
            Some(types) => self.token_type.rows(types),
            // A text alone is of the first type.
            None => self.token_type.weight.val().narrow(0, 0, 1),
        };
        let x = self.word.rows(ids) + places + kind;
        self.dropout.forward(self.norm.forward(x))
    }
}

/// What is looked up for each token.
struct TokenPlaces {
    ids: Tensor<1, Int>,
    places: Tensor<1, Int>,
    types: Option<Tensor<1, Int>>,
}

impl TokenPlaces {
    fn of(texts: &Tokens) -> Self {
        let Tokens { ids, places, types, .. } = texts.clone();
        Self { ids, places, types }
    }

    /// The same without the record of gradients.
    fn plain(self) -> Self {
        let Self { ids, places, types } = self;
        Self { ids: plain(ids), places: plain(places), types: types.map(plain) }
    }
}

fn norm(config: &BertConfig, device: &Device) -> LayerNorm {
    LayerNormConfig::new(config.hidden_size).with_epsilon(config.layer_norm_eps).init(device)
}

/// Attention within texts, then two linear layers for each token, both beside a shortcut.
#[derive(Module, Debug)]
pub struct Layer {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) attention_output: Linear,
    pub(super) attention_norm: LayerNorm,
    pub(super) intermediate: Linear,
    pub(super) output: Linear,
    pub(super) output_norm: LayerNorm,
    pub(super) attention_dropout: Dropout,
    pub(super) dropout: Dropout,
    pub(super) heads: usize,
    #[module(skip)]
    pub(super) activation: EncoderActivation,
}

/// The function within a layer.
#[derive(Clone, Copy, Debug)]
pub(super) enum EncoderActivation {
    Gelu,
    GeluTanh,
    Relu,
}

impl EncoderActivation {
    /// The one that `config.json` calls so. transformers has several names for the same curves.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "gelu" | "gelu_python" => Some(Self::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" => {
                Some(Self::GeluTanh)
            }
            "relu" => Some(Self::Relu),
            _ => None,
        }
    }
}

impl Layer {
    fn new(config: &BertConfig, device: &Device) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            query: linear(width, width, device),
            key: linear(width, width, device),
            value: linear(width, width, device),
            attention_output: linear(width, width, device),
            attention_norm: norm(config, device),
            intermediate: linear(width, inner, device),
            output: linear(inner, width, device),
            output_norm: norm(config, device),
            attention_dropout: DropoutConfig::new(config.attention_probs_dropout_prob).init(),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
            heads: config.num_attention_heads,
            // Others are refused where the configuration is read.
            activation: EncoderActivation::named(&config.hidden_act)
                .unwrap_or(EncoderActivation::Gelu),
        }
    }

    fn forward(&self, x: Tensor<2>, lengths: &Arc<[usize]>) -> Tensor<2> {
        let active = self.attention_dropout.is_active(&x);
        let how = PackedAttention {
            lengths: Arc::clone(lengths),
            heads: self.heads,
            causal: false,
            dropout: if active { self.attention_dropout.prob } else { 0.0 },
        };
        let [query, key, value] =
            [&self.query, &self.key, &self.value].map(|linear| linear.forward(x.clone()));
        let seen = self.attention_output.forward(packed_attention(query, key, value, &how));
        let x = self.attention_norm.forward(self.dropout.forward(seen) + x);
        let inner = match self.activation {
            EncoderActivation::Gelu => self.intermediate.forward_gelu(x.clone()),
            EncoderActivation::GeluTanh => gelu_approximate(self.intermediate.forward(x.clone())),
            EncoderActivation::Relu => relu(self.intermediate.forward(x.clone())),
        };
        self.output_norm.forward(self.dropout.forward(self.output.forward(inner)) + x)
    }
}

/// The encoder without a head: a row for each token, or an embedding for each text.
#[derive(Module, Debug)]
pub struct Bert {
    pub(super) embeddings: Embeddings,
    pub(super) layers: Vec<Layer>,
    /// Of the first token; RoBERTa's classifiers have none.
    pub(super) pooler: Option<Linear>,
    /// Layers that stay as they are, with the embeddings before them.
    frozen: Option<usize>,
}

impl Bert {
    /// With fresh parameters, which are drawn as those of the originals were.
    pub fn new(config: &BertConfig, device: &Device) -> Self {
        let layer = |_| Layer::new(config, device);
        let pooler = !config.is_roberta();
        Self {
            embeddings: Embeddings::new(config, device),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            pooler: pooler.then(|| linear(config.hidden_size, config.hidden_size, device)),
            frozen: None,
        }
    }

    /// Keeps the embeddings and so many layers as they are: no gradient is computed for them, and they drop nothing.
    #[must_use]
    pub fn freeze(mut self, layers: usize) -> Self {
        self.frozen = Some(layers.min(self.layers.len()));
        self
    }

    /// A row for each token.
    pub fn forward(&self, texts: &Tokens) -> Tensor<2> {
        let (at, lengths) = (TokenPlaces::of(texts), &texts.lengths);
        let trains = self.embeddings.word.weight.val().device().is_autodiff();
        let (x, from) = match self.frozen {
            Some(frozen) if trains => {
                let x = self.embeddings.valid().forward(at.plain());
                let layers = self.layers[..frozen].iter().map(Module::valid);
                let x = layers.fold(x, |x, layer| layer.forward(x, lengths));
                (Tensor::from_inner(x), frozen)
            }
            _ => (self.embeddings.forward(at), 0),
        };
        self.layers[from..].iter().fold(x, |x, layer| layer.forward(x, lengths))
    }

    /// The row of each text's first token.
    pub(super) fn first_rows(&self, texts: &Tokens) -> Tensor<2> {
        self.forward(texts).select(0, texts.firsts.clone())
    }

    /// One row of length one per text, the mean of its tokens: what sentence transformers compare texts by.
    pub fn embed(&self, texts: &Tokens) -> Tensor<2> {
        let rows = self.forward(texts);
        let width = rows.dims()[1];
        let sums = Tensor::zeros([texts.records(), width], &rows.device());
        let sums = sums.select_assign(0, texts.rows.clone(), rows, IndexingUpdateOp::Add);
        // Their direction is that of the means.
        let norm = sums.clone().powi_scalar(2).sum_dim(1).sqrt().clamp_min(1e-12);
        sums / norm
    }
}

/// The same without the record of gradients.
fn plain(values: Tensor<1, Int>) -> Tensor<1, Int> {
    if values.device().is_autodiff() { values.inner() } else { values }
}
