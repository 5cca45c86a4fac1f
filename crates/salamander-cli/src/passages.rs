//! A long text, cut into passages for a model that goes on with texts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use salamander_data::{Format, Row, Value, sink};

/// Bytes of a passage: as many as the zoo's GPT looks at, and one to guess.
const BYTES: usize = 129;
/// The share at the end of the text that is kept to validate on.
const HELD_BACK: f64 = 0.1;

/// Writes `train.jsonl` and `valid.jsonl` with the column `text` into `out` and returns their paths.
pub(crate) fn fetch(
    source: Option<&str>,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let Some(source) = source else { bail!("passages: name a text file with --from") };
    let text = fs::read_to_string(source).with_context(|| format!("{source}: cannot be read"))?;
    let passages = cut(&text);
    ensure!(passages.len() >= 2, "{source}: {} bytes are too few", text.len());
    let held_back = ((passages.len() as f64 * HELD_BACK) as usize).max(1);
    let (training, validation) = passages.split_at(passages.len() - held_back);
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut paths = Vec::new();
    for (name, passages) in [("train.jsonl", training), ("valid.jsonl", validation)] {
        let path = out.join(name);
        let mut file = sink::create(&path, Format::JsonLines)?;
        for passage in passages {
            file.write(&Row::new(vec![("text".into(), Value::Text(passage))]))?;
        }
        file.finish()?;
        progress(&format!("{}: {} records", path.display(), passages.len()));
        paths.push(path);
    }
    Ok(paths)
}

/// Passages of at most [`BYTES`] bytes, each beginning with the last letter of the one before it, so that every letter
/// but the first is guessed once. A rest of one letter is left out.
fn cut(text: &str) -> Vec<&str> {
    let mut passages = Vec::new();
    let mut from = 0;
    while from < text.len() {
        let mut to = text.len().min(from + BYTES);
        while !text.is_char_boundary(to) {
            to -= 1;
        }
        let passage = &text[from..to];
        let last = passage.char_indices().next_back().map_or(0, |(at, _)| at);
        if last == 0 {
            break;
        }
        passages.push(passage);
        if to == text.len() {
            break;
        }
        from += last;
    }
    passages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_but_the_first_is_guessed_once() {
        for text in
            ["a", "ab", &"héllo wörld ".repeat(50), &"x".repeat(BYTES), &"y".repeat(BYTES + 1)]
        {
            let passages = cut(text);
            let guessed: String =
                passages.iter().map(|p| p.chars().skip(1).collect::<String>()).collect();
            assert_eq!(guessed, text.chars().skip(1).collect::<String>());
            assert!(passages.iter().all(|passage| passage.len() <= BYTES));
        }
    }

    #[test]
    fn the_end_of_the_text_is_kept_to_validate_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("input.txt");
        fs::write(&source, "to be or not to be\n".repeat(200)).expect("written");
        let source = source.display().to_string();
        let files = fetch(Some(&source), &folder.path().join("out"), &mut |_| {}).expect("made");
        let lines: Vec<usize> = files
            .iter()
            .map(|file| fs::read_to_string(file).expect("written").lines().count())
            .collect();
        assert_eq!(lines, [27, 3]);
        assert!(fetch(None, folder.path(), &mut |_| {}).is_err());
    }
}
