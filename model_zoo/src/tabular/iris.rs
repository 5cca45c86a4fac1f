//! Fisher's irises (<https://doi.org/10.1111/j.1469-1809.1936.tb02137.x>), one hidden layer: as small as a model gets.
//! `salamander data fetch iris` writes what it reads.

use std::path::Path;

use salamander::models::onnx::{self, Axis, Element, Graph};
use salamander::prelude::*;
use salamander::train::example::Example as _;

/// Means and deviations of the four lengths, in centimetres.
const MEANS: [f32; 4] = [5.84, 3.05, 3.76, 1.20];
const DEVIATIONS: [f32; 4] = [0.83, 0.43, 1.76, 0.76];

/// A flower.
#[derive(Example)]
pub struct Flower {
    #[input(columns = ["sepal_length", "sepal_width", "petal_length", "petal_width"])]
    lengths: [f32; 4],
    #[label(classes = ["setosa", "versicolor", "virginica"])]
    species: String,
}

/// Hyperparameters.
#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.01, min = 0.0, range = 0.001..=0.1, log)]
    learning_rate: f64,
    #[hparam(default = 16, min = 1, range = 4..=64, log)]
    hidden: usize,
}

/// linear - relu - linear.
#[derive(Module, Debug)]
pub struct Iris {
    fc1: Linear,
    fc2: Linear,
}

impl Trial for Iris {
    const NAME: &str = "iris";
    type Hparams = Hp;
    type Example = Flower;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self {
            fc1: LinearConfig::new(4, cx.hp.hidden).init(&cx.device),
            fc2: LinearConfig::new(cx.hp.hidden, 3).init(&cx.device),
        })
    }

    fn forward(&self, batch: &FlowerBatch) -> Tensor<2> {
        let (device, dtype) = (batch.lengths.device(), batch.lengths.dtype());
        let row = |values: [f32; 4]| Tensor::<2>::from_data([values], &device).cast(dtype);
        let x = (batch.lengths.clone() - row(MEANS)) / row(DEVIATIONS);
        self.fc2.forward(relu(self.fc1.forward(x)))
    }

    fn loss(&self, output: &Tensor<2>, batch: &FlowerBatch) -> Tensor<1> {
        cross_entropy(output, &batch.species)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &FlowerBatch) -> Metrics {
        accuracy(output, &batch.species)
    }

    fn predict(&self, output: Tensor<2>) -> Tensor<2> {
        softmax(output, 1)
    }

    const EXPORTS: &'static [&'static str] = &["onnx"];

    fn export(&self, _format: &str, cx: &Context<Hp>, folder: &Path) -> Result<(), BuildError> {
        let mut graph = Graph::new(Self::NAME);
        let x = graph.input("lengths", Element::F32, &[Axis::Any("batch"), Axis::Size(4)]);
        let x = graph.normalised("lengths", &x, &MEANS, &DEVIATIONS);
        let x = graph.linear("fc1", &self.fc1, &x);
        let x = graph.relu("fc1", &x);
        let logits = graph.linear("fc2", &self.fc2, &x);
        graph.classes(&logits, 3, &Flower::class_names(&cx.assets));
        graph.say(
            "preprocessing",
            "lengths: length and width of sepals, then of petals, in centimetres",
        );
        Ok(graph.write(&folder.join(onnx::FILE))?)
    }
}
