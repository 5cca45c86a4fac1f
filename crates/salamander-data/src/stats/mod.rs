//! Describes the columns of a dataset in one pass and bounded memory, so that people see what they train on
//! and the normaliser knows mean and deviation.

mod numbers;
mod sketch;
mod words;

use std::num::NonZero;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use numbers::Numbers;
pub use words::Words;

use crate::parallel::in_parallel;
use crate::{Dataset, Error, Row, Value};

/// Records asked for at once when a dataset is described.
const BLOCK: u64 = 4096;
/// Records described by one thread and then merged.
const PART: u64 = 1 << 16;

/// Statistics of each column. As JSON they have no raw values: of words the most frequent ones, of numbers count,
/// range, mean, deviation and median; what was read from JSON has no words.
///
/// ```
/// use salamander_data::{Row, Value, stats::Stats};
///
/// let row = |age| Row::new(vec![("age".into(), Value::Text(age))]);
/// let stats: Stats = [row("30"), row("50"), row("")].into_iter().collect();
/// assert_eq!(stats.normaliser("age"), Some((40.0, 10.0)));
/// assert_eq!(stats.missing("age"), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    records: u64,
    columns: Vec<ColumnStats>,
}

/// What is known of one column. A column of a text file is both text and, where it can be read so, numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColumnStats {
    /// The column's name.
    pub name: String,
    /// Records that have a value here; an empty text or list counts as none.
    pub count: u64,
    /// Values, which are more than records in a column of lists.
    pub values: u64,
    /// The values that are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
    /// The values that are text.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub words: Option<Words>,
    /// The lengths of values that are bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
}

/// The shortest and the longest of several strings of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
}

impl Stats {
    /// Reads a whole dataset on all processors and tells `progress` how many records more are done, from any thread.
    ///
    /// Parts of a fixed size are merged in their order, so the result is the same on any number of processors.
    pub fn of(dataset: &Dataset, progress: impl Fn(u64) + Sync) -> Result<Stats, Error> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let parts: Vec<u64> = (0..dataset.len()).step_by(PART as usize).collect();
        let part = |&start: &u64| {
            let range = start..dataset.len().min(start + PART);
            Stats::of_range(dataset, range, &progress)
        };
        let mut stats = Stats::default();
        // A few parts at a time, so that few of them wait to be merged.
        for together in parts.chunks(threads) {
            for part in in_parallel(together, threads, part, |_| ())? {
                stats.merge(&part);
            }
        }
        Ok(stats)
    }

    fn of_range(
        dataset: &Dataset,
        records: Range<u64>,
        progress: &impl Fn(u64),
    ) -> Result<Stats, Error> {
        let mut stats = Stats::default();
        for start in records.clone().step_by(BLOCK as usize) {
            let block: Vec<u64> = (start..records.end.min(start + BLOCK)).collect();
            dataset.read(&block, &mut |_, row| {
                stats.observe(&row);
                Ok(())
            })?;
            progress(block.len() as u64);
        }
        Ok(stats)
    }

    /// Takes back what was written as JSON: statistics, or the answer of `salamander data inspect DATA --stats
    /// --json`, which has them inside.
    pub fn from_file(path: &Path) -> Result<Stats, Error> {
        Self::from_bytes(path, &std::fs::read(path).map_err(Error::io(path))?)
    }

    /// [`Stats::from_file`] of the content of the file at `path`, which errors name.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Stats, Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum StatsFile {
            Answer { stats: Stats },
            Stats(Stats),
        }
        match serde_json::from_slice(bytes) {
            Ok(StatsFile::Answer { stats } | StatsFile::Stats(stats)) => Ok(stats),
            Err(_) => Err(Error::form(
                path,
                "no statistics: make them with `salamander data inspect DATA --stats --json`",
            )),
        }
    }

    /// Takes one record in.
    fn observe(&mut self, row: &Row<'_>) {
        self.records += 1;
        for (position, (name, value)) in row.columns().enumerate() {
            self.column_mut(position, name).observe(value);
        }
    }

    /// Takes in what was seen of other records, as if all had been observed here.
    fn merge(&mut self, other: &Stats) {
        if self.records == 0 {
            return self.clone_from(other);
        }
        self.records += other.records;
        for (position, column) in other.columns.iter().enumerate() {
            self.column_mut(position, &column.name).merge(column);
        }
    }

    /// All columns, in the order in which they were first seen.
    pub fn columns(&self) -> &[ColumnStats] {
        &self.columns
    }

    fn column(&self, name: &str) -> Option<&ColumnStats> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// How many records have no value in a column.
    pub fn missing(&self, name: &str) -> u64 {
        self.records.saturating_sub(self.column(name).map_or(0, |column| column.count))
    }

    /// Mean and standard deviation of a column, for [`normalise`](crate::preprocess::normalise); nothing when
    /// a value is no number.
    pub fn normaliser(&self, name: &str) -> Option<(f32, f32)> {
        let column = self.column(name)?;
        let numbers = column.numbers.as_ref()?;
        let all = numbers.count > 0 && numbers.count + numbers.not_finite == column.values;
        all.then(|| (numbers.mean as f32, numbers.std() as f32))
    }

    /// Rows mostly have the same columns in the same order, so the position is right nearly always.
    fn column_mut(&mut self, position: usize, name: &str) -> &mut ColumnStats {
        let hit = self.columns.get(position).is_some_and(|column| column.name == name);
        let found = match hit {
            true => Some(position),
            false => self.columns.iter().position(|column| column.name == name),
        };
        let position = found.unwrap_or_else(|| {
            self.columns.push(ColumnStats { name: name.to_owned(), ..ColumnStats::default() });
            self.columns.len() - 1
        });
        &mut self.columns[position]
    }
}

