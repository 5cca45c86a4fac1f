//! Buckets are not scaled.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(round = 99, scale = 0.1)]
    age: f32,
}

fn main() {}
