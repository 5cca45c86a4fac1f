//! Out of which vocabulary?
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(hash = 10, oov = 1)]
    city: String,
}

fn main() {}
