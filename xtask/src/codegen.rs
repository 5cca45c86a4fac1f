//! Writes the files that are generated from code, so that editors and CI see what the code means.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

mod experiment;
mod pages;

/// What editors complete experiment files with.
const SCHEMA: &str = "docs/experiment.schema.json";
/// The guide's pages that are written from code.
const REFERENCE: &str = "docs/guide/src/reference";

/// Writes the generated files, or with `check` fails if they are not what would be written. The page of commands is
/// not among them: a test of `salamander-cli` compares it, because only that crate knows them.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let schema = salamander_core::experiment::schema();
    let files = [
        (SCHEMA.to_owned(), render(&schema)?),
        (format!("{REFERENCE}/experiment.md"), experiment::page(&schema)?),
        (format!("{REFERENCE}/attributes.md"), pages::attributes(root)?),
        (format!("{REFERENCE}/formats.md"), pages::formats()),
        (format!("{REFERENCE}/environment.md"), pages::environment()),
    ];
    for (path, expected) in &files {
        let path = root.join(path);
        if check { compare(&path, expected) } else { write(&path, expected) }?;
    }
    Ok(())
}

/// The beginning of a page, which says that it is not for editing.
fn head(opening: &str) -> String {
    format!("<!-- Written by `cargo xtask codegen`: change the code instead. -->\n\n{opening}")
}

/// Text of several lines as a cell of a table has it.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn render(value: &Value) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(value).context("the schema is not JSON")?;
    text.push('\n');
    Ok(text)
}

fn compare(path: &Path, expected: &str) -> anyhow::Result<()> {
    let found = match fs::read_to_string(path) {
        // A checkout on Windows may have turned the line ends.
        Ok(text) => text.replace("\r\n", "\n"),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let Some(line) = first_difference(&found, expected) else {
        return Ok(());
    };
    bail!("{}:{line}: out of date: run `cargo xtask codegen` and commit the result", path.display())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The number of the first line that differs.
fn first_difference(found: &str, expected: &str) -> Option<usize> {
    if found == expected {
        return None;
    }
    let same = found.lines().zip(expected.lines()).take_while(|(left, right)| left == right);
    Some(same.count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_found_at_its_line() {
        let check = |found, expected, line| {
            assert_eq!(first_difference(found, expected), line, "{found:?} {expected:?}");
        };
        check("a\nb\n", "a\nb\n", None);
        check("a\nb\n", "a\nc\n", Some(2));
        check("", "a\n", Some(1));
        check("a\n", "a\nb\n", Some(2));
        check("a", "a\n", Some(2));
    }

    #[test]
    fn file_ends_with_a_line_end() {
        assert_eq!(render(&serde_json::json!({"a": 1})).unwrap(), "{\n  \"a\": 1\n}\n");
    }
}
