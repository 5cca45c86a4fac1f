//! What each column of a table is good for: numbers, words of a vocabulary, words that are hashed, or nothing.

use salamander_data::MISSING_WORDS;
use salamander_data::stats::{ColumnStats, Stats};

use crate::scaffold::RESERVED;

/// More different words than this are hashed.
pub(super) const MOST_WORDS: usize = 1000;
/// Words by which it is told what a column holds.
const LOOKED_AT: usize = 50;
/// Buckets of hashed words.
pub(super) const BUCKETS: usize = 10_000;

/// An input of the model.
pub(super) struct InputColumn {
    /// Its name in Rust.
    pub(super) ident: String,
    pub(super) column: String,
    pub(super) kind: ColumnKind,
}

/// How a column becomes a tensor.
pub(super) enum ColumnKind {
    /// A number, with what stands in where there is none.
    Number { missing: f32 },
    /// A word of a file, or another one.
    Vocabulary { file: String, words: usize },
    /// One of so many words that no file should have them.
    Hashed,
}

/// The inputs, and why other columns are none.
pub(super) struct FoundColumns {
    pub(super) fields: Vec<InputColumn>,
    pub(super) left_out: Vec<(String, &'static str)>,
}

/// Columns of a whole table that no model should take, and why.
pub(super) fn unfit(whole: &Stats) -> Vec<(String, &'static str)> {
    let reason = |column: &ColumnStats| {
        if column.lengths.is_some() {
            Some("its values are bytes, or lists of text")
        } else if column.values > column.count {
            Some("a record has several values")
        } else {
            is_numbering(column).then_some("it numbers the records")
        }
    };
    let columns = whole.columns().iter();
    columns.filter_map(|column| Some((column.name.clone(), reason(column)?))).collect()
}

/// Whether the values are whole numbers without a gap, each once, by their range, mean and deviation. A few may be so
/// by chance.
fn is_numbering(column: &ColumnStats) -> bool {
    let Some(numbers) = column.numbers.as_ref().filter(|numbers| numbers.count > 20) else {
        return false;
    };
    let count = numbers.count as f64;
    let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-6 * count;
    numbers.count == column.values
        && near(numbers.max - numbers.min, count - 1.0)
        && numbers.min.fract() == 0.0
        && near(numbers.mean, (numbers.min + numbers.max) / 2.0)
        && near(numbers.std(), ((count * count - 1.0) / 12.0).sqrt())
}

/// Looks at all columns but the label and those that are unfit.
pub(super) fn find(
    stats: &Stats,
    label: &str,
    mut unfit: Vec<(String, &'static str)>,
) -> FoundColumns {
    unfit.retain(|(column, _)| column != label);
    let inputs: Vec<&ColumnStats> = stats
        .columns()
        .iter()
        .filter(|column| column.name != label && unfit.iter().all(|(name, _)| *name != column.name))
        .collect();
    let mut found = FoundColumns { fields: Vec::new(), left_out: unfit };
    let mut taken = vec![identifier(label)];
    for column in inputs {
        let mut ident = identifier(&column.name);
        while taken.contains(&ident) {
            ident.push('_');
        }
        match kind(stats, column, &ident) {
            Ok(kind) => {
                taken.push(ident.clone());
                found.fields.push(InputColumn { ident, column: column.name.clone(), kind });
            }
            Err(reason) => found.left_out.push((column.name.clone(), reason)),
        }
    }
    found
}

fn kind(stats: &Stats, column: &ColumnStats, ident: &str) -> Result<ColumnKind, &'static str> {
    const SAME: &str = "it has the same value everywhere";
    if column.name.trim().is_empty() || column.name.starts_with("Unnamed: ") {
        return Err("it has no name, as row numbers that pandas writes");
    }
    let missing = stats.missing(&column.name) > 0;
    if column.count == 0 {
        return Err("it is empty");
    }
    if let Some((mean, std)) = stats.normaliser(&column.name) {
        return match std > 0.0 {
            // A value may be missing in other files than this one.
            true => Ok(ColumnKind::Number { missing: mean }),
            false => Err(SAME),
        };
    }
    let Some(words) = &column.words else { return Err("its values are not all numbers") };
    let distinct = words.distinct();
    if words.exact() && distinct == column.count && column.count > 1 {
        return Err("every record has a value of its own");
    }
    // An estimate is off by a few per cent.
    if !words.exact() && distinct as f64 > 0.9 * column.count as f64 {
        return Err("nearly every record has a value of its own");
    }
    if distinct == 1 && !missing {
        return Err(SAME);
    }
    let on_one_line = words.top(MOST_WORDS).iter().all(|(word, _)| !word.contains(['\n', '\r']));
    if words.exact() && distinct <= MOST_WORDS as u64 && on_one_line {
        let file = format!("vocabulary/{ident}.txt");
        return Ok(ColumnKind::Vocabulary { file, words: distinct as usize });
    }
    Ok(ColumnKind::Hashed)
}

/// Warnings about columns of words that are numbers to people: with a decimal comma, or with a sign for percent.
pub(super) fn unread_numbers(whole: &Stats) -> Vec<String> {
    let warning = |column: &ColumnStats| {
        let words = column.words.as_ref()?.top(LOOKED_AT);
        let mut words =
            words.into_iter().map(|(word, _)| word).filter(|word| !MISSING_WORDS.contains(word));
        let first = words.next().filter(|word| is_unread_number(word))?;
        words.all(is_unread_number).then(|| {
            format!(
                "warning: column {:?} has words such as {first:?}: a decimal comma and a sign for percent are not \
                 read; write numbers as 1.5",
                column.name
            )
        })
    };
    whole.columns().iter().filter_map(warning).collect()
}

fn is_unread_number(word: &str) -> bool {
    let word = word.trim().trim_start_matches(['+', '-']);
    let (number, is_percent) = match word.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (word, false),
    };
    let sign = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    // Several commas and no point are a list.
    let commas = number.matches(',').count();
    (is_percent || commas == 1 || (commas > 1 && number.contains('.')))
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(sign)
}

