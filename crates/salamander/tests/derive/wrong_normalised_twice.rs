//! Mean and deviation come from the file or from the code.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(normalise = "stats.json", mean = 40.0)]
    age: f32,
}

fn main() {}
