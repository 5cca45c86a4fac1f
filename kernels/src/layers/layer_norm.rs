//! The layer that normalises rows.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::Initializer;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::ops::layer_norm;

/// Configuration of a [`LayerNorm`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct LayerNormConfig {
    /// Columns of the input.
    pub d_model: usize,
    /// Keeps the divisor from zero.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether columns are shifted too.
    #[config(default = true)]
    pub bias: bool,
}

impl LayerNormConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    pub fn init(&self, device: &Device) -> LayerNorm {
        LayerNorm {
            gamma: Initializer::Ones.init([self.d_model], device),
            beta: self.bias.then(|| Initializer::Zeros.init([self.d_model], device)),
            epsilon: self.epsilon,
        }
    }
}

/// Rows to mean zero and variance one, then scaled and shifted by column.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm {
    /// The scales.
    pub gamma: Param<Tensor<1>>,
    /// The shifts.
    pub beta: Option<Param<Tensor<1>>>,
    /// Keeps the divisor from zero.
    pub epsilon: f64,
}

impl LayerNorm {
    /// Applies the layer to `[..., d_model]`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let (gamma, beta) = (self.gamma.val(), self.beta.as_ref().map(Param::val));
        // Half as many bits cannot hold a sum of squares.
        if !matches!(input.dtype(), DType::F16 | DType::BF16) {
            return layer_norm(input, gamma, beta, self.epsilon);
        }
        let (narrow, wide) = (FloatDType::from(input.dtype()), FloatDType::F32);
        let beta = beta.map(|beta| beta.cast(wide));
        layer_norm(input.cast(wide), gamma.cast(wide), beta, self.epsilon).cast(narrow)
    }
}

impl ModuleDisplay for LayerNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon)
            .add("bias", &self.beta.is_some())
            .optional()
    }
}
