//! Hyperparameters are a struct.
use salamander::prelude::*;

#[derive(Hparams)]
enum Hp {
    Fast,
    Slow,
}

fn main() {}
