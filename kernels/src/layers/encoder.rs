//! The transformer's encoder.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::{self as burns, Initializer};
use burn::tensor::{Bool, Device, Tensor};

use super::{
    Dropout, DropoutConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig, MhaInput,
    MultiHeadAttention, MultiHeadAttentionConfig,
};

/// Configuration of a [`TransformerEncoder`], as Burn's of this name; the activation is always GELU.
#[derive(Config, Debug)]
pub struct TransformerEncoderConfig {
    /// Columns of the input and of the output.
    pub d_model: usize,
    /// Columns between the two linear layers.
    pub d_ff: usize,
    /// Independent blocks of columns in the attention.
    pub n_heads: usize,
    /// How many layers.
    pub n_layers: usize,
    /// The probability that a value is dropped in training.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Whether to normalise in front of attention and linear layers instead of behind them.
    #[config(default = false)]
    pub norm_first: bool,
    /// Whether weights of the attention may sum to less than one.
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// How parameters start.
    #[config(
        default = "burns::transformer::TransformerEncoderConfig::new(1, 1, 1, 1).initializer"
    )]
    pub initializer: Initializer,
    /// Keeps the divisor of normalisations from zero.
    #[config(default = 1e-5)]
    pub layer_norm_eps: f64,
}

impl TransformerEncoderConfig {
    /// The encoder with its first parameters, which are those of Burn's.
    pub fn init(&self, device: &Device) -> TransformerEncoder {
        TransformerEncoder {
            layers: (0..self.n_layers)
                .map(|_| TransformerEncoderLayer::new(self, device))
                .collect(),
            d_model: self.d_model,
            d_ff: self.d_ff,
            n_heads: self.n_heads,
            n_layers: self.n_layers,
            dropout: self.dropout,
            norm_first: self.norm_first,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

/// Layers of attention and linear layers, one behind the other.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// Columns of the input and of the output.
    pub d_model: usize,
    /// Columns between the two linear layers.
    pub d_ff: usize,
    /// Independent blocks of columns in the attention.
    pub n_heads: usize,
    /// How many layers.
    pub n_layers: usize,
    /// The probability that a value is dropped in training.
    pub dropout: f64,
    /// Whether to normalise in front of attention and linear layers instead of behind them.
    pub norm_first: bool,
    /// Whether weights of the attention may sum to less than one.
    pub quiet_softmax: bool,
}

/// What a [`TransformerEncoder`] is applied to.
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput {
    tensor: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
}

impl TransformerEncoderInput {
    /// `[batch, places, d_model]`
    pub fn new(tensor: Tensor<3>) -> Self {
        Self { tensor, mask_pad: None, mask_attn: None }
    }

    /// Leaves places out: `true` is padding.
    #[must_use]
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// Leaves pairs of places out: `true` does not count.
    #[must_use]
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }
}

impl TransformerEncoder {
    /// Applies all layers.
    pub fn forward(&self, input: TransformerEncoderInput) -> Tensor<3> {
        let TransformerEncoderInput { tensor, mask_pad, mask_attn } = input;
        let next = |x, layer: &TransformerEncoderLayer| {
            layer.forward(x, mask_pad.clone(), mask_attn.clone())
        };
        self.layers.iter().fold(tensor, next)
    }
}

/// Attention and two linear layers, each beside a way around it.
#[derive(Module, Debug)]
pub struct TransformerEncoderLayer {
    /// The attention.
    pub mha: MultiHeadAttention,
    /// The linear layers.
    pub pwff: PositionWiseFeedForward,
    /// Normalises around the linear layers.
    pub norm_1: LayerNorm,
    /// Normalises around the attention.
    pub norm_2: LayerNorm,
    /// Drops what the ways around meet.
    pub dropout: Dropout,
    /// Whether to normalise in front.
    pub norm_first: bool,
}

impl TransformerEncoderLayer {
    /// One layer of an encoder.
    pub fn new(config: &TransformerEncoderConfig, device: &Device) -> Self {
        let norm = LayerNormConfig::new(config.d_model).with_epsilon(config.layer_norm_eps);
        Self {
            mha: MultiHeadAttentionConfig::new(config.d_model, config.n_heads)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .with_quiet_softmax(config.quiet_softmax)
                .init(device),
            pwff: PositionWiseFeedForwardConfig::new(config.d_model, config.d_ff)
                .with_initializer(config.initializer.clone())
                .with_dropout(config.dropout)
                .init(device),
            norm_1: norm.init(device),
            norm_2: norm.init(device),
            dropout: DropoutConfig::new(config.dropout).init(),
            norm_first: config.norm_first,
        }
    }

