//! A range without its upper end.
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(range = 0.0..1.0)]
    learning_rate: f64,
}

fn main() {}
