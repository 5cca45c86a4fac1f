//! Texts as tokens, by a tokenizer file of Hugging Face, which is part of the run like its weights.

use std::fmt;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use tokenizers::TruncationParams;

use super::{DecodeError, Target};

/// Tokens of several texts, laid end to end: nothing is padded. Models that attend within each text take them as they
/// are (`salamander::ops::packed_attention`).
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The ids of all tokens, text after text.
    pub ids: Tensor<1, Int>,
    /// The place of each token within its text, from 0.
    pub places: Tensor<1, Int>,
    /// Where the first token of each text is.
    pub firsts: Tensor<1, Int>,
    /// The text of each token, from 0.
    pub rows: Tensor<1, Int>,
    /// How many tokens each text has.
    pub lengths: Arc<[usize]>,
}

impl Tokens {
    /// From the ids of each text.
    pub fn new(name: &str, texts: &[Vec<i64>], device: &Device) -> Result<Self, DecodeError> {
        if texts.iter().any(Vec::is_empty) {
            return Err(DecodeError::new(name, "a text has no token, not even a special one"));
        }
        let tensor = |values: Vec<i64>| Target { name, shape: [values.len()], device }.ints(values);
        let lengths: Arc<[usize]> = texts.iter().map(Vec::len).collect();
        let places = lengths.iter().flat_map(|length| 0..*length as i64);
        let firsts = lengths.iter().scan(0, |next, length| {
            let first = *next;
            *next += *length as i64;
            Some(first)
        });
        let rows = lengths.iter().zip(0..).flat_map(|(length, row)| (0..*length).map(move |_| row));
        Ok(Self {
            ids: tensor(texts.concat())?,
            places: tensor(places.collect())?,
            firsts: tensor(firsts.collect())?,
            rows: tensor(rows.collect())?,
            lengths,
        })
    }

    /// How many texts there are.
    pub fn records(&self) -> usize {
        self.lengths.len()
    }
}

/// A tokenizer, as its file says, but for the length of texts: what is longer is cut, and nothing is padded.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    max_length: usize,
    ids: usize,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer of {} ids for {} tokens", self.ids, self.max_length)
    }
}

impl Tokenizer {
    /// From the bytes of a `tokenizer.json`.
    pub fn parse(bytes: &[u8], max_length: usize) -> Result<Self, String> {
        let wrong = |error: tokenizers::Error| format!("it is no tokenizer: {error}");
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(wrong)?;
        // The file may cut and pad to a length of its own.
        inner.with_padding(None);
        let cut = TruncationParams { max_length, ..TruncationParams::default() };
        inner.with_truncation(Some(cut)).map_err(|error| format!("max_length: {error}"))?;
        let ids = inner.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1);
        Ok(Self { inner, max_length, ids })
    }

    /// The ids of a text, with the special ones around it.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
        let encoding = self.inner.encode_fast(text, true).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// The text of ids, without special ones.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.inner.decode(ids, true).map_err(|error| error.to_string())
    }

    /// How many rows a table of embeddings needs: one more than the greatest id.
    pub fn ids(&self) -> usize {
        self.ids
    }

    /// The most tokens of a text, special ones included.
    pub fn max_length(&self) -> usize {
        self.max_length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words by spaces, `[CLS]` in front and `[SEP]` behind; it pads and cuts to four.
    const FILE: &str = r#"{"version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [{"id": 6, "content": "[MASK]", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordLevel", "unk_token": "[UNK]",
                  "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "good": 4, "film": 5}}}"#;

    #[test]
    fn texts_are_cut_to_the_given_length_and_never_padded() {
        let tokenizer = Tokenizer::parse(FILE.as_bytes(), 5).expect("a tokenizer");
        let check = |text: &str, expected: &[i64]| {
            assert_eq!(tokenizer.encode(text).expect("encodes"), expected, "{text}");
        };
        check("good film", &[1, 4, 5, 2]);
        check("", &[1, 2]);
        check("good good film film film", &[1, 4, 4, 5, 2]);
        check("bad", &[1, 3, 2]);
        assert_eq!((tokenizer.ids(), tokenizer.max_length()), (7, 5));
        let error = Tokenizer::parse(b"{}", 5).expect_err("no tokenizer");
        assert!(error.starts_with("it is no tokenizer"), "{error}");
    }

    #[test]
    fn texts_lie_end_to_end() {
        let device = Device::flex();
        let tokens = Tokens::new("text", &[vec![1, 4, 2], vec![1, 2]], &device).expect("tokens");
        let ints = |tensor: Tensor<1, Int>| tensor.into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(ints(tokens.ids.clone()), [1, 4, 2, 1, 2]);
        assert_eq!(ints(tokens.places.clone()), [0, 1, 2, 0, 1]);
        assert_eq!(ints(tokens.firsts.clone()), [0, 3]);
        assert_eq!(ints(tokens.rows.clone()), [0, 0, 0, 1, 1]);
        assert_eq!((tokens.records(), &*tokens.lengths), (2, &[3, 2][..]));
    }
}
