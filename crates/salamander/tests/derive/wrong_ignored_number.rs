//! A word among numbers.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(ragged, ignore = "none")]
    tags: Vec<i64>,
}

fn main() {}
