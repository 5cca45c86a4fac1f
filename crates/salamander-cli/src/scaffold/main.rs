//! A small network that tells points inside of a ring from points outside.

use salamander::prelude::*;

#[derive(Hparams)]
pub struct Hp {
    #[hparam(default = 0.01, min = 0.0, range = 0.001..=0.1, log)]
    learning_rate: f64,
    #[hparam(default = 32, min = 1)]
    hidden: usize,
}

#[derive(Example)]
pub struct Point {
    #[input(columns = ["x", "y"])]
    at: [f32; 2],
    #[label]
    outside: u8,
}

#[derive(Module, Debug)]
pub struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Trial for Mlp {
    const NAME: &str = "rings_mlp";
    type Hparams = Hp;
    type Example = Point;
    type Output = Tensor<2>;

    fn build(cx: &Context<Hp>) -> Result<Self, BuildError> {
        Ok(Self {
            fc1: LinearConfig::new(2, cx.hp.hidden).init(&cx.device),
            fc2: LinearConfig::new(cx.hp.hidden, 2).init(&cx.device),
        })
    }

    fn forward(&self, batch: &PointBatch) -> Tensor<2> {
        self.fc2.forward(relu(self.fc1.forward(batch.at.clone())))
    }

    fn loss(&self, output: &Tensor<2>, batch: &PointBatch) -> Tensor<1> {
        cross_entropy(output, &batch.outside)
    }

    fn optimizer(hp: &Hp) -> impl Into<Optimizer> {
        Optimizer::adam(hp.learning_rate)
    }

    fn metrics(&self, output: &Tensor<2>, batch: &PointBatch) -> Metrics {
        accuracy(output, &batch.outside)
    }
}

fn main() -> std::process::ExitCode {
    salamander::main(models![Mlp])
}
