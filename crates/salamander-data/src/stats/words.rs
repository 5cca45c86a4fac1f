//! How many different words a column has, and which are frequent.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::sketch::Sketch;

/// Different words that are counted.
const MOST_WORDS: usize = 10_000;

/// Words that JSON has.
const SHOWN: usize = 20;

/// Bytes of words that are kept.
const MOST_BYTES: usize = 4 << 20;

/// Different texts and how often each occurs. The first 10,000 (or 4 MiB) are counted exactly; when there are more,
/// [`Words::exact`] is false and how many different ones there are is an estimate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    counts: BTreeMap<String, u64>,
    bytes: usize,
    /// All words, once there are more than are counted.
    sketch: Option<Sketch>,
}

impl Words {
    /// How many different words there are; about that many when not [`Words::exact`].
    pub fn distinct(&self) -> u64 {
        let counted = self.counts.len() as u64;
        // One more was seen at least.
        self.sketch.as_ref().map_or(counted, |sketch| sketch.estimate().max(counted + 1))
    }

    /// Whether all words were counted.
    pub fn exact(&self) -> bool {
        self.sketch.is_none()
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
        for (word, &count) in &other.counts {
            self.add(word, count);
        }
        if let Some(theirs) = &other.sketch {
            self.sketched().merge(theirs);
        }
    }

    fn add(&mut self, word: &str, times: u64) {
        if let Some(count) = self.counts.get_mut(word) {
            *count += times;
        } else if self.exact()
            && self.counts.len() < MOST_WORDS
            && self.bytes + word.len() <= MOST_BYTES
        {
            self.counts.insert(word.to_owned(), times);
            self.bytes += word.len();
        } else {
            self.sketched().observe(word);
        }
    }

    /// The sketch, which has all counted words from its start.
    fn sketched(&mut self) -> &mut Sketch {
        self.sketch.get_or_insert_with(|| {
            let mut sketch = Sketch::default();
            self.counts.keys().for_each(|word| sketch.observe(word));
            sketch
        })
    }
}

/// How many there are and the most frequent ones; the others would make the file as large as the data.
impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Words", 3)?;
        fields.serialize_field("distinct", &self.distinct())?;
        fields.serialize_field("exact", &self.exact())?;
        fields.serialize_field("top", &self.top(SHOWN))?;
        fields.end()
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
        assert!(!words.exact() && (9_500..10_500).contains(&words.distinct()));
        assert_eq!(words.top(1), [("7", 2)]);
        (10_000..100_000).for_each(|word| words.observe(&word.to_string()));
        assert!((95_000..105_000).contains(&words.distinct()), "{}", words.distinct());
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
