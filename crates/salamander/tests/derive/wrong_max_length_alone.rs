//! A length is of tokens.
use salamander::prelude::*;

#[derive(Example)]
#[example(unlabelled)]
struct Review {
    #[input(hash = 1000, max_length = 64)]
    text: String,
}

fn main() {}
