//! How much of a long text is enough. Tokenizers normalise and split a whole text before the model takes the few
//! tokens that it has room for, so that a text of megabytes took seconds and hundreds of megabytes.

use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// Whether no token before a space depends on what follows it. It is said only of parts that are known for it; with
/// others a text is read as a whole.
pub(super) fn ends_at_spaces(tokenizer: &Tokenizer) -> bool {
    let added = tokenizer.get_added_tokens_decoder();
    tokenizer.get_normalizer().is_none_or(keeps_spaces)
        && tokenizer.get_pre_tokenizer().is_some_and(splits_at_spaces)
        && !added.values().any(|token| token.content.contains(char::is_whitespace))
}

/// Whether a space between words is one afterwards, and what is before it is the same whatever is behind.
fn keeps_spaces(normalizer: &NormalizerWrapper) -> bool {
    match normalizer {
        NormalizerWrapper::Sequence(all) => all.as_ref().iter().all(keeps_spaces),
        NormalizerWrapper::Replace(replace) => {
            // Its pattern is nowhere but in what it is written as.
            let written = serde_json::to_value(replace).unwrap_or_default();
            let pattern = |kind: &str| written["pattern"][kind].as_str();
            // Several spaces become one: places to cut have a single one.
            pattern("Regex") == Some(" {2,}")
                || pattern("String").is_some_and(|text| !text.contains(char::is_whitespace))
        }
        NormalizerWrapper::ByteLevel(_) => false,
        NormalizerWrapper::BertNormalizer(_)
        | NormalizerWrapper::StripNormalizer(_)
        | NormalizerWrapper::StripAccents(_)
        | NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFKC(_)
        | NormalizerWrapper::NFKD(_)
        | NormalizerWrapper::Lowercase(_)
        | NormalizerWrapper::Nmt(_)
        | NormalizerWrapper::Precompiled(_)
        | NormalizerWrapper::Prepend(_) => true,
    }
}

/// Whether a text falls into pieces at each space, of which the model makes tokens one by one. What splits pieces
/// further cannot join them again, so the first splitter of several says it.
fn splits_at_spaces(splitter: &PreTokenizerWrapper) -> bool {
    match splitter {
        PreTokenizerWrapper::Sequence(all) => all.as_ref().first().is_some_and(splits_at_spaces),
        PreTokenizerWrapper::Metaspace(own) => own.get_split(),
        PreTokenizerWrapper::ByteLevel(own) => own.use_regex,
        PreTokenizerWrapper::BertPreTokenizer(_)
        | PreTokenizerWrapper::Whitespace(_)
        | PreTokenizerWrapper::WhitespaceSplit(_) => true,
        _ => false,
    }
}

/// The longest beginning of a text within so many bytes that ends before a single space between words; nothing where
/// there is no such place.
pub(super) fn cut(text: &str, bytes: usize) -> Option<&str> {
    let of_word = |c: char| c.is_alphanumeric() || c.is_ascii_punctuation();
    let within = &text[..text.floor_char_boundary(bytes)];
    within.rmatch_indices(' ').map(|(place, _)| text.split_at(place)).find_map(|(before, rest)| {
        let ends = before.chars().next_back().is_some_and(of_word);
        let goes_on = rest.chars().nth(1).is_some_and(of_word);
        (ends && goes_on).then_some(before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_words() {
        let check = |text, bytes, expected| assert_eq!(cut(text, bytes), expected, "{text}");
        check("a good film", 8, Some("a good"));
        check("a good film", 6, Some("a"));
        check("a good  film", 11, Some("a"));
        check("good,\n film", 9, None);
        check("电影 好 看", 9, Some("电影"));
        check("电影很好", 7, None);
        check("", 7, None);
    }
}
