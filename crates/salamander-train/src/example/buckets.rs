//! Inputs that become buckets: text is read and looked up, numbers and words become integers.

use burn::tensor::{Device, Int, Tensor};
use salamander_data::preprocess::hash_of_column;
use salamander_data::{Row, Value};

use super::{Column, DecodeError, Target};

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
        // Whole numbers among missing ones are floats in many a table.
        Some(Value::Floats(items)) if items.len() == 1 && is_whole(items[0]) => {
            Ok((items[0] as i64).to_string())
        }
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

/// Reads a label that is text; where none is asked for and none is there, nothing.
pub fn label_text(row: &Row<'_>, columns: &[&str], required: bool) -> Result<String, DecodeError> {
    text(row, columns, (!required).then_some(""))
}

/// A tensor of the numbers of labels' classes. Where labels are not asked for, one that is no class is 0.
pub fn label_texts<'a>(
    name: &str,
    words: impl Iterator<Item = &'a String>,
    required: bool,
    class: impl Fn(&str) -> Result<i64, DecodeError>,
    device: &Device,
) -> Result<Tensor<1, Int>, DecodeError> {
    let number = |word: &str| match class(word) {
        Err(_) if !required => Ok(0),
        number => number,
    };
    bucket_texts(name, words, number, device)
}

/// The number of a word among a few.
pub fn class_number(name: &str, classes: &[&str], word: &str) -> Result<i64, DecodeError> {
    let found = classes.iter().position(|class| *class == word);
    found.map(|number| number as i64).ok_or_else(|| DecodeError::new(name, none_of(classes, word)))
}

/// What is wrong with a label that is none of the classes, of which there may be very many.
pub(super) fn none_of(classes: &[&str], word: &str) -> String {
    const TOLD: usize = 20;
    let told = classes.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    match classes.len().saturating_sub(TOLD) {
        0 => format!("{word:?} is none of its classes: {told}"),
        more => format!("{word:?} is none of its classes: {told} and {more} more"),
    }
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

/// Whether a float is an integer that floats tell from its neighbours.
fn is_whole(value: f32) -> bool {
    value.fract() == 0.0 && value.abs() < 1e7
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
        check(Some(Value::Floats(vec![5.0].into())), None, "5");
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
    fn labels_of_text_are_asked_for_in_training_only() {
        let check = |value: Option<&'static str>, required: bool, expected: &str| {
            let found = label_text(&row(value.map(Value::Text)), &["x"], required);
            let number = found.and_then(|word| {
                let class = |word: &str| class_number("x", &["no", "yes"], word);
                label_texts("x", [word].iter(), required, class, &Device::flex())
            });
            let number = number.map(|tensor| tensor.into_data().iter::<i64>().collect::<Vec<_>>());
            let found = number.map_or_else(|error| error.to_string(), |found| format!("{found:?}"));
            assert_eq!(found, expected);
        };
        check(Some("yes"), true, "[1]");
        check(Some("perhaps"), true, "column \"x\": \"perhaps\" is none of its classes: no, yes");
        check(None, true, "column \"x\": missing (the record has: )");
        check(Some("yes"), false, "[1]");
        check(Some("perhaps"), false, "[0]");
        check(None, false, "[0]");
    }

    #[test]
    fn boundaries_that_do_not_ascend_are_noticed() {
        assert!(ascending(&[]) && ascending(&[1.0]) && ascending(&[1.0, 2.0]));
        assert!(!ascending(&[2.0, 1.0]) && !ascending(&[1.0, 1.0]) && !ascending(&[f32::NAN, 1.0]));
    }
}
