//! A number among words.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(ragged = "|", hash = 10, ignore = -1)]
    tags: String,
}

fn main() {}
