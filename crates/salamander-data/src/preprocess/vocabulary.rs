//! Words and their numbers: an embedding needs a row for each word that is known, and some for the others.

use std::collections::HashMap;
use std::path::Path;

use super::{Error, hash};

/// Words numbered from 0 in their order; words that are not among them share the buckets after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    words: HashMap<String, i64>,
    oov: u64,
}

impl Vocabulary {
    /// The words of a file, one per line, and the number of buckets for words out of the vocabulary.
    ///
    /// Spaces belong to the word; the line end (`\n` or `\r\n`) does not.
    ///
    /// ```
    /// use salamander_data::preprocess::Vocabulary;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("cities.txt");
    /// std::fs::write(&path, "Bern\nLa Chaux-de-Fonds\n")?;
    /// let cities = Vocabulary::from_file(&path, 0)?;
    /// assert_eq!(cities.lookup("La Chaux-de-Fonds"), Some(1));
    /// assert_eq!(cities.lookup("Berlin"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_file(path: &Path, oov: u64) -> Result<Vocabulary, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Error::Io { path: path.to_owned(), cause })?;
        Self::parse(path, &text, oov)
    }

    /// The words in the text of the file at `path`, which errors name.
    pub fn parse(path: &Path, text: &str, oov: u64) -> Result<Vocabulary, Error> {
        let mut words = HashMap::new();
        for (number, word) in text.lines().enumerate() {
            let (line, vocabulary) = (number + 1, || path.display().to_string());
            if word.trim().is_empty() {
                return Err(Error::EmptyLine { vocabulary: vocabulary(), line });
            }
            if let Some(first) = words.insert(word.to_owned(), number as i64) {
                let (first, word) = (first as usize + 1, word.to_owned());
                return Err(Error::RepeatedLine { vocabulary: vocabulary(), line, first, word });
            }
        }
        Ok(Vocabulary { words, oov })
    }

    /// The words in their order.
    pub fn words(&self) -> Vec<&str> {
        let mut words: Vec<(i64, &str)> =
            self.words.iter().map(|(word, &number)| (number, word.as_str())).collect();
        words.sort_unstable();
        words.into_iter().map(|(_, word)| word).collect()
    }

    /// The word's number; for a word out of the vocabulary one of the buckets after the last word, chosen by
    /// [`hash()`], or nothing where there are none.
    pub fn lookup(&self, word: &str) -> Option<i64> {
        match self.words.get(word) {
            Some(&number) => Some(number),
            None if self.oov == 0 => None,
            None => Some(self.words.len() as i64 + hash(word, self.oov)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_share_the_last_buckets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        std::fs::write(&path, "a\nb\n").unwrap();
        let words = Vocabulary::from_file(&path, 3).unwrap();
        let found: Vec<i64> =
            (0..100).map(|word: i64| words.lookup(&word.to_string()).unwrap()).collect();
        assert!(found.iter().all(|number| (2..5).contains(number)));
        assert!((2..5).all(|bucket| found.contains(&bucket)));
    }

    #[test]
    fn files_with_faults_are_named_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        let check = |content: &[u8], expected: &str| {
            std::fs::write(&path, content).unwrap();
            let found = match Vocabulary::from_file(&path, 0) {
                Ok(words) => format!("{} words", words.words.len()),
                Err(error) => error.to_string(),
            };
            assert_eq!(found.replace(&path.display().to_string(), "words.txt"), expected);
        };
        check(b"a\r\nb\r\n", "2 words");
        check(b"a\nb", "2 words");
        check(b"", "0 words");
        check(b"a\n\nb\n", "words.txt: line 2 is empty: write one word per line");
        check(b"a\nb\n \n", "words.txt: line 3 is empty: write one word per line");
        check(b"a\nb\na\n", "words.txt: line 3 repeats \"a\" of line 1: remove one of them");
        check(b"\xff", "vocabulary words.txt: stream did not contain valid UTF-8");
        std::fs::remove_file(&path).unwrap();
        let missing = Vocabulary::from_file(&path, 0).unwrap_err().to_string();
        assert!(
            missing.ends_with("words.txt: No such file or directory (os error 2)"),
            "{missing}"
        );
    }
}
