//! Describes the columns of a dataset in one pass and bounded memory, so that people see what they train on
//! and the normaliser knows mean and deviation.

mod numbers;
mod words;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use numbers::Numbers;
pub use words::Words;

use crate::{Dataset, Error, Row, Value};

/// Records asked for at once when a dataset is described.
const BLOCK: u64 = 4096;

/// Statistics of each column, which can be taken apart over workers and merged.
///
/// ```
/// use salamander_data::{Row, Value, stats::Stats};
///
/// let row = |age| Row::new(vec![("age".into(), Value::Text(age))]);
/// let stats: Stats = [row("30"), row("50"), row("")].into_iter().collect();
/// assert_eq!(stats.normaliser("age"), Some((40.0, 10.0)));
/// assert_eq!((stats.records(), stats.missing("age")), (3, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    records: u64,
    columns: Vec<Column>,
}

/// What is known of one column. A column of a text file is both text and, where it can be read so, numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// Reads a whole dataset.
    pub fn of(dataset: &Dataset) -> Result<Stats, Error> {
        let mut stats = Stats::default();
        for start in (0..dataset.len()).step_by(BLOCK as usize) {
            let indices: Vec<u64> = (start..dataset.len().min(start + BLOCK)).collect();
            dataset.read(&indices, &mut |_, row| {
                stats.observe(&row);
                Ok(())
            })?;
        }
        Ok(stats)
    }

    /// Takes back what was written as JSON: statistics, or the answer of `salamander data inspect DATA --stats
    /// --json`, which has them inside.
    pub fn from_file(path: &Path) -> Result<Stats, Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Answer { stats: Stats },
            Stats(Stats),
        }
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        match serde_json::from_slice(&bytes) {
            Ok(Written::Answer { stats } | Written::Stats(stats)) => Ok(stats),
            Err(_) => {
                let reason =
                    "no statistics: make them with `salamander data inspect DATA --stats --json`";
                Err(Error::Form { path: path.to_owned(), reason: reason.to_owned() })
            }
        }
    }

    /// Takes one record in.
    pub fn observe(&mut self, row: &Row<'_>) {
        self.records += 1;
        for (position, (name, value)) in row.columns().enumerate() {
            self.column_mut(position, name).observe(value);
        }
    }

    /// Takes in what was seen of other records, as if all had been observed here.
    pub fn merge(&mut self, other: &Stats) {
        self.records += other.records;
        for (position, column) in other.columns.iter().enumerate() {
            self.column_mut(position, &column.name).merge(column);
        }
    }

    /// How many records were seen.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// All columns, in the order in which they were first seen.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One column.
    pub fn column(&self, name: &str) -> Option<&Column> {
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
    fn column_mut(&mut self, position: usize, name: &str) -> &mut Column {
        let hit = self.columns.get(position).is_some_and(|column| column.name == name);
        let found = match hit {
            true => Some(position),
            false => self.columns.iter().position(|column| column.name == name),
        };
        let position = found.unwrap_or_else(|| {
            self.columns.push(Column { name: name.to_owned(), ..Column::default() });
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

impl Column {
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

    fn merge(&mut self, other: &Column) {
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
mod tests {
    use std::sync::Arc;

    use super::*;

    fn sample(records: std::ops::Range<i64>) -> Stats {
        let row = |record: i64| {
            let mut columns = vec![
                ("id".into(), Value::Ints(vec![record, record + 1].into())),
                ("image".into(), Value::Bytes(&b"abcdef"[..record as usize % 7])),
                ("city".into(), Value::Text(["Bern", "Chur", ""][record as usize % 3])),
            ];
            if record % 2 == 0 {
                columns.push(("rare".into(), Value::Floats(vec![0.5].into())));
            }
            Row::new(columns)
        };
        records.map(row).collect()
    }

    #[test]
    fn columns_are_described_by_their_kind() {
        let stats = sample(0..30);
        let names: Vec<&str> = stats.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "image", "city", "rare"]);
        let id = stats.column("id").unwrap();
        assert_eq!((id.count, id.values), (30, 60));
        assert_eq!(stats.column("image").unwrap().lengths, Some(Lengths { min: 0, max: 6 }));
        assert_eq!(
            (stats.missing("city"), stats.missing("rare"), stats.missing("x")),
            (10, 15, 30)
        );
        let words = stats.column("city").unwrap().words.as_ref().unwrap();
        assert_eq!(words.top(1), [("Bern", 10)]);
    }

    #[test]
    fn only_columns_of_numbers_can_be_normalised() {
        let stats = sample(0..30);
        assert_eq!(stats.normaliser("rare"), Some((0.5, 0.0)));
        assert_eq!(stats.normaliser("city"), None);
        assert_eq!(stats.normaliser("image"), None);
        assert_eq!(stats.normaliser("nothing"), None);
        let mixed: Stats = ["1", "two"]
            .map(|x| Row::new(vec![("x".into(), Value::Text(x))]))
            .into_iter()
            .collect();
        assert_eq!(mixed.normaliser("x"), None);
    }

    #[test]
    fn merged_parts_are_the_whole() {
        let mut merged = sample(0..10);
        merged.merge(&sample(10..30));
        let whole = sample(0..30);
        assert_eq!(merged.records(), 30);
        for (ours, theirs) in merged.columns().iter().zip(whole.columns()) {
            assert_eq!(
                (&ours.name, ours.count, ours.values),
                (&theirs.name, theirs.count, theirs.values)
            );
            assert_eq!((&ours.words, ours.lengths), (&theirs.words, theirs.lengths));
        }
        let ours = merged.normaliser("id").unwrap();
        let theirs = whole.normaliser("id").unwrap();
        assert!((ours.0 - theirs.0).abs() < 1e-5 && (ours.1 - theirs.1).abs() < 1e-5);
    }

    #[test]
    fn a_file_has_statistics_alone_or_in_the_answer_of_inspect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats.json");
        let stats = serde_json::to_value(sample(0..30)).unwrap();
        let check = |written: serde_json::Value, good: bool| {
            std::fs::write(&path, written.to_string()).unwrap();
            assert_eq!(Stats::from_file(&path).ok(), good.then(|| sample(0..30)), "{written:.60}");
        };
        check(stats.clone(), true);
        check(serde_json::json!({"format": "csv", "records": 30, "stats": stats}), true);
        check(serde_json::json!({"format": "csv", "records": 30, "stats": null}), false);
        check(serde_json::json!([1, 2]), false);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Stats::from_file(&path), Err(Error::Io { .. })));
    }

    #[test]
    fn json_round_trips() {
        for stats in [Stats::default(), sample(0..30)] {
            let json = serde_json::to_string(&stats).unwrap();
            assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
        }
    }

    #[test]
    fn a_dataset_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let lines: String = (0..5000).map(|record| format!("{record}\n")).collect();
        std::fs::write(&path, format!("x\n{lines}")).unwrap();
        let reader = crate::open(&[path], None).unwrap();
        let stats = Stats::of(&Dataset::new(Arc::from(reader)).unwrap()).unwrap();
        assert_eq!(stats.records(), 5000);
        assert_eq!(stats.normaliser("x").map(|(mean, _)| mean), Some(2499.5));
    }
}
