//! A logarithm of nothing.
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(default = 1.0, log)]
    learning_rate: f64,
}

fn main() {}
