//! Every attribute that the derive macros know, used as it is meant.

use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(default = 1, min = 0.0, max = 2)]
    rate: f64,
    #[hparam(default = "relu", name = "activation-function")]
    activation: String,
    #[hparam(default = vec![1, 2])]
    layers: Vec<u32>,
    #[hparam(default = None)]
    limit: Option<f64>,
    required: bool,
}

#[derive(Example)]
#[example(augment = turn)]
struct Everything {
    #[input(shape = [1, 2, 2], scale = 1.0 / 255.0)]
    image: Vec<u8>,
    #[input(columns = ["a", "b"], mean = 1.0, std = 2.0)]
    numbers: [f32; 2],
    category: i64,
    #[input(column = "other", offset = 1.0)]
    shifted: i32,
    #[label]
    class: u8,
    #[label(shape = [2])]
    targets: Vec<f32>,
}

fn turn(example: &mut Everything, rng: &mut Rng) {
    example.category = rng.below(3) as i64;
}

fn shapes(batch: &EverythingBatch) -> (Tensor<4>, Tensor<2>, Tensor<1, Int>, Tensor<1>) {
    let EverythingBatch { image, numbers, category, shifted, .. } = batch.clone();
    (image, numbers, category, shifted)
}

fn labels(batch: &EverythingBatch) -> (Tensor<1, Int>, Tensor<2>) {
    (batch.class.clone(), batch.targets.clone())
}

fn main() {
    let _ = (shapes, labels);
    let hp = |hp: Hp| (hp.rate, hp.activation, hp.layers, hp.limit, hp.required);
    let _ = hp;
}
