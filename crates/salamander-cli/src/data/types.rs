//! The columns of what is written: all that any record has, in the order of the source, and with types for text. A CSV
//! file holds only text, but the formats it is converted to hold numbers; RecordIO has bytes where others have text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use salamander_data::{ColumnInfo, ColumnKind, Dataset, Format, Row, Value, add_columns_of};

use super::in_blocks;

/// What all values of a column of text or bytes can be read as; each kind includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextKind {
    Int,
    Float,
    Text,
    Bytes,
}

/// The columns of a dataset, as they are written.
#[derive(Debug, Default)]
pub(super) struct Types {
    columns: Vec<ColumnInfo>,
    /// Columns whose values become another kind.
    retyped: BTreeMap<String, TextKind>,
}

impl Types {
    /// Takes what the source says of its columns. Where that is not enough everything is read once: a word in the last
    /// row makes its column text. Formats that hold text alone keep it as it is.
    pub(super) fn infer(dataset: &Dataset, to: Format) -> Result<Self> {
        let declared = dataset.columns();
        let is_untyped = |column: &ColumnInfo| column.kind == ColumnKind::Untyped;
        let known = |columns: &Vec<ColumnInfo>| to.is_text() || !columns.iter().any(is_untyped);
        if let Some(columns) = declared.clone().filter(known) {
            return Ok(Self { columns, retyped: BTreeMap::new() });
        }
        let (mut columns, mut kinds) = (Vec::new(), BTreeMap::<String, TextKind>::new());
        let untyped = declared.as_ref().is_some_and(|columns| columns.iter().all(is_untyped));
        in_blocks(dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| {
                add_columns_of(&mut columns, &row);
                for (name, value) in row.columns() {
                    let Some(kind) = kind_of(value, untyped) else { continue };
                    match kinds.get_mut(name) {
                        Some(known) => *known = (*known).max(kind),
                        None => {
                            kinds.insert(name.to_string(), kind);
                        }
                    }
                }
                Ok(())
            })?)
        })?;
        Ok(Self::retyped(declared.unwrap_or(columns), kinds))
    }

    fn retyped(mut columns: Vec<ColumnInfo>, kinds: BTreeMap<String, TextKind>) -> Self {
        for column in &mut columns {
            column.kind = match (column.kind, kinds.get(&column.name)) {
                (ColumnKind::Untyped, Some(TextKind::Int)) => ColumnKind::Ints,
                (ColumnKind::Untyped, Some(TextKind::Float)) => ColumnKind::Floats,
                (ColumnKind::Bytes, Some(TextKind::Text)) => ColumnKind::Text,
                (ColumnKind::Untyped, _) => ColumnKind::Text,
                (kind, _) => kind,
            };
        }
        Self { columns, retyped: kinds }
    }

    /// The columns, for a sink.
    pub(super) fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// The row with its text as numbers where the whole column is numbers, and its bytes as text where the whole column
    /// is text; an empty cell of a column of numbers is left out.
    pub(super) fn apply<'a>(&self, row: &'a Row<'a>) -> Row<'a> {
        let typed = row.columns().filter_map(|(name, value)| {
            let value = match (value, self.retyped.get(name)) {
                (Value::Text(text), Some(TextKind::Int)) => {
                    Value::Ints(Cow::Owned(vec![text.parse().ok()?]))
                }
                (Value::Text(text), Some(TextKind::Float)) => {
                    Value::Floats(Cow::Owned(vec![text.parse().ok()?]))
                }
                (Value::Bytes(bytes), Some(TextKind::Text)) => match std::str::from_utf8(bytes) {
                    Ok(text) => Value::Text(text),
                    Err(_) => value.clone(),
                },
                _ => value.clone(),
            };
            Some((Cow::Borrowed(name), value))
        });
        Row::new(typed.collect())
    }
}

/// What a value could be; nothing for numbers.
fn kind_of(value: &Value<'_>, untyped: bool) -> Option<TextKind> {
    match value {
        Value::Text(text) if untyped => Some(kind(text)),
        Value::Text(_) => Some(TextKind::Text),
        Value::Bytes(bytes) => Some(kind_of_bytes(bytes)),
        Value::List(items) => items.iter().map(|item| kind_of_bytes(item)).max(),
        Value::Ints(_) | Value::Floats(_) => None,
    }
}

/// Text is what people can read: a zero byte or another sign of control is none.
fn kind_of_bytes(bytes: &[u8]) -> TextKind {
    let odd = |sign: char| sign.is_control() && !sign.is_ascii_whitespace();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(odd) => TextKind::Text,
        _ => TextKind::Bytes,
    }
}