impl<'a> FromIterator<Row<'a>> for Stats {
    fn from_iter<I: IntoIterator<Item = Row<'a>>>(rows: I) -> Stats {
        let mut stats = Stats::default();
        rows.into_iter().for_each(|row| stats.observe(&row));
        stats
    }
}

impl ColumnStats {
    fn observe(&mut self, value: &Value<'_>) {
        match value {
            // Nothing is written between two commas: no value, not an empty one.
            Value::Text(text) if text.trim().is_empty() => return,
            Value::Text(text) => self.observe_text(text),
            Value::Bytes(bytes) => self.observe_length(bytes.len()),
            Value::List(items) => items.iter().for_each(|item| self.observe_length(item.len())),
            Value::Ints(items) => items.iter().for_each(|&item| self.observe_number(item as f64)),
            Value::Floats(items) => {
                items.iter().for_each(|&item| self.observe_number(item.into()));
            }
        }
        self.values += value.count() as u64;
        self.count += u64::from(value.count() > 0);
    }

    fn observe_text(&mut self, text: &str) {
        if let Ok(number) = text.trim().parse() {
            self.observe_number(number);
        }
        self.words.get_or_insert_default().observe(text);
    }

    fn observe_number(&mut self, number: f64) {
        self.numbers.get_or_insert_default().observe(number);
    }

    fn observe_length(&mut self, length: usize) {
        let length = length as u64;
        self.merge_lengths(Lengths { min: length, max: length });
    }

    fn merge(&mut self, other: &ColumnStats) {
        self.count += other.count;
        self.values += other.values;
        if let Some(numbers) = &other.numbers {
            self.numbers.get_or_insert_default().merge(numbers);
        }
        if let Some(words) = &other.words {
            self.words.get_or_insert_default().merge(words);
        }
        if let Some(lengths) = other.lengths {
            self.merge_lengths(lengths);
        }
    }

    fn merge_lengths(&mut self, other: Lengths) {
        let lengths = self.lengths.get_or_insert(other);
        lengths.min = lengths.min.min(other.min);
        lengths.max = lengths.max.max(other.max);
    }
}

#[cfg(test)]
mod tests;
