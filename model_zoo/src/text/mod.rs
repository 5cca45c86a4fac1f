//! Texts: reviews that are for or against something, and pairs of which one may follow from the other, and
//! passages that are gone on with.

pub mod bert;
pub mod foreign;
pub mod gpt;

use salamander::models::bert::BertConfig;
use salamander::prelude::*;

use bert::LabelledTexts;

/// A text, or the tokens that `salamander data convert --tokenize` made of it, and what it says; beside the files of a
/// model of Hugging Face. The classes are those of the training data, or of a file.
#[derive(Clone, Debug, Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "max_tokens.txt"
    ]
)]
pub struct Review {
    #[input(tokenize = "tokenizer.json", max_length = 128)]
    text: Vec<i64>,
    #[label(vocabulary = "classes.txt")]
    label: String,
}

impl LabelledTexts for Review {
    const TRIAL: &str = "bert_reviews";

    fn texts(batch: &ReviewBatch) -> &Tokens {
        &batch.text
    }

    fn labels(batch: &ReviewBatch) -> &Tensor<1, Int> {
        &batch.label
    }

    fn check_tokenizer(config: &BertConfig, tokenizer: &Tokenizer) -> Result<(), String> {
        config.check_tokenizer(tokenizer)
    }
}

/// Two texts and, say, whether the second follows from the first, contradicts it or neither, beside the files of a
/// model of Hugging Face.
#[derive(Clone, Debug, Example)]
#[example(
    files = ["config.json"],
    optional_files = [
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "max_tokens.txt"
    ]
)]
pub struct TextPair {
    #[input(
        columns = ["premise", "hypothesis"],
        tokenize = "tokenizer.json",
        max_length = 128
    )]
    texts: [String; 2],
    #[label(vocabulary = "classes.txt")]
    label: String,
}

impl LabelledTexts for TextPair {
    const TRIAL: &str = "bert_pairs";

    fn texts(batch: &TextPairBatch) -> &Tokens {
        &batch.texts
    }

    fn labels(batch: &TextPairBatch) -> &Tensor<1, Int> {
        &batch.label
    }

    fn check_tokenizer(config: &BertConfig, tokenizer: &Tokenizer) -> Result<(), String> {
        config.check_pairs(tokenizer)
    }
}
