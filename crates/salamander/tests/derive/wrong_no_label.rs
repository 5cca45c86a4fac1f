//! Nothing to compare with.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    age: f32,
}

fn main() {}
