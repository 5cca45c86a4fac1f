//! A type that no column can become.
use salamander::prelude::*;

#[derive(Example)]
struct Word {
    word: String,
}

fn main() {}
