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
    /// Where records are pairs of texts: which of the two each token is of, 0 or 1 (Hugging Face's `token_type_ids`).
    pub types: Option<Tensor<1, Int>>,
}

/// The tokens of a pair of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPair {
    /// The ids of both, with the special ones around and between them.
    pub ids: Vec<i64>,
    /// Which of the two each is of, as the tokenizer says.
    pub types: Vec<i64>,
}

impl Tokens {
    /// From the ids of each text.
    pub fn new(name: &str, texts: &[Vec<i64>], device: &Device) -> Result<Self, DecodeError> {
        Self::of(name, texts.iter().map(Vec::as_slice), device)
    }

    /// From the tokens of each pair of texts.
    pub fn of_pairs(name: &str, pairs: &[TokenPair], device: &Device) -> Result<Self, DecodeError> {
        let tokens = Self::of(name, pairs.iter().map(|pair| pair.ids.as_slice()), device)?;
        let types: Vec<i64> = pairs.iter().flat_map(|pair| pair.types.iter().copied()).collect();
        let types = Target { name, shape: [types.len()], device }.ints(types)?;
        Ok(Self { types: Some(types), ..tokens })
    }

    /// From the ids of each text.
    pub fn of<'a>(
        name: &str,
        texts: impl Iterator<Item = &'a [i64]>,
        device: &Device,
    ) -> Result<Self, DecodeError> {
        let texts: Vec<&[i64]> = texts.collect();
        if texts.iter().any(|text| text.is_empty()) {
            return Err(DecodeError::new(name, "a text has no token, not even a special one"));
        }
        let tensor = |values: Vec<i64>| Target { name, shape: [values.len()], device }.ints(values);
        let lengths: Arc<[usize]> = texts.iter().map(|text| text.len()).collect();
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
            types: None,
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

    /// The tokens of two texts, the longer of which is cut where they are too long together.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<TokenPair, String> {
        let encoding = self.inner.encode_fast((first, second), true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        let numbers = |of: &[u32]| of.iter().map(|id| i64::from(*id)).collect();
        Ok(TokenPair { ids: numbers(encoding.get_ids()), types: numbers(encoding.get_type_ids()) })
    }

    /// Refuses ids that were made by another tokenizer, or for longer texts.
    pub fn check(&self, ids: &[i64]) -> Result<(), String> {
        let (length, most) = (ids.len(), self.max_length);
        if length > most {
            return Err(format!(
                "{length} tokens, and at most {most} are asked for: tokenize with --max-length {most}"
            ));
        }
        match ids.iter().find(|id| **id < 0 || **id >= self.ids as i64) {
            Some(id) => Err(format!("the token {id} is none of the tokenizer's {}", self.ids)),
            None => Ok(()),
        }
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
        let pair = tokenizer.encode_pair("good", "film film film").expect("encodes");
        assert_eq!((pair.ids, pair.types), (vec![1, 4, 2, 5, 2], vec![0, 0, 0, 1, 1]));
        assert_eq!(tokenizer.check(&[1, 6, 2]), Ok(()));
        let error = tokenizer.check(&[1, 7, 2]).expect_err("unknown");
        assert_eq!(error, "the token 7 is none of the tokenizer's 7");
        let error = tokenizer.check(&[1; 6]).expect_err("too long");
        assert!(error.starts_with("6 tokens, and at most 5 are asked for"), "{error}");
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
        assert!(tokens.types.is_none());
        let pair = TokenPair { ids: vec![1, 4, 2, 5, 2], types: vec![0, 0, 0, 1, 1] };
        let pairs = Tokens::of_pairs("texts", &[pair.clone(), pair], &device).expect("tokens");
        let types = ints(pairs.types.expect("types"));
        assert_eq!(types, [0, 0, 0, 1, 1, 0, 0, 0, 1, 1]);
    }
}
