//! A `tokenizer.json` of the files that Hugging Face's programs wrote before there was one: `vocab.txt` of BERT, or
//! `vocab.json` and `merges.txt` of RoBERTa.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Error;

/// The file that is made.
const MADE: &str = "tokenizer.json";

/// What a folder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VocabularyKind {
    WordPieces,
    BytePairs,
}

impl VocabularyKind {
    fn of(folder: &Path) -> Option<Self> {
        let has = |name: &str| folder.join(name).is_file();
        if has("vocab.txt") {
            return Some(Self::WordPieces);
        }
        (has("vocab.json") && has("merges.txt")).then_some(Self::BytePairs)
    }

    /// Python's classes that work as what is made here.
    fn classes(self) -> &'static [&'static str] {
        match self {
            Self::WordPieces => &["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"],
            Self::BytePairs => &["RobertaTokenizer"],
        }
    }
}

/// Whether the file of a path, which is not there, can be made of what is beside it.
pub(super) fn is_possible(path: &Path) -> bool {
    path.ends_with(MADE) && path.parent().and_then(VocabularyKind::of).is_some()
}

/// The content of the file of a path, which is not there, made of what is beside it; nothing where that is no
/// tokenizer's.
pub(super) fn make(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(folder) = path.parent().filter(|_| path.ends_with(MADE)) else { return Ok(None) };
    let Some(kind) = VocabularyKind::of(folder) else { return Ok(None) };
    let settings = match folder.join("tokenizer_config.json") {
        file if file.is_file() => json_of(&file)?,
        _ => Value::Null,
    };
    let class = settings["tokenizer_class"].as_str().map(|class| class.trim_end_matches("Fast"));
    if class.is_some_and(|class| !kind.classes().contains(&class)) {
        return Err(only_python(
            folder,
            &format!("tokenizer_class {}", settings["tokenizer_class"]),
        ));
    }
    let made = match kind {
        VocabularyKind::WordPieces => word_pieces(folder, &settings)?,
        VocabularyKind::BytePairs => byte_pairs(folder, &settings)?,
    };
    Ok(made.map(|json| json.to_string().into_bytes()))
}

fn only_python(folder: &Path, what: &str) -> Error {
    Error::Invalid(format!(
        "{} has no {MADE}, and {what} is not known here: write it in Python with \
         AutoTokenizer.from_pretrained({folder:?}).save_pretrained({folder:?})",
        folder.display()
    ))
}

fn text_of(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io(path))
}

fn json_of(path: &Path) -> Result<Value, Error> {
    let wrong = |error: serde_json::Error| Error::Invalid(format!("{}: {error}", path.display()));
    serde_json::from_str(&text_of(path)?).map_err(wrong)
}

/// BERT's: a line of the file for each id.
fn word_pieces(folder: &Path, settings: &Value) -> Result<Option<Value>, Error> {
    let text = text_of(&folder.join("vocab.txt"))?;
    let ids: Map<String, Value> =
        text.lines().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
    let keys = ["unk_token", "cls_token", "sep_token", "pad_token", "mask_token"];
    let usual = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"];
    let special: [String; 5] = std::array::from_fn(|at| token(settings, keys[at], usual[at]));
    let [unknown, first, last, ..] = &special;
    // Another list of words that has this name.
    if !ids.contains_key(unknown) {
        return Ok(None);
    }
    let (Some(first_id), Some(last_id)) = (ids.get(first), ids.get(last)) else { return Ok(None) };
    check_added(folder, &ids)?;
    let flag = |key: &str| settings[key].as_bool().unwrap_or(true);
    Ok(Some(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(&ids, &special),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": flag("do_lower_case"),
            "handle_chinese_chars": flag("tokenize_chinese_chars"),
            "strip_accents": settings["strip_accents"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": [first, first_id], "sep": [last, last_id]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": ids,
        },
    })))
}

/// RoBERTa's: ids of parts of words, and which two parts become one.
fn byte_pairs(folder: &Path, settings: &Value) -> Result<Option<Value>, Error> {
    let Value::Object(ids) = json_of(&folder.join("vocab.json"))? else { return Ok(None) };
    let text = text_of(&folder.join("merges.txt"))?;
    let merges: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    let keys = ["cls_token", "sep_token", "unk_token", "pad_token", "mask_token"];
    let usual = ["<s>", "</s>", "<unk>", "<pad>", "<mask>"];
    let special: [String; 5] = std::array::from_fn(|at| token(settings, keys[at], usual[at]));
    let [first, last, ..] = &special;
    let (Some(first_id), Some(last_id)) = (ids.get(first), ids.get(last)) else { return Ok(None) };
    check_added(folder, &ids)?;
    let space = settings["add_prefix_space"].as_bool().unwrap_or(false);
    Ok(Some(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(&ids, &special),
        "normalizer": null,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true,
        },
        "post_processor": {
            "type": "RobertaProcessing", "cls": [first, first_id], "sep": [last, last_id],
            "trim_offsets": true, "add_prefix_space": space,
        },
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": ids,
            "merges": merges,
        },
    })))
}

