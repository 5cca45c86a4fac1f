//! The convolution layer.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::conv as burns;
use burn::nn::{Initializer, PaddingConfig2d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor};

use crate::ops::{Activation, conv2d};

/// Configuration of a [`Conv2d`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct Conv2dConfig {
    /// Channels of the input and of the output.
    pub channels: [usize; 2],
    /// Height and width of the kernel.
    pub kernel_size: [usize; 2],
    /// Steps of the window.
    #[config(default = "[1, 1]")]
    pub stride: [usize; 2],
    /// Distances between the kernel's taps.
    #[config(default = "[1, 1]")]
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    #[config(default = "1")]
    pub groups: usize,
    /// Padding of the input with zeros.
    #[config(default = "PaddingConfig2d::Valid")]
    pub padding: PaddingConfig2d,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// How parameters start.
    #[config(default = "burns::Conv2dConfig::new([1, 1], [1, 1]).initializer")]
    pub initializer: Initializer,
}

impl Conv2dConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    pub fn init(&self, device: &Device) -> Conv2d {
        burns::Conv2dConfig::new(self.channels, self.kernel_size)
            .with_stride(self.stride)
            .with_dilation(self.dilation)
            .with_groups(self.groups)
            .with_padding(self.padding.clone())
            .with_bias(self.bias)
            .with_initializer(self.initializer.clone())
            .init(device)
            .into()
    }
}

/// A two-dimensional convolution.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Conv2d {
    /// `[channels_out, channels_in / groups, height, width]`
    pub weight: Param<Tensor<4>>,
    /// `[channels_out]`
    pub bias: Option<Param<Tensor<1>>>,
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Height and width of the kernel.
    pub kernel_size: [usize; 2],
    /// Distances between the kernel's taps.
    pub dilation: [usize; 2],
    /// Independent groups of channels.
    pub groups: usize,
    /// Padding of the input with zeros.
    #[module(skip)]
    pub padding: PaddingConfig2d,
}

impl Conv2d {
    /// Applies the layer to `[batch, channels, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        self.apply(input, Activation::None)
    }

    /// Applies the layer and a ReLU in one operation.
    pub fn forward_relu(&self, input: Tensor<4>) -> Tensor<4> {
        self.apply(input, Activation::Relu)
    }

    fn apply(&self, input: Tensor<4>, activation: Activation) -> Tensor<4> {
        let [_, _, height, width] = input.dims();
        let padding = super::padding(&self.padding, [height, width], self.kernel_size, self.stride);
        let options =
            ConvOptions::new_with_padding(self.stride, padding, self.dilation, self.groups);
        let bias = self.bias.as_ref().map(Param::val);
        conv2d(input, self.weight.val(), bias, options, activation)
    }
}

impl From<burns::Conv2d> for Conv2d {
    fn from(layer: burns::Conv2d) -> Self {
        Self {
            weight: layer.weight,
            bias: layer.bias,
            stride: layer.stride,
            kernel_size: layer.kernel_size,
            dilation: layer.dilation,
            groups: layer.groups,
            padding: layer.padding,
        }
    }
}

impl ModuleDisplay for Conv2d {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [channels_out, group_channels_in, _, _] = self.weight.dims();
        content
            .add("ch_in", &format!("{}", group_channels_in * self.groups))
            .add("ch_out", &format!("{channels_out}"))
            .add("stride", &format!("{:?}", self.stride))
            .add("kernel_size", &format!("{:?}", self.kernel_size))
            .add("dilation", &format!("{:?}", self.dilation))
            .add("groups", &self.groups)
            .add_debug_attribute("padding", &self.padding)
            .optional()
    }
}
