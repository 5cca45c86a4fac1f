//! Text is cut somewhere.
use salamander::prelude::*;

#[derive(Example)]
struct Person {
    #[input(ragged, hash = 10)]
    ids: String,
}

fn main() {}
