//! Nothing to learn from.
use salamander::prelude::*;

#[derive(Example)]
struct Digit {
    #[label]
    digit: u8,
}

fn main() {}
