//! Inputs that the data lacks, where each of them may be missing. A file that has nothing to do with a model would get
//! answers all the same, from the values that stand for missing ones: that is refused, and a part of it is told.

use salamander_data::{Dataset, Shard, add_columns_of};

use super::InputSpec;
use crate::Error;

/// Records that are looked at in a file that does not know its columns.
const LOOK_AT: u64 = 64;
/// Columns with a line each; all others are counted.
const MOST_TOLD: usize = 5;
/// Names in an error.
const MOST_NAMED: usize = 8;
/// Signs that people put between cells, and what settings call them.
const SEPARATORS: [(char, &str); 4] = [(',', ","), (';', ";"), ('\t', "tab"), ('|', "|")];

/// A column that files lack: the first of them, and how many others.
struct AbsentColumn<'a> {
    name: &'static str,
    file: &'a str,
    /// How many records were looked at, where that were not all of the file's.
    of_first: Option<u64>,
    others: usize,
}

/// The columns of a file.
struct FileColumns {
    names: Vec<String>,
    /// How many of its records have told them, where that were not all.
    of_first: Option<u64>,
}

/// What people should know of data that a model is used on: a line for each column that may be missing and that a file
/// lacks altogether.
///
/// # Errors
/// If a file has none of the inputs.
pub(crate) fn absent_inputs(inputs: &[InputSpec], dataset: &Dataset) -> Result<Vec<String>, Error> {
    let may_be_missing = |input: &InputSpec| input.optional || input.ragged;
    if !inputs.iter().any(may_be_missing) {
        return Ok(Vec::new());
    }
    let mut absent: Vec<AbsentColumn<'_>> = Vec::new();
    let (mut start, mut looked) = (0, false);
    for (number, shard) in dataset.shards().iter().enumerate() {
        let first = start;
        start += shard.records;
        // Of several files that do not know their columns one stands for all.
        let found = match dataset.columns_of(number) {
            _ if shard.records == 0 => continue,
            Some(columns) => {
                let names = columns.into_iter().map(|column| column.name).collect();
                Some(FileColumns { names, of_first: None })
            }
            None if looked => None,
            None => {
                looked = true;
                FileColumns::of_first_records(dataset, shard, first)
            }
        };
        let Some(FileColumns { names, of_first }) = found else { continue };
        let is_absent = |column: &&str| names.iter().all(|name| name != column);
        let needed = inputs.iter().filter(|input| !may_be_missing(input));
        if needed.flat_map(|input| input.columns).any(is_absent) {
            // Whoever decodes a record says so, by its name.
            continue;
        }
        let wanted: Vec<&'static str> = columns_of(inputs);
        let lacks: Vec<&'static str> = wanted.iter().copied().filter(is_absent).collect();
        if lacks.len() == wanted.len() {
            return Err(Error::Invalid(unrelated(&shard.name, &wanted, &names)));
        }
        for name in lacks {
            match absent.iter_mut().find(|column| column.name == name) {
                Some(column) => column.others += 1,
                None => absent.push(AbsentColumn { name, file: &shard.name, of_first, others: 0 }),
            }
        }
    }
    Ok(told(&absent))
}

impl FileColumns {
    /// Nothing where they cannot be read, which is told where they are needed.
    fn of_first_records(dataset: &Dataset, shard: &Shard, first: u64) -> Option<Self> {
        let count = shard.records.min(LOOK_AT);
        let records: Vec<u64> = (first..first + count).collect();
        let mut columns = Vec::new();
        let read = dataset.read(&records, &mut |_, row| {
            add_columns_of(&mut columns, &row);
            Ok(())
        });
        read.ok()?;
        let names = columns.into_iter().map(|column| column.name).collect();
        Some(Self { names, of_first: (count < shard.records).then_some(count) })
    }
}

