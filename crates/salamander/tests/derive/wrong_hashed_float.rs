//! A float has no text that is its own.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(hash = 10)]
    height: f32,
}

fn main() {}
