//! Inputs that become buckets: text is read and looked up, numbers and words become integers.

use std::path::Path;
use std::sync::OnceLock;

use burn::tensor::{Device, Int, Tensor};
use salamander_data::preprocess::{Vocabulary, hash_of_column};
use salamander_data::{Row, Value};

use super::{Column, DecodeError, Target};

/// A vocabulary's file, read once per process when the first record needs it.
#[derive(Debug)]
pub struct Lookup {
    file: &'static str,
    oov: u64,
    words: OnceLock<Result<Vocabulary, String>>,
}

impl Lookup {
    /// The words of a file, relative to the current folder, and the buckets for all others.
    pub const fn new(file: &'static str, oov: u64) -> Self {
        Self { file, oov, words: OnceLock::new() }
    }

    /// The number of a word.
    pub fn number(&self, column: &str, word: &str) -> Result<i64, DecodeError> {
        let read = || Vocabulary::from_file(Path::new(self.file), self.oov);
        let words = self.words.get_or_init(|| read().map_err(|error| error.to_string()));
        let words = words.as_ref().map_err(|error| DecodeError::new(column, error))?;
        words.lookup(word).ok_or_else(|| {
            let reason = format!("{word:?} is not in {}: add it, or say oov = 1", self.file);
            DecodeError::new(column, reason)
        })
    }
}

/// Reads a column of text; `missing` stands in for one that is absent or empty.
pub fn text(row: &Row<'_>, columns: &[&str], missing: Option<&str>) -> Result<String, DecodeError> {
    let [column] = columns else {
        return Err(DecodeError::new(
            columns.join(", "),
            "text has one column: write column = \"x\"",
        ));
    };
    if let Some(missing) = missing.filter(|_| is_missing(row, column)) {
        return Ok(missing.to_owned());
    }
    match row.get(column) {
        // The text of an integer, so that it has the same bucket from a CSV and from any other file.
        Some(Value::Ints(items)) if items.len() == 1 => Ok(items[0].to_string()),
        _ => row.text(column).map(str::to_owned).map_err(|error| DecodeError::of(column, error)),
    }
}

/// Reads a text of each column; `missing` stands in for those that are absent or empty.
pub fn texts<const N: usize>(
    row: &Row<'_>,
    columns: &[&str; N],
    missing: Option<&str>,
) -> Result<[String; N], DecodeError> {
    let mut found = [const { String::new() }; N];
    for (found, column) in found.iter_mut().zip(columns) {
        *found = text(row, &[column], missing)?;
    }
    Ok(found)
}

/// Reads a feature of `len` values; `missing` stands in for those of a column that is absent or empty.
pub fn feature_or<C: Column>(
    row: &Row<'_>,
    columns: &[&str],
    missing: f64,
    len: usize,
) -> Result<C, DecodeError> {
    if !columns.iter().any(|column| is_missing(row, column)) {
        return C::read(row, columns);
    }
    // As text, because every type of number reads that without losing digits.
    let filling = vec![missing.to_string(); len / columns.len().max(1)].join(" ");
    let value = |column: &&str| match row.get(column).filter(|_| !is_missing(row, column)) {
        Some(value) => value.clone(),
        None => Value::Text(&filling),
    };
    let filled = columns.iter().map(|column| ((*column).into(), value(column)));
    C::read(&Row::new(filled.collect()), columns)
}

/// A tensor of the buckets of numbers, which `append` takes from a column: floats or integers.
pub fn bucketed<'a, const D: usize, C: Column + 'a, T>(
    target: Target<'_, D>,
    columns: impl Iterator<Item = &'a C>,
    append: fn(&C, &mut Vec<T>),
    bucket: impl Fn(T) -> i64,
) -> Result<Tensor<D, Int>, DecodeError> {
    let values = target.values(columns, append)?;
    target.ints(values.into_iter().map(bucket).collect())
}