/// Each once: two fields may be of one column.
fn columns_of(inputs: &[InputSpec]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for column in inputs.iter().flat_map(|input| input.columns) {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    columns
}

fn told(absent: &[AbsentColumn<'_>]) -> Vec<String> {
    let line = |column: &AbsentColumn<'_>| {
        let AbsentColumn { name, file, of_first, others } = column;
        let which = match of_first {
            Some(count) => format!("none of the first {count} records"),
            None => "no record".to_string(),
        };
        let others = match others {
            0 => String::new(),
            1 => " and of another file".to_string(),
            others => format!(" and of {others} other files"),
        };
        format!("warning: column \"{name}\" is in {which} of {file}{others}: it counts as missing")
    };
    let mut lines: Vec<String> = absent.iter().take(MOST_TOLD).map(line).collect();
    match absent.len().saturating_sub(MOST_TOLD) {
        0 => {}
        1 => lines.push("warning: another input is not there either".to_string()),
        more => lines.push(format!("warning: {more} other inputs are not there either")),
    }
    lines
}

/// Why a file is refused, and what it may be that its only column is several.
fn unrelated(file: &str, wanted: &[&str], names: &[String]) -> String {
    let named = |names: &[&str]| {
        let more = if names.len() > MOST_NAMED { ", .." } else { "" };
        format!("{}{more}", names[..names.len().min(MOST_NAMED)].join(", "))
    };
    let found: Vec<&str> = names.iter().map(String::as_str).collect();
    let separator = match found[..] {
        [only] => SEPARATORS.iter().find(|(sign, _)| only.contains(*sign)),
        _ => None,
    };
    let advice = separator.map_or_else(String::new, |(_, name)| {
        format!(
            "; if {name:?} stands between its cells, write data: {{csv: {{separator: {name:?}}}}}, or for a model that \
             is trained: salamander data convert FILE --separator '{name}' --out NEW.jsonl"
        )
    });
    let (wanted, found) = (named(wanted), named(&found));
    format!("{file}: the data has none of the model's inputs ({wanted}): it has {found}{advice}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;

    const fn input(columns: &'static [&'static str], optional: bool) -> InputSpec {
        InputSpec { field: "f", columns, datatype: "FP32", shape: &[], ragged: false, optional }
    }

    const ALL_MAY_BE_MISSING: [InputSpec; 3] =
        [input(&["a", "b"], true), input(&["c"], true), input(&["a"], true)];
    const ONE_IS_NEEDED: [InputSpec; 2] = [input(&["a"], false), input(&["b"], true)];

    /// What is said of files of these contents, without their folder.
    fn said(inputs: &[InputSpec], files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |(name, text): &(&str, &str)| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let paths: Vec<PathBuf> = files.iter().map(write).collect();
        let reader = salamander_data::open(&paths, None).expect("opens");
        let dataset = Dataset::new(Arc::from(reader)).expect("counted");
        let said = absent_inputs(inputs, &dataset);
        let said = said.map_or_else(|error| format!("refused: {error}"), |lines| lines.join("\n"));
        said.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn files_without_an_input_are_refused_and_those_that_lack_some_are_told() {
        let check = |text: &str, expected: &str| {
            assert_eq!(said(&ALL_MAY_BE_MISSING, &[("x.csv", text)]), expected, "{text}");
        };
        check("a,b,c\n1,2,3\n", "");
        check("a,b,c\n", "");
        check("foo,bar\n", "");
        check(
            "foo,bar\n1,2\n",
            "refused: x.csv: the data has none of the model's inputs (a, b, c): it has foo, bar",
        );
        check(
            "a,B,c\n1,2,3\n",
            "warning: column \"b\" is in no record of x.csv: it counts as missing",
        );
    }

    #[test]
    fn each_file_is_looked_at_and_the_first_is_named() {
        let whole = ("1.csv", "a,b,c\n1,2,3\n");
        let several = [whole, ("2.csv", "a,b\n1,2\n"), ("3.csv", "b,a\n1,2\n")];
        assert_eq!(
            said(&ALL_MAY_BE_MISSING, &several),
            "warning: column \"c\" is in no record of 2.csv and of another file: it counts as missing"
        );
        let other = [whole, ("2.csv", "d\n1\n")];
        assert!(said(&ALL_MAY_BE_MISSING, &other).starts_with("refused: 2.csv: "));
    }

    #[test]
    fn a_needed_input_is_left_to_who_decodes() {
        assert_eq!(said(&ONE_IS_NEEDED, &[("x.csv", "foo\n1\n")]), "");
        let told = said(&ONE_IS_NEEDED, &[("x.csv", "a\n1\n")]);
        assert!(told.starts_with("warning: column \"b\""), "{told}");
        assert_eq!(said(&[], &[("x.csv", "foo\n1\n")]), "", "nobody knows the inputs");
    }

    #[test]
    fn json_lines_are_read_to_know_their_columns() {
        let check = |text: &str, expected: &str| {
            let told = said(&ALL_MAY_BE_MISSING, &[("x.jsonl", text)]);
            assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{told}");
        };
        check("{\"a\": 1}\n{\"b\": 1, \"c\": 2}\n", "");
        check("{\"a\": 1, \"b\": 2}\n", "warning: column \"c\" is in no record of x.jsonl");
        check("{\"d\": 1}\n", "refused: x.jsonl: the data has none of the model's inputs");
        let many = "{\"a\": 1, \"b\": 2}\n".repeat(LOOK_AT as usize + 1);
        check(&many, "warning: column \"c\" is in none of the first 64 records of x.jsonl");
    }

    #[test]
    fn cells_that_another_sign_separates_are_one_column() {
        let reader = |text: &str, separator: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("x.csv");
            std::fs::write(&path, text).expect("written");
            let csv = salamander_core::experiment::CsvSettings {
                separator: separator.parse().ok(),
                ..Default::default()
            };
            let options = salamander_data::OpenOptions { csv, ..Default::default() };
            let reader = salamander_data::open_indexed(&[path], None, &options).expect("opens");
            let dataset = Dataset::new(Arc::from(reader)).expect("counted");
            absent_inputs(&ALL_MAY_BE_MISSING, &dataset).expect_err("another file").to_string()
        };
        let error = reader("a,b,c\n1,2,3\n", ";");
        assert!(error.contains("separator: \",\"") && error.contains("it has a,b,c"), "{error}");
        let error = reader("a\tb\n1\t2\n", ";");
        assert!(error.contains("--separator 'tab'"), "{error}");
    }

    #[test]
    fn many_columns_are_counted() {
        const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let inputs = [input(&NAMES, true)];
        let told = said(&inputs, &[("x.csv", "a\n1\n")]);
        assert_eq!(told.lines().count(), MOST_TOLD + 1);
        assert!(told.ends_with("warning: 2 other inputs are not there either"), "{told}");
    }
}
