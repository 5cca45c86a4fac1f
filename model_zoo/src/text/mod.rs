//! Texts: reviews that are for or against something, and passages that are gone on with.

pub mod bert;
pub mod foreign;
pub mod gpt;

use salamander::prelude::*;

/// A text and what it says, beside the files of a model of Hugging Face.
#[derive(Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"
    ]
)]
pub struct Review {
    #[input(tokenize = "tokenizer.json", max_length = 128)]
    text: String,
    #[label(classes = ["negative", "positive"])]
    label: String,
}
