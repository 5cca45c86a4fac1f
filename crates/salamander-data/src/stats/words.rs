//! How many different words a column has, and which are frequent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Different words that are counted.
const MOST_WORDS: usize = 10_000;

/// Bytes of words that are kept.
const MOST_BYTES: usize = 4 << 20;

/// Different texts and how often each occurs. The first 10,000 (or 4 MiB) are counted exactly; after that new
/// ones only make [`Words::exact`] false.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    counts: BTreeMap<String, u64>,
    bytes: usize,
    /// Occurrences of words that were not counted on their own.
    others: u64,
}

impl Words {
    /// How many different words there are, or at least are when not [`Words::exact`].
    pub fn distinct(&self) -> u64 {
        self.counts.len() as u64 + u64::from(self.others > 0)
    }

    /// Whether all words were counted.
    pub fn exact(&self) -> bool {
        self.others == 0
    }

    /// The most frequent words and how often they occur, in alphabetic order where they are equal.
    pub fn top(&self, most: usize) -> Vec<(&str, u64)> {
        let mut words: Vec<(&str, u64)> =
            self.counts.iter().map(|(word, &count)| (word.as_str(), count)).collect();
        words.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        words.truncate(most);
        words
    }

    pub(super) fn observe(&mut self, word: &str) {
        self.add(word, 1);
    }

    pub(super) fn merge(&mut self, other: &Words) {
        self.others += other.others;
        for (word, &count) in &other.counts {
            self.add(word, count);
        }
    }

    fn add(&mut self, word: &str, times: u64) {
        if let Some(count) = self.counts.get_mut(word) {
            *count += times;
        } else if self.counts.len() < MOST_WORDS && self.bytes + word.len() <= MOST_BYTES {
            self.counts.insert(word.to_owned(), times);
            self.bytes += word.len();
        } else {
            self.others += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_words_come_first() {
        let mut words = Words::default();
        "b a c b c d".split(' ').for_each(|word| words.observe(word));
        assert_eq!(words.top(3), [("b", 2), ("c", 2), ("a", 1)]);
        assert_eq!((words.distinct(), words.exact()), (4, true));
    }

    #[test]
    fn memory_is_bounded_by_words_and_bytes() {
        let mut words = Words::default();
        (0..10_000).for_each(|word| words.observe(&word.to_string()));
        assert!(words.exact());
        words.observe("new");
        words.observe("7");
        assert_eq!((words.distinct(), words.exact()), (10_001, false));
        assert_eq!(words.top(1), [("7", 2)]);
        let mut long = Words::default();
        (0..10).for_each(|word| long.observe(&word.to_string().repeat(1 << 20)));
        assert!(!long.exact() && long.bytes <= MOST_BYTES);
    }

    #[test]
    fn merged_counts_add_up() {
        let (mut one, mut two) = (Words::default(), Words::default());
        "a b".split(' ').for_each(|word| one.observe(word));
        "b c".split(' ').for_each(|word| two.observe(word));
        one.merge(&two);
        assert_eq!(one.top(9), [("b", 2), ("a", 1), ("c", 1)]);
    }
}
