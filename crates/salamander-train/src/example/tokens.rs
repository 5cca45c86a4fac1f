//! Texts as tokens, by a tokenizer file of Hugging Face, which is part of the run like its weights.

use std::fmt;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use tokenizers::TruncationParams;

use super::{DecodeError, Target};

mod beginning;
pub(super) mod length;

/// The bytes of a text for each token that there is room for: in more than that there are hardly ever too few tokens.
const BYTES_PER_TOKEN: usize = 64;

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
    /// Whether a long text may be cut before it is read.
    ends_at_spaces: bool,
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
        let ends_at_spaces = beginning::ends_at_spaces(&inner);
        Ok(Self { inner, max_length, ids, ends_at_spaces })
    }

    /// The ids of a text, with the special ones around it.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
        let encoding = self.inner.encode_fast(self.beginning(text)?, true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// The tokens of two texts, the longer of which is cut where they are too long together.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<TokenPair, String> {
        let both = (self.beginning(first)?, self.beginning(second)?);
        let encoding = self.inner.encode_fast(both, true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        let numbers = |of: &[u32]| of.iter().map(|id| i64::from(*id)).collect();
        Ok(TokenPair { ids: numbers(encoding.get_ids()), types: numbers(encoding.get_type_ids()) })
    }

    /// As much of a text as its tokens depend on, which are those of the whole one. The tokenizer counts no further
    /// than to the length, so which text of a pair is the longer one is the same too.
    fn beginning<'a>(&self, text: &'a str) -> Result<&'a str, String> {
        let mut bytes = self.max_length.max(1).saturating_mul(BYTES_PER_TOKEN);
        while self.ends_at_spaces && bytes < text.len() {
            if let Some(beginning) = beginning::cut(text, bytes) {
                let encoding = self.inner.encode_fast(beginning, false);
                let encoding = encoding.map_err(|error| error.to_string())?;
                if encoding.get_ids().len() >= self.max_length {
                    return Ok(beginning);
                }
            }
            bytes = bytes.saturating_mul(2);
        }
        Ok(text)
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
    use proptest::prelude::*;
    use serde_json::{Value, json};

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

    /// A tokenizer of these parts, for `max_length` tokens.
    fn tokenizer(parts: &[(&str, Value)], max_length: usize) -> Tokenizer {
        let mut file: Value = serde_json::from_str(FILE).expect("JSON");
        for (name, part) in parts {
            file[name] = part.clone();
        }
        Tokenizer::parse(file.to_string().as_bytes(), max_length).expect("a tokenizer")
    }

    /// Those of BERT, of RoBERTa, of XLM-R, and two that say nothing about spaces; whether they may cut.
    fn kinds(max_length: usize) -> Vec<(Tokenizer, bool)> {
        let piece = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 20, "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "good": 4,
                "film": 5, "##s": 7, "a": 8, "##a": 9, "\u{7535}": 10, ".": 11}});
        let normalizer = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true});
        let bert = [
            ("normalizer", normalizer),
            ("model", piece),
            ("pre_tokenizer", json!({"type": "BertPreTokenizer"})),
        ];
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let pairs = json!({"type": "BPE", "unk_token": null, "continuing_subword_prefix": null, "dropout": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": {"\u{120}": 0, "g": 3, "o": 4, "d": 5, "a": 7, "s": 8, "oo": 9, "\u{120}g": 10,
                "\u{120}goo": 11, "aa": 12, "\u{10a}": 13},
            "merges": [["o", "o"], ["\u{120}", "g"], ["\u{120}g", "oo"], ["a", "a"]]});
        let roberta = [("pre_tokenizer", bytes.clone()), ("model", pairs.clone())];
        let unigram = json!({"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0.0],
            ["\u{2581}", -2.0], ["\u{2581}good", -3.0], ["film", -3.5], ["a", -4.0], ["aa", -5.0], ["s", -4.0]]});
        let meta = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true});
        let spaces = json!({"type": "Sequence", "normalizers": [{"type": "NFKC"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "Replace", "pattern": {"String": "``"}, "content": "\""}]});
        let meta =
            json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, meta]});
        let xlm = [("normalizer", spaces), ("pre_tokenizer", meta), ("model", unigram)];
        let tags = json!({"type": "Replace", "pattern": {"Regex": "<[^>]*>"}, "content": ""});
        let html = [("normalizer", tags), ("model", pairs.clone()), ("pre_tokenizer", bytes)];
        let whole = [("pre_tokenizer", Value::Null), ("model", pairs)];
        vec![
            (tokenizer(&[], max_length), true),
            (tokenizer(&bert, max_length), true),
            (tokenizer(&roberta, max_length), true),
            (tokenizer(&xlm, max_length), true),
            (tokenizer(&html, max_length), false),
            (tokenizer(&whole, max_length), false),
        ]
    }

    /// What the tokenizer makes of the whole text, or of both.
    fn of_whole(tokenizer: &Tokenizer, first: &str, second: Option<&str>) -> TokenPair {
        let encoding = match second {
            None => tokenizer.inner.encode_fast(first, true),
            Some(second) => tokenizer.inner.encode_fast((first, second), true),
        };
        let encoding = encoding.expect("encodes");
        let numbers = |of: &[u32]| of.iter().map(|id| i64::from(*id)).collect();
        TokenPair { ids: numbers(encoding.get_ids()), types: numbers(encoding.get_type_ids()) }
    }

    #[test]
    fn of_a_text_of_megabytes_only_the_beginning_is_read() {
        let text = "good films, good film. ".repeat(350_000);
        for (tokenizer, cuts) in kinds(128).iter().filter(|(_, cuts)| *cuts) {
            let beginning = tokenizer.beginning(&text).expect("encodes");
            assert!(*cuts && beginning.len() <= 128 * BYTES_PER_TOKEN, "{} bytes", beginning.len());
            let expected = of_whole(tokenizer, &text[..10_000], None).ids;
            assert_eq!(expected.len(), 128);
            assert_eq!(tokenizer.encode(&text), Ok(expected));
        }
    }

    /// Words, and what stands between them; few of which make many tokens, and some of which none.
    fn long_text() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => "(good|films?|a{1,9}|Good|[a-z]{1,6}) ",
            1 => "[ ]{1,3}|\n {0,2}|\t|\u{a0}|\u{3000}|\u{200b}|\u{301}",
            1 => "\u{7535}\u{5f71} ?|\u{e9} |\u{fdfa} |[.,!'`-]{1,3} ?|\\[MASK\\] ?|<b|> ?",
            1 => "(a{30,90}|x{30,90}) ?",
        ];
        prop::collection::vec(part, 0..120).prop_map(|parts| parts.concat())
    }

    proptest! {
        // Each case is long texts, many times over.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn long_texts_have_the_tokens_of_the_whole(first in long_text(), second in long_text(), length in 4..12usize) {
            for (place, (tokenizer, cuts)) in kinds(length).iter().enumerate() {
                prop_assert_eq!(tokenizer.ends_at_spaces, *cuts, "{}", place);
                let whole = of_whole(tokenizer, &first, None);
                prop_assert_eq!(tokenizer.encode(&first), Ok(whole.ids), "{} {:?}", place, &first);
                let whole = of_whole(tokenizer, &first, Some(&second));
                let pair = tokenizer.encode_pair(&first, &second);
                prop_assert_eq!(pair, Ok(whole), "{} {:?} {:?}", place, &first, &second);
            }
        }
    }
}
