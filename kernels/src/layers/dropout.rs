//! The dropout layer.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Flag, Module, ModuleDisplay, Param};
use burn::nn as burns;
use burn::tensor::Tensor;

use crate::ops::dropout;

/// Configuration of a [`Dropout`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct DropoutConfig {
    /// The probability that a value is set to zero in training.
    pub prob: f64,
}

impl DropoutConfig {
    /// The layer.
    pub fn init(&self) -> Dropout {
        burns::DropoutConfig::new(self.prob).init().into()
    }
}

/// Sets values to zero at random in training.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Dropout {
    /// The probability that a value is set to zero in training.
    pub prob: f64,
    /// Whether the layer is in training at all; freezing it clears this.
    pub training: Param<Flag>,
}

impl Dropout {
    /// Applies the layer; outside of training it changes nothing.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match self.is_active(&input) {
            true => dropout(input, self.prob),
            false => input,
        }
    }

    /// Whether it would change this tensor.
    pub fn is_active<const D: usize>(&self, input: &Tensor<D>) -> bool {
        self.training.is_enabled() && input.device().is_autodiff() && self.prob != 0.0
    }
}

impl From<burns::Dropout> for Dropout {
    fn from(layer: burns::Dropout) -> Self {
        Self { prob: layer.prob, training: layer.training }
    }
}

impl ModuleDisplay for Dropout {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content.add("prob", &self.prob);
        match self.training.is_enabled() {
            true => content.optional(),
            false => content.add("training", &self.training).optional(),
        }
    }
}
