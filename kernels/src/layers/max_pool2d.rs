//! The max-pooling layer.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::PaddingConfig2d;
use burn::tensor::Tensor;
use burn::tensor::ops::MaxPoolOptions;

use crate::ops::max_pool2d;

/// Configuration of a [`MaxPool2d`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct MaxPool2dConfig {
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Steps of the window; those of its size unless set.
    #[config(default = "kernel_size")]
    pub strides: [usize; 2],
    /// Padding, which never wins.
    #[config(default = "PaddingConfig2d::Valid")]
    pub padding: PaddingConfig2d,
    /// Distances between the window's taps.
    #[config(default = "[1, 1]")]
    pub dilation: [usize; 2],
    /// Whether a window that is only partly inside counts.
    #[config(default = "false")]
    pub ceil_mode: bool,
}

impl MaxPool2dConfig {
    /// The layer.
    pub fn init(&self) -> MaxPool2d {
        MaxPool2d {
            stride: self.strides,
            kernel_size: self.kernel_size,
            padding: self.padding.clone(),
            dilation: self.dilation,
            ceil_mode: self.ceil_mode,
        }
    }
}

/// Two-dimensional max-pooling.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MaxPool2d {
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Padding, which never wins.
    #[module(skip)]
    pub padding: PaddingConfig2d,
    /// Distances between the window's taps.
    pub dilation: [usize; 2],
    /// Whether a window that is only partly inside counts.
    pub ceil_mode: bool,
}

impl MaxPool2d {
    /// Applies the layer to `[batch, channels, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let [_, _, height, width] = input.dims();
        let padding = super::padding(&self.padding, [height, width], self.kernel_size, self.stride);
        let options = MaxPoolOptions::new(self.kernel_size)
            .with_stride(self.stride)
            .with_padding_pairs(padding)
            .with_dilation(self.dilation)
            .with_ceil_mode(self.ceil_mode);
        max_pool2d(input, options)
    }
}

impl ModuleDisplay for MaxPool2d {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        super::window(content, self.kernel_size, self.stride, &self.padding)
            .add("dilation", &format!("{:?}", self.dilation))
            .add("ceil_mode", &self.ceil_mode)
            .optional()
    }
}
