//! A key that does not exist.
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(defualt = 0.1)]
    learning_rate: f64,
}

fn main() {}
