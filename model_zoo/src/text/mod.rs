//! Texts: reviews that are for or against something, and pairs of which one may follow from the other, and
//! passages that are gone on with.

pub mod bert;
pub mod foreign;
pub mod gpt;
pub mod pairs;

use salamander::prelude::*;

/// A text, or the tokens that `salamander data convert --tokenize` made of it, and what it says; beside the files of a
/// model of Hugging Face.
#[derive(Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"
    ]
)]
pub struct Review {
    #[input(tokenize = "tokenizer.json", max_length = 128)]
    text: Vec<i64>,
    #[label(classes = ["negative", "positive"])]
    label: String,
}

/// Two texts and whether the second follows from the first, contradicts it or neither, beside the files of a model of
/// Hugging Face.
#[derive(Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"
    ]
)]
pub struct TextPair {
    #[input(
        columns = ["premise", "hypothesis"],
        tokenize = "tokenizer.json",
        max_length = 128
    )]
    texts: [String; 2],
    #[label(classes = ["entailment", "neutral", "contradiction"])]
    label: String,
}
