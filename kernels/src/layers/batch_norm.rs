//! The batch normalisation layer.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Flag, Module, ModuleDisplay, Param, RunningState};
use burn::nn as burns;
use burn::tensor::{Device, Tensor, module};

use crate::ops::{Activation, BatchNormed, batch_norm_train, relu, relu6};

/// Configuration of a [`BatchNorm`], as Burn's of this name.
#[derive(Config, Debug)]
pub struct BatchNormConfig {
    /// Channels.
    pub num_features: usize,
    /// Added to variances.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// The share of a batch in the running values.
    #[config(default = 0.1)]
    pub momentum: f64,
}

impl BatchNormConfig {
    /// The layer with its first parameters, which are those of Burn's layer.
    ///
    /// # Panics
    /// If Burn's layer refuses the configuration.
    pub fn init(&self, device: &Device) -> BatchNorm {
        burns::BatchNormConfig::new(self.num_features)
            .with_epsilon(self.epsilon)
            .with_momentum(self.momentum)
            .init(device)
            .into()
    }
}

/// Normalises each channel of `[batch, channels, ...]`: in training by the batch, otherwise by running values.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BatchNorm {
    /// Factors, `[channels]`.
    pub gamma: Param<Tensor<1>>,
    /// Summands, `[channels]`.
    pub beta: Param<Tensor<1>>,
    /// Whether the layer is in training at all; freezing it clears this.
    pub training: Param<Flag>,
    /// The running mean.
    pub running_mean: RunningState<Tensor<1>>,
    /// The running variance, in which a batch counts as PyTorch counts it: divided by one less than its values.
    pub running_var: RunningState<Tensor<1>>,
    /// The share of a batch in the running values.
    pub momentum: f64,
    /// Added to variances.
    pub epsilon: f64,
}

impl BatchNorm {
    /// Applies the layer.
    ///
    /// # Panics
    /// If the second axis is not as long as the layer's parameters.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.apply(input, None, Activation::None)
    }

    /// Applies the layer and a ReLU in one operation.
    pub fn forward_relu<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.apply(input, None, Activation::Relu)
    }

    /// Applies the layer and a ReLU6 in one operation.
    pub fn forward_relu6<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.apply(input, None, Activation::Relu6)
    }

    /// Applies the layer, adds `residual`, and applies a ReLU in one operation.
    pub fn forward_add_relu<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> Tensor<D> {
        self.apply(input, Some(residual), Activation::Relu)
    }

    fn apply<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Option<Tensor<D>>,
        activation: Activation,
    ) -> Tensor<D> {
        assert_eq!(input.dims().get(1), self.gamma.dims().first(), "another number of channels");
        if input.device().is_autodiff() && self.training.is_enabled() {
            return self.train(input, residual, activation);
        }
        let device = input.device();
        let mean = self.running_mean.value().to_device(&device);
        let variance = self.running_var.value().to_device(&device);
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        let output = module::batch_norm(input, gamma, beta, mean, variance, self.epsilon);
        let output = match residual {
            Some(residual) => output + residual,
            None => output,
        };
        match activation {
            Activation::None => output,
            Activation::Relu => relu(output),
            Activation::Relu6 => relu6(output),
        }
    }

    fn train<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Option<Tensor<D>>,
        activation: Activation,
    ) -> Tensor<D> {
        let device = input.device();
        let values = input.shape().num_elements() / self.gamma.dims()[0].max(1);
        let parameters = [self.gamma.val(), self.beta.val()];
        let BatchNormed { output, mean, variance } =
            batch_norm_train(input, parameters, self.epsilon, residual, activation);
        // PyTorch keeps the variance of what the batch was drawn from (divided by one less), and files go both ways.
        let unbiased = values as f64 / values.saturating_sub(1).max(1) as f64;
        let variance = variance.mul_scalar(unbiased);
        for (running, batch) in [(&self.running_mean, mean), (&self.running_var, variance)] {
            let kept = running.value_sync().to_device(&device).mul_scalar(1.0 - self.momentum);
            running.update(kept.add(batch.mul_scalar(self.momentum)).detach());
        }
        output
    }
}

impl From<burns::BatchNorm> for BatchNorm {
    fn from(layer: burns::BatchNorm) -> Self {
        Self {
            gamma: layer.gamma,
            beta: layer.beta,
            training: layer.training,
            running_mean: layer.running_mean,
            running_var: layer.running_var,
            momentum: layer.momentum,
            epsilon: layer.epsilon,
        }
    }
}

impl ModuleDisplay for BatchNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        super::on_one_line()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [num_features] = self.beta.shape().dims();
        let content = content
            .add("num_features", &num_features)
            .add("momentum", &self.momentum)
            .add("epsilon", &self.epsilon);
        match self.training.is_enabled() {
            true => content.optional(),
            false => content.add("training", &self.training).optional(),
        }
    }
}