/// A name that Rust takes, like that of a column.
pub(super) fn identifier(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = name.trim().chars().map(safe).collect();
    // The compiler warns of two in a row.
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    let name = name.trim_matches('_');
    match name.chars().next() {
        None => "column".to_string(),
        Some(first) if first.is_ascii_digit() => format!("column_{name}"),
        Some(_) if RESERVED.contains(&name) => format!("{name}_"),
        Some(_) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use salamander_data::{Row, Value};

    use super::*;

    #[test]
    fn names_of_columns_become_names_of_fields() {
        let check = |column: &str, expected: &str| assert_eq!(identifier(column), expected);
        check("age", "age");
        check("Capital-Gain", "capital_gain");
        check(" hours per week ", "hours_per_week");
        check("Size (cm) / max", "size_cm_max");
        check("type", "type_");
        check("2019", "column_2019");
        check("\u{e9}", "column");
    }
    #[test]
    fn nearly_unique_words_of_a_large_table_are_no_input() {
        let rows: Vec<[String; 2]> =
            (0..30_000).map(|i| [format!("n{i}"), format!("c{}", i % 12_000)]).collect();
        let stats: Stats = rows
            .iter()
            .map(|[id, city]| {
                Row::new(vec![("id".into(), Value::Text(id)), ("city".into(), Value::Text(city))])
            })
            .collect();
        let found = find(&stats, "label", unfit(&stats));
        assert_eq!(
            found.left_out,
            [("id".to_string(), "nearly every record has a value of its own")]
        );
        assert!(matches!(found.fields[0].kind, ColumnKind::Hashed), "40 % of them are new");
    }
    #[test]
    fn numbers_of_records_are_told_from_quantities() {
        let check = |values: &mut dyn Iterator<Item = f32>, expected: bool| {
            let values: Vec<f32> = values.collect();
            let row =
                |value: &f32| Row::new(vec![("x".into(), Value::Floats(vec![*value].into()))]);
            let stats: Stats = values.iter().map(row).collect();
            assert_eq!(unfit(&stats).len(), usize::from(expected), "{values:?}");
        };
        check(&mut (0..400).map(|i| i as f32), true);
        check(&mut (0..400).map(|i| (1 + i * 7 % 400) as f32), true);
        check(&mut (0..400).map(|i| (i % 399) as f32), false);
        check(&mut (0..400).map(|i| i as f32 * 2.0), false);
        check(&mut (0..400).map(|i| i as f32 + 0.5), false);
        check(&mut (0..20).map(|i| i as f32), false);
    }

    #[test]
    fn numbers_that_are_not_read_are_told() {
        let check = |words: &[&'static str], expected: bool| {
            let row = |word: &'static str| Row::new(vec![("x".into(), Value::Text(word))]);
            let warnings = unread_numbers(&words.iter().copied().map(row).collect());
            assert_eq!(!warnings.is_empty(), expected, "{words:?}: {warnings:?}");
        };
        check(&["1,5", "-2,25", "NA"], true);
        check(&["12%", "7,5 %"], true);
        check(&["1.234,5", "1,234,567.8"], true);
        check(&["1,5", "Bern"], false);
        check(&["1.5", "2"], false);
        check(&["1,2,3", "4,5,6"], false);
        check(&["2020-01-02", "NA"], false);
        check(&["NA"], false);
    }

    #[test]
    fn lists_are_named() {
        let lists = [vec![1, 2], vec![3]];
        let row = |list: &Vec<i64>| Row::new(vec![("x".into(), Value::Ints(list.clone().into()))]);
        let stats: Stats = lists.iter().map(row).collect();
        assert_eq!(unfit(&stats), [("x".to_string(), "a record has several values")]);
    }
}
