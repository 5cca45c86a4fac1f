//! A type that no YAML value can become.
use salamander::prelude::*;

#[derive(Hparams)]
struct Hp {
    device: std::time::Instant,
}

fn main() {}