/// A special token: a text, or an object with one.
fn token(settings: &Value, key: &str, usual: &str) -> String {
    let said = &settings[key];
    said.as_str().or_else(|| said["content"].as_str()).unwrap_or(usual).to_string()
}

/// Tokens that were added have ids of their own, which nothing here gives them.
fn check_added(folder: &Path, ids: &Map<String, Value>) -> Result<(), Error> {
    let file = folder.join("added_tokens.json");
    if !file.is_file() {
        return Ok(());
    }
    let Value::Object(added) = json_of(&file)? else { return Ok(()) };
    match added.keys().find(|name| !ids.contains_key(*name)) {
        Some(name) => Err(only_python(folder, &format!("the token {name:?} of added_tokens.json"))),
        None => Ok(()),
    }
}

/// The special tokens that there are, in the order of their ids.
fn added(ids: &Map<String, Value>, names: &[String]) -> Vec<Value> {
    let there = names.iter().filter_map(|name| Some((ids.get(name)?.as_u64()?, name)));
    let mut found: Vec<(u64, &String)> = there.collect();
    found.sort_unstable();
    found.dedup();
    let one = |(id, name): (u64, &String)| {
        json!({
            "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    found.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\ncafe\nCaf\n##é\nwarm\n##er\n!\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    fn made(folder: &tempfile::TempDir) -> Result<Option<Vec<u8>>, Error> {
        make(&folder.path().join(MADE))
    }

    /// The ids are those of transformers' `BertTokenizer`.
    #[cfg(feature = "text")]
    #[test]
    fn words_become_the_tokens_of_python() {
        let check = |files: &[(&str, &str)], expected: [&[i64]; 3]| {
            let file = made(&folder(files)).expect("made").expect("a vocabulary is there");
            let tokenizer = super::super::Tokenizer::parse(&file, 16).expect("a tokenizer");
            for (text, ids) in ["Café", "a warmer FILM!", "[MASK]"].into_iter().zip(expected) {
                assert_eq!(tokenizer.encode(text).expect("encodes"), ids, "{text}");
            }
            let pair = tokenizer.encode_pair("film", "warm").expect("encodes");
            assert_eq!((pair.ids, pair.types), (vec![2, 5, 3, 9, 3], vec![0, 0, 0, 1, 1]));
        };
        let words = ("vocab.txt", WORDS);
        check(&[words], [&[2, 6, 3], &[2, 1, 9, 10, 5, 11, 3], &[2, 4, 3]]);
        let cased = r#"{"do_lower_case": false, "tokenizer_class": "BertTokenizerFast",
            "cls_token": {"content": "[CLS]"}}"#;
        let cased = ("tokenizer_config.json", cased);
        check(&[words, cased], [&[2, 7, 8, 3], &[2, 1, 9, 10, 1, 11, 3], &[2, 4, 3]]);
    }

    #[test]
    fn what_would_be_another_tokenizer_is_left_to_python() {
        let check = |name: &str, text: &str, expected: &str| {
            let folder = folder(&[("vocab.txt", WORDS), (name, text)]);
            assert!(is_possible(&folder.path().join(MADE)));
            let error = made(&folder).expect_err("another tokenizer").to_string();
            assert!(error.contains(expected) && error.contains("save_pretrained("), "{error}");
        };
        let class = r#"{"tokenizer_class": "BertJapaneseTokenizer"}"#;
        check("tokenizer_config.json", class, "tokenizer_class \"BertJapaneseTokenizer\"");
        let extra = r#"{"[CLS]": 2, "[NEW]": 12}"#;
        check("added_tokens.json", extra, "the token \"[NEW]\" of added_tokens.json");
    }

    #[test]
    fn other_files_make_none() {
        let list = folder(&[("vocab.txt", "red\ngreen\n")]);
        assert!(made(&list).expect("no mistake").is_none(), "a list of words");
        assert!(make(&list.path().join("words.txt")).expect("no mistake").is_none());
        let half = folder(&[("vocab.json", "{}")]);
        assert!(!is_possible(&half.path().join(MADE)) && made(&half).expect("none").is_none());
    }
}