    /// Applies the layer.
    pub fn forward(
        &self,
        x: Tensor<3>,
        mask_pad: Option<Tensor<2, Bool>>,
        mask_attn: Option<Tensor<3, Bool>>,
    ) -> Tensor<3> {
        let asked = if self.norm_first { self.norm_2.forward(x.clone()) } else { x.clone() };
        let mut input = MhaInput::self_attn(asked);
        if let Some(mask) = mask_pad {
            input = input.mask_pad(mask);
        }
        if let Some(mask) = mask_attn {
            input = input.mask_attn(mask);
        }
        let x = x + self.dropout.forward(self.mha.forward(input).context);
        if self.norm_first {
            let inner = self.norm_1.forward(x.clone());
            return x + self.dropout.forward(self.pwff.forward(inner));
        }
        // Burn's order: the first of its norms is the one between attention and linear layers.
        let x = self.norm_1.forward(x);
        let inner = self.dropout.forward(self.pwff.forward(x.clone()));
        self.norm_2.forward(x + inner)
    }
}

/// Configuration of a [`PositionWiseFeedForward`], as Burn's of this name; the activation is always GELU.
#[derive(Config, Debug)]
pub struct PositionWiseFeedForwardConfig {
    /// Columns of the input and of the output.
    pub d_model: usize,
    /// Columns in between.
    pub d_ff: usize,
    /// The probability that a value in between is dropped in training.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// How parameters start.
    #[config(default = "burns::transformer::PositionWiseFeedForwardConfig::new(1, 1).initializer")]
    pub initializer: Initializer,
}

impl PositionWiseFeedForwardConfig {
    /// The layers with their first parameters, which are those of Burn's.
    pub fn init(&self, device: &Device) -> PositionWiseFeedForward {
        let linear = |from, to| {
            LinearConfig::new(from, to).with_initializer(self.initializer.clone()).init(device)
        };
        PositionWiseFeedForward {
            linear_inner: linear(self.d_model, self.d_ff),
            linear_outer: linear(self.d_ff, self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            gelu: Gelu::new(),
        }
    }
}

/// Two linear layers with a GELU in between, for every place by itself.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct PositionWiseFeedForward {
    /// `[d_model, d_ff]`
    pub linear_inner: Linear,
    /// `[d_ff, d_model]`
    pub linear_outer: Linear,
    /// Drops values in between.
    pub dropout: Dropout,
    /// The activation.
    pub gelu: Gelu,
}

impl PositionWiseFeedForward {
    /// Applies the layers to `[..., d_model]`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let inner = match self.gelu.approximate {
            true => self.gelu.forward(self.linear_inner.forward(input)),
            false => self.linear_inner.forward_gelu(input),
        };
        self.linear_outer.forward(self.dropout.forward(inner))
    }
}

impl ModuleDisplay for PositionWiseFeedForward {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model, d_ff] = self.linear_inner.weight.shape().dims();
        content
            .add("d_model", &d_model)
            .add("d_ff", &d_ff)
            .add("prob", &self.dropout.prob)
            .optional()
    }
}

impl ModuleDisplay for TransformerEncoder {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("d_model", &self.d_model)
            .add("d_ff", &self.d_ff)
            .add("n_heads", &self.n_heads)
            .add("n_layers", &self.n_layers)
            .add("dropout", &self.dropout)
            .add("norm_first", &self.norm_first)
            .add("quiet_softmax", &self.quiet_softmax)
            .optional()
    }
}