fn kind(text: &str) -> TextKind {
    match text.parse::<i64>() {
        _ if text.is_empty() => TextKind::Int,
        // 00501 is a code, not a number: it would come back as 501.
        Ok(number) if number.to_string() == text => TextKind::Int,
        Ok(_) => TextKind::Text,
        Err(_) if text.parse::<f64>().is_ok_and(f64::is_finite) => TextKind::Float,
        Err(_) => TextKind::Text,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use salamander_data::open;

    use super::super::convert::Shards;
    use super::*;

    #[test]
    fn text_is_told_from_numbers() {
        let check = |text: &str, expected: TextKind| assert_eq!(kind(text), expected, "{text:?}");
        check("12", TextKind::Int);
        check("-7", TextKind::Int);
        check("", TextKind::Int);
        check("1.5", TextKind::Float);
        check("1e-3", TextKind::Float);
        check("00501", TextKind::Text);
        check("NaN", TextKind::Text);
        check("lima", TextKind::Text);
        assert_eq!(kind_of_bytes("Zürich\n".as_bytes()), TextKind::Text);
        assert_eq!(kind_of_bytes(b"a\0b"), TextKind::Bytes);
        assert_eq!(kind_of_bytes(&[0xff]), TextKind::Bytes);
    }

    fn opened(path: &Path) -> Dataset {
        let reader = open(&[path.to_path_buf()], None).expect("opens");
        Dataset::new(Arc::from(reader)).expect("counted")
    }

    fn convert(from: &Path, to: &Path) {
        let dataset = opened(from);
        let mut shards = Shards::new(to, None, None, None).expect("a format");
        let types = Types::infer(&dataset, shards.format()).expect("read");
        shards.expect(types.columns());
        in_blocks(&dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| shards.write(&types.apply(&row)))?)
        })
        .expect("written");
        shards.finish().expect("written");
    }

    fn rows(path: &Path) -> Vec<String> {
        let (dataset, mut rows) = (opened(path), Vec::new());
        in_blocks(&dataset, |block| {
            Ok(dataset.read(block, &mut |_, row| {
                let cells = row.columns().map(|(name, value)| format!("{name}={value:?}"));
                rows.push(cells.collect::<Vec<_>>().join(" "));
                Ok(())
            })?)
        })
        .expect("read");
        rows
    }

    /// Strings, order, types and nulls, also those of the first record, on the way through each format.
    #[test]
    fn columns_survive_other_formats() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let lines = [
            r#"{"zip": "8001", "age": 31, "tags": ["a", "b"]}"#,
            r#"{"name": "ada", "zip": "0100", "age": 36, "size": 1.5, "tags": []}"#,
            r#"{"name": "bob", "zip": "8002", "size": 2.0, "tags": ["c", "d"]}"#,
        ];
        std::fs::write(path("a.jsonl"), lines.join("\n")).expect("written");
        convert(&path("a.jsonl"), &path("b.parquet"));
        let columns = opened(&path("b.parquet")).columns().expect("Parquet knows its columns");
        let found: Vec<_> = columns.iter().map(|c| (c.name.as_str(), c.kind, c.list)).collect();
        let expected = [
            ("zip", ColumnKind::Text, false),
            ("age", ColumnKind::Ints, false),
            ("tags", ColumnKind::Text, true),
            ("name", ColumnKind::Text, false),
            ("size", ColumnKind::Floats, false),
        ];
        assert_eq!(found, expected);
        convert(&path("b.parquet"), &path("c.recordio"));
        convert(&path("c.recordio"), &path("d.parquet"));
        assert_eq!(rows(&path("d.parquet")), rows(&path("b.parquet")));
        assert_eq!(opened(&path("d.parquet")).columns(), Some(columns));
        // A null of the first record is a cell of the header.
        let flat = ["{\"b\": 1}", "{\"a\": \"x\", \"b\": 2}"];
        std::fs::write(path("e.jsonl"), flat.join("\n")).expect("written");
        convert(&path("e.jsonl"), &path("f.csv.gz"));
        let text = rows(&path("f.csv.gz"));
        assert_eq!(text, ["b=Text(\"1\") a=Text(\"\")", "b=Text(\"2\") a=Text(\"x\")"]);
        convert(&path("f.csv.gz"), &path("g.jsonl"));
        let back = std::fs::read_to_string(path("g.jsonl")).expect("written");
        assert_eq!(back, "{\"b\":1,\"a\":\"\"}\n{\"b\":2,\"a\":\"x\"}\n");
    }
}
