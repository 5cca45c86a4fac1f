//! Text is on no scale.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(discretise = [1.0, 2.0])]
    city: String,
}

fn main() {}
