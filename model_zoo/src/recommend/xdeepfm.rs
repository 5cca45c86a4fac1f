//! xDeepFM (<https://arxiv.org/abs/1803.05170>): a compressed interaction network, which crosses whole embeddings layer
//! by layer, beside hidden layers and a weight per id.

use salamander::prelude::*;

use super::criteo::{Click, ClickBatch, FIELDS};
use super::ranking;
use super::tower::Tower;

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.001, min = 0.0, range = 0.0001..=0.01, log)]
    learning_rate: f64,
    #[hparam(default = 0.05, min = 0.0)]
    table_rate: f64,
    #[hparam(default = 8, min = 1)]
    dim: usize,
    #[hparam(default = vec![16, 16])]
    interactions: Vec<usize>,
    #[hparam(default = vec![128, 64])]
    hidden: Vec<usize>,
    #[hparam(default = 0.1, min = 0.0, max = 1.0, range = 0.0..=0.6)]
    dropout: f64,
}

/// The compressed interaction network: each layer's maps are weighted sums of the products of all maps of the layer
/// before with all fields, value by value; all maps of all layers, summed over their values, are the outputs.
#[derive(Module, Debug)]
pub struct Interactions {
    layers: Vec<Linear>,
}

impl Interactions {
    /// Layers with so many maps each, on so many fields.
    pub fn new(fields: usize, maps: &[usize], device: &Device) -> Self {
        let before = std::iter::once(&fields).chain(maps);
        let layer = |(before, maps): (&usize, &usize)| {
            LinearConfig::new(before * fields, *maps).with_bias(false).init(device)
        };
        Self { layers: before.zip(maps).map(layer).collect() }
    }

    /// `[records, fields, dim]` gives `[records, all maps]`.
    pub fn forward(&self, fields: Tensor<3>) -> Tensor<2> {
        let [records, count, dim] = fields.dims();
        let mut before = fields.clone();
        let mut outputs = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let maps = before.dims()[1];
            let products = before.unsqueeze_dim::<4>(2) * fields.clone().unsqueeze_dim::<4>(1);
            let products = products.reshape([records, maps * count, dim]).swap_dims(1, 2);
            before = layer.forward(products).swap_dims(1, 2);
            outputs.push(before.clone().sum_dim(2).flatten(1, 2));
        }
        Tensor::cat(outputs, 1)
    }
}

/// A weight per id, interactions, and hidden layers.
#[derive(Module, Debug)]
pub struct XDeepFm {
    linear: Table,
    factors: Table,
    interactions: Interactions,
    tower: Tower,
    out: Linear,
}

impl Trial for XDeepFm {
    const NAME: &str = "xdeepfm";
    type Hparams = Hp;
    type Example = Click;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        let hp = &cx.hp;
        let inputs = FIELDS * hp.dim;
        let adagrad = || Optimizer::adagrad(hp.table_rate);
        let outputs = hp.interactions.iter().sum::<usize>() + Tower::outputs(inputs, &hp.hidden);
        Ok(Self {
            linear: cx.table("linear", 1).zeros().optimizer(adagrad()).build(),
            factors: cx.table("factors", hp.dim).normal(0.0, 0.05).optimizer(adagrad()).build(),
            interactions: Interactions::new(FIELDS, &hp.interactions, &cx.device),
            tower: Tower::new(inputs, &hp.hidden, hp.dropout, &cx.device),
            out: LinearConfig::new(outputs, 1).init(&cx.device),
        })
    }

    fn forward(&self, batch: &ClickBatch) -> Tensor<2> {
        let ids = batch.ids();
        let linear = self.linear.lookup(&ids).sum_dim(1).flatten(1, 2);
        let factors = self.factors.lookup(&ids);
        let deep = self.tower.forward(factors.clone().flatten(1, 2));
        let both = Tensor::cat(vec![self.interactions.forward(factors), deep], 1);
        linear + self.out.forward(both)
    }

    fn loss(&self, output: &Tensor<2>, batch: &ClickBatch) -> Tensor<1> {
        binary_cross_entropy(output, &batch.label)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &ClickBatch) -> Metrics {
        ranking(output, &batch.label)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        sigmoid(output)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;

    use super::*;

    /// Equation 6 of the paper, written as its sums.
    #[test]
    fn maps_are_weighted_sums_of_products() {
        let device = Device::flex();
        let fields = [[1.0f32, 2.0], [3.0, -1.0]];
        let weights = [[0.5f32, 1.0], [2.0, 0.0], [-1.0, 0.25], [1.5, 3.0]];
        let mut network = Interactions::new(2, &[2], &device);
        network.layers[0].weight = Param::from_data(weights, &device);
        let expected = [0, 1].map(|map| {
            let mut sum = 0.0;
            for (one, other) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                for at in [0, 1] {
                    sum += weights[one * 2 + other][map] * fields[one][at] * fields[other][at];
                }
            }
            sum
        });
        let found = network.forward(Tensor::<3>::from_data([fields], &device));
        let found: Vec<f32> = found.into_data().iter::<f32>().collect();
        assert_eq!(found, expected);
    }
}
