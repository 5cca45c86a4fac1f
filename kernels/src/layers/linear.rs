//! The linear layer.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::{self as burns, Initializer, LinearLayout};
use burn::tensor::{Device, Tensor};

use crate::ops::{linear, linear_gelu};

/// Configuration of a [`Linear`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct LinearConfig {
    /// Columns of the input.
    pub d_input: usize,
    /// Columns of the output.
    pub d_output: usize,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// How parameters start.
    #[config(default = "burns::LinearConfig::new(1, 1).initializer")]
    pub initializer: Initializer,
    /// How the weights are stored.
    #[config(default = "LinearLayout::Row")]
    pub layout: LinearLayout,
}

impl LinearConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    pub fn init(&self, device: &Device) -> Linear {
        burns::LinearConfig::new(self.d_input, self.d_output)
            .with_bias(self.bias)
            .with_initializer(self.initializer.clone())
            .with_layout(self.layout)
            .init(device)
            .into()
    }
}

/// `x W + b` over the last axis.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Linear {
    /// `[d_input, d_output]`
    pub weight: Param<Tensor<2>>,
    /// `[d_output]`
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Applies the layer to `[..., d_input]`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(input, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// The same with a GELU behind it, in one operation.
    pub fn forward_gelu<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear_gelu(input, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

impl From<burns::Linear> for Linear {
    fn from(layer: burns::Linear) -> Self {
        Self { weight: layer.weight, bias: layer.bias }
    }
}

impl ModuleDisplay for Linear {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_input, d_output] = self.weight.shape().dims();
        content
            .add("d_input", &d_input)
            .add("d_output", &d_output)
            .add("bias", &self.bias.is_some())
            .optional()
    }
}
