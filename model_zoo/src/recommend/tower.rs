//! The hidden layers that all recommenders have: linear layers, each with a rectifier and dropout after it.

use salamander::prelude::*;

/// linear - relu - dropout, several times.
#[derive(Module, Debug)]
pub struct Tower {
    layers: Vec<Linear>,
    dropout: Dropout,
}

impl Tower {
    /// Layers of these widths; without any, the inputs are the outputs.
    pub fn new(inputs: usize, widths: &[usize], dropout: f64, device: &Device) -> Self {
        let from = std::iter::once(&inputs).chain(widths);
        let layers = from.zip(widths).map(|(from, to)| LinearConfig::new(*from, *to).init(device));
        Self { layers: layers.collect(), dropout: DropoutConfig::new(dropout).init() }
    }

    /// How many outputs there are, of so many inputs.
    pub fn outputs(inputs: usize, widths: &[usize]) -> usize {
        widths.last().copied().unwrap_or(inputs)
    }

    /// The last layer's outputs.
    pub fn forward(&self, inputs: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(inputs, |x, layer| self.dropout.forward(relu(layer.forward(x))))
    }
}
