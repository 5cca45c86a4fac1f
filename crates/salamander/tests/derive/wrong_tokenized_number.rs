//! Tokens are of texts.
use salamander::prelude::*;

#[derive(Example)]
#[example(unlabelled)]
struct Review {
    #[input(tokenize = "tokenizer.json")]
    text: i64,
}

fn main() {}
