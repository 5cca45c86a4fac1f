//! The average pooling layers.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::PaddingConfig2d;
use burn::tensor::Tensor;
use burn::tensor::ops::AvgPoolOptions;

use crate::ops::{adaptive_avg_pool2d, avg_pool2d};

/// Configuration of an [`AvgPool2d`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct AvgPool2dConfig {
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Steps of the window; those of its size unless set.
    #[config(default = "kernel_size")]
    pub strides: [usize; 2],
    /// Padding with zeros.
    #[config(default = "PaddingConfig2d::Valid")]
    pub padding: PaddingConfig2d,
    /// Whether padding counts in the number that sums are divided by.
    #[config(default = "true")]
    pub count_include_pad: bool,
    /// Whether a window that is only partly inside counts.
    #[config(default = "false")]
    pub ceil_mode: bool,
}

impl AvgPool2dConfig {
    /// The layer.
    pub fn init(&self) -> AvgPool2d {
        AvgPool2d {
            stride: self.strides,
            kernel_size: self.kernel_size,
            padding: self.padding.clone(),
            count_include_pad: self.count_include_pad,
            ceil_mode: self.ceil_mode,
        }
    }
}

/// Two-dimensional average pooling.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct AvgPool2d {
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Padding with zeros.
    #[module(skip)]
    pub padding: PaddingConfig2d,
    /// Whether padding counts in the number that sums are divided by.
    pub count_include_pad: bool,
    /// Whether a window that is only partly inside counts.
    pub ceil_mode: bool,
}

impl AvgPool2d {
    /// Applies the layer to `[batch, channels, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let [_, _, height, width] = input.dims();
        let padding = super::padding(&self.padding, [height, width], self.kernel_size, self.stride);
        let options = AvgPoolOptions::new(self.kernel_size)
            .with_stride(self.stride)
            .with_padding_pairs(padding)
            .with_count_include_pad(self.count_include_pad)
            .with_ceil_mode(self.ceil_mode);
        avg_pool2d(input, options)
    }
}

impl ModuleDisplay for AvgPool2d {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        super::window(content, self.kernel_size, self.stride, &self.padding)
            .add("count_include_pad", &self.count_include_pad)
            .add("ceil_mode", &self.ceil_mode)
            .optional()
    }
}

/// Configuration of an [`AdaptiveAvgPool2d`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct AdaptiveAvgPool2dConfig {
    /// Height and width of the output.
    pub output_size: [usize; 2],
}

impl AdaptiveAvgPool2dConfig {
    /// The layer.
    pub fn init(&self) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d { output_size: self.output_size }
    }
}

/// Two-dimensional average pooling to a given size.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub output_size: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// Applies the layer to `[batch, channels, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        adaptive_avg_pool2d(input, self.output_size)
    }
}

impl ModuleDisplay for AdaptiveAvgPool2d {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content.add("output_size", &format!("{:?}", self.output_size)).optional()
    }
}
