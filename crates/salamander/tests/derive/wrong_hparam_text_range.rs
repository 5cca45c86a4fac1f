//! A range of something that is no number.
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    #[hparam(range = 1..=2)]
    activation: String,
}

fn main() {}
