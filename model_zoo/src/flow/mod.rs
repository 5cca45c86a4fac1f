//! Raw data made ready for training, once: `salamander flow run NAME --in FILES --out FOLDER`.
//!
//! # Layout
//! - [`digits`]: pictures of digits, checked (`flow/digits.yaml`)
//! - [`clicks`]: advertisements as numbers of about one size and words that are never missing (`flow/clicks.yaml`)
//! - [`tokens`]: reviews as the ids of their tokens, for BERT (`flow/reviews.yaml`)

use std::path::Path;

use salamander::flow::{Error, FlowContext, Flows, TSet};
use salamander::prelude::Tokenizer;
use serde::{Deserialize, Serialize};

/// Pixels of a digit.
const PIXELS: usize = 28 * 28;
/// The columns of numbers and of words that Criteo's files have.
const NUMBERS: usize = 13;
const WORDS: usize = 26;

/// All flows of the zoo.
pub fn flows() -> Flows {
    salamander::flows![digits, clicks, tokens]
}

/// A digit as files have it.
#[derive(Serialize, Deserialize)]
struct RawDigit {
    image: Vec<u8>,
    label: i64,
}

/// Digits whose picture has the right size and whose label is one; others are kept aside.
pub fn digits(cx: &FlowContext) -> Result<TSet, Error> {
    cx.input()?.map("check", |digit: RawDigit| match (digit.image.len(), digit.label) {
        (PIXELS, 0..=9) => Ok(digit),
        (PIXELS, label) => Err(format!("label {label} is no digit")),
        (pixels, _) => Err(format!("{pixels} pixels, not {PIXELS}")),
    })
}

/// Counts become logarithms, with 0 for what is missing; words that are missing become `none`.
pub fn clicks(cx: &FlowContext) -> Result<TSet, Error> {
    let number = |column: usize| {
        format!("cast(ln(greatest(coalesce(\"I{column}\", 0), 0) + 1) as float) as \"I{column}\"")
    };
    let word = |column: usize| {
        format!("coalesce(nullif(cast(\"C{column}\" as string), ''), 'none') as \"C{column}\"")
    };
    let numbers = (1..=NUMBERS).map(number);
    let columns: Vec<String> = numbers.chain((1..=WORDS).map(word)).collect();
    cx.register("clicks", &cx.input()?)?;
    cx.sql(&format!("select \"label\", {} from clicks", columns.join(", ")))
}

/// A review as files have it.
#[derive(Serialize, Deserialize)]
struct RawReview {
    text: String,
    label: String,
}

/// A review whose text is the ids of its tokens.
#[derive(Serialize, Deserialize)]
struct TokenisedReview {
    text: Vec<i64>,
    label: String,
}

/// Reviews as tokens, by the tokenizer of `--set tokenizer=FILE`, at most `--set max_length=128` of them.
pub fn tokens(cx: &FlowContext) -> Result<TSet, Error> {
    let file = cx.text_parameter("tokenizer").ok_or_else(|| {
        Error::Invalid("tokens: name a tokenizer.json: --set tokenizer=FILE".to_string())
    })?;
    let path = Path::new(file);
    let bytes = std::fs::read(path).map_err(|cause| Error::Io { path: path.into(), cause })?;
    let tokenizer = Tokenizer::parse(&bytes, cx.parameter("max_length", 128)?);
    let tokenizer = tokenizer.map_err(|reason| Error::Invalid(format!("{file}: {reason}")))?;
    cx.input()?.map("tokens", move |review: RawReview| {
        Ok(TokenisedReview { text: tokenizer.encode(&review.text)?, label: review.label })
    })
}
