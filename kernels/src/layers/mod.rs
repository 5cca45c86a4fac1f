//! Layers with Burn's names, configurations, parameter names and initial values, on this crate's operations.
//!
//! Weights saved by Burn's layers load into these and the other way round.

mod attention;
mod avg_pool2d;
mod batch_norm;
mod conv2d;
mod dropout;
mod embedding;
mod encoder;
mod layer_norm;
mod linear;
mod max_pool2d;

pub use attention::{MhaInput, MhaOutput, MultiHeadAttention, MultiHeadAttentionConfig};
pub use avg_pool2d::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool2d, AvgPool2dConfig};
pub use batch_norm::{BatchNorm, BatchNormConfig};
pub use conv2d::{Conv2d, Conv2dConfig};
pub use dropout::{Dropout, DropoutConfig};
pub use embedding::{Embedding, EmbeddingConfig};
pub use encoder::{
    PositionWiseFeedForward, PositionWiseFeedForwardConfig, TransformerEncoder,
    TransformerEncoderConfig, TransformerEncoderInput, TransformerEncoderLayer,
};
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use linear::{Linear, LinearConfig};
pub use max_pool2d::{MaxPool2d, MaxPool2dConfig};

use burn::module::{Content, DisplaySettings, Module};
use burn::nn::PaddingConfig2d;
use burn::tensor::Tensor;

/// `max(x, 0)` as a layer.
#[derive(Module, Debug, Default)]
pub struct Relu;

impl Relu {
    /// The layer.
    pub fn new() -> Self {
        Self {}
    }

    /// Applies it.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        crate::ops::relu(input)
    }
}

/// GELU as a layer.
#[derive(Module, Debug, Default)]
pub struct Gelu {
    /// Whether to approximate it by a hyperbolic tangent, which has no kernel.
    pub approximate: bool,
}

impl Gelu {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The layer with the approximation by a hyperbolic tangent.
    pub fn new_approximate() -> Self {
        Self { approximate: true }
    }

    /// Applies it.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match self.approximate {
            true => burn::tensor::activation::gelu_approximate(input),
            false => crate::ops::gelu(input),
        }
    }
}

/// A layer's attributes are shown in one line.
fn on_one_line() -> Option<DisplaySettings> {
    DisplaySettings::new().with_new_line_after_attribute(false).optional()
}

/// What a pooling layer shows of its window.
fn window(
    content: Content,
    size: [usize; 2],
    stride: [usize; 2],
    pad: &PaddingConfig2d,
) -> Content {
    content
        .add("kernel_size", &format!("{size:?}"))
        .add("stride", &format!("{stride:?}"))
        .add_debug_attribute("padding", pad)
}

/// Padding before and after, per axis, by the rules of Burn's layers.
fn padding(
    config: &PaddingConfig2d,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
) -> [(usize, usize); 2] {
    match config {
        PaddingConfig2d::Valid => [(0, 0); 2],
        PaddingConfig2d::Explicit(top, left, bottom, right) => [(*top, *bottom), (*left, *right)],
        PaddingConfig2d::Same => [0, 1].map(|axis| {
            let windows = size[axis].div_ceil(stride[axis]);
            let needed = windows.saturating_sub(1) * stride[axis] + kernel[axis];
            // An odd one goes to the end, as ONNX has it.
            let total = if windows == 0 { 0 } else { needed.saturating_sub(size[axis]) };
            (total / 2, total - total / 2)
        }),
    }
}