/// A tensor of buckets of words.
pub fn bucket_texts<'a>(
    name: &str,
    words: impl Iterator<Item = &'a String>,
    bucket: impl Fn(&str) -> Result<i64, DecodeError>,
    device: &Device,
) -> Result<Tensor<1, Int>, DecodeError> {
    let buckets = words.map(|word| bucket(word)).collect::<Result<Vec<i64>, _>>()?;
    Target { name, shape: [buckets.len()], device }.ints(buckets)
}

/// A tensor of buckets of one word per column, in which the same word of two columns has two buckets: the columns can
/// then share one table.
pub fn hashed_columns<'a, const N: usize>(
    name: &str,
    records: impl Iterator<Item = &'a [String; N]>,
    columns: &[&str; N],
    buckets: u64,
    device: &Device,
) -> Result<Tensor<2, Int>, DecodeError> {
    let of_record = |words: &'a [String; N]| {
        let words = words.iter().zip(columns);
        words.map(|(word, column)| hash_of_column(column, word, buckets)).collect::<Vec<i64>>()
    };
    let ids: Vec<i64> = records.flat_map(of_record).collect();
    Target { name, shape: [ids.len() / N.max(1), N], device }.ints(ids)
}

/// Whether boundaries ascend; a constant function, so that a derive can ask while it compiles.
pub const fn ascending(boundaries: &[f32]) -> bool {
    let mut at = 1;
    while at < boundaries.len() {
        // False as well when one of them is not a number.
        let rises = boundaries[at - 1] < boundaries[at];
        if !rises {
            return false;
        }
        at += 1;
    }
    true
}

/// Absent, or there without a value.
pub(super) fn is_missing(row: &Row<'_>, column: &str) -> bool {
    match row.get(column) {
        None => true,
        Some(Value::Text(text)) => text.trim().is_empty(),
        Some(Value::Bytes(bytes)) => bytes.is_empty(),
        Some(value) => value.count() == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(value: Option<Value<'a>>) -> Row<'a> {
        Row::new(value.into_iter().map(|value| ("x".into(), value)).collect())
    }

    #[test]
    fn missing_values_are_filled_in() {
        let check = |value: Option<Value<'_>>, expected: [f32; 2]| {
            let found = feature_or::<[f32; 2]>(&row(value), &["x"], 0.1, 2).expect("filled");
            assert_eq!(found, expected);
        };
        check(None, [0.1, 0.1]);
        check(Some(Value::Text(" ")), [0.1, 0.1]);
        check(Some(Value::Floats(vec![].into())), [0.1, 0.1]);
        check(Some(Value::Text("1 2")), [1.0, 2.0]);
        let pair = Row::new(vec![("a".into(), Value::Text("5")), ("b".into(), Value::Text(""))]);
        assert_eq!(feature_or::<[i64; 2]>(&pair, &["a", "b"], -1.0, 2), Ok([5, -1]));
        assert!(feature_or::<u8>(&row(None), &["x"], 0.5, 1).is_err());
    }

    #[test]
    fn text_is_read_from_any_kind_that_has_one() {
        let check = |value: Option<Value<'_>>, missing: Option<&str>, expected: &str| {
            let found = text(&row(value), &["x"], missing);
            assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected);
        };
        check(Some(Value::Text("Bern")), None, "Bern");
        check(Some(Value::Bytes(b"Bern")), None, "Bern");
        check(Some(Value::Ints(vec![-7].into())), None, "-7");
        check(Some(Value::Text("")), Some("none"), "none");
        check(None, Some("none"), "none");
        check(None, None, "column \"x\": missing (the record has: )");
        check(
            Some(Value::Floats(vec![0.5].into())),
            None,
            "column \"x\": floats where text are needed",
        );
    }

    #[test]
    fn boundaries_that_do_not_ascend_are_noticed() {
        assert!(ascending(&[]) && ascending(&[1.0]) && ascending(&[1.0, 2.0]));
        assert!(!ascending(&[2.0, 1.0]) && !ascending(&[1.0, 1.0]) && !ascending(&[f32::NAN, 1.0]));
    }
}
