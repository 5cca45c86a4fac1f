//! The columns of what is written: all that any record has, in the order of the source, and with types for text. A CSV
//! file holds only text, but the formats it is converted to hold numbers; RecordIO has bytes where others have text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ColumnInfo, ColumnKind, Dataset, Error, Format, Row, Value, add_columns_of};

/// Records read at a time.
const BLOCK: u64 = 4096;

/// What all values of a column of text or bytes can be read as; each kind includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum TextKind {
    Int,
    Float,
    Text,
    Bytes,
}

/// The columns of a dataset, as they are written. As JSON they tell another process what was found.
///
/// ```
/// use std::sync::Arc;
/// use salamander_data::{ColumnKind, Dataset, Format, open, types::Types};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("people.csv");
/// std::fs::write(&path, "name,age\nada,36\n")?;
/// let people = Dataset::new(Arc::from(open(&[path], None)?))?;
/// let types = Types::infer(&people, Format::Parquet)?;
/// assert_eq!(types.columns()[1].kind, ColumnKind::Ints);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Types {
    columns: Vec<ColumnInfo>,
    /// Columns whose values become another kind.
    retyped: BTreeMap<String, TextKind>,
}

impl Types {
    /// Takes what the source says of its columns. Where that is not enough everything is read once: a word in the last
    /// row makes its column text. Formats that hold text alone keep it as it is.
    pub fn infer(dataset: &Dataset, to: Format) -> Result<Self, Error> {
        Self::infer_from(dataset, to, |block, each| dataset.read(block, each))
    }

    /// [`Types::infer`] from those records that are not damaged, where others are left out later.
    pub fn infer_from_good(dataset: &Dataset, to: Format) -> Result<Self, Error> {
        Self::infer_from(dataset, to, |block, each| {
            if dataset.read(block, each).is_ok() {
                return Ok(());
            }
            for record in block {
                // A record that is seen twice changes nothing.
                match dataset.read(&[*record], each) {
                    Err(error) if !error.is_bad_data() => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn infer_from(
        dataset: &Dataset,
        to: Format,
        read: impl Fn(&[u64], &mut dyn FnMut(usize, Row<'_>) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let declared = dataset.columns();
        let is_untyped = |column: &ColumnInfo| column.kind == ColumnKind::Untyped;
        let known = |columns: &Vec<ColumnInfo>| to.is_text() || !columns.iter().any(is_untyped);
        if let Some(columns) = declared.clone().filter(known) {
            return Ok(Self { columns, retyped: BTreeMap::new() });
        }
        let (mut columns, mut kinds) = (Vec::new(), BTreeMap::<String, TextKind>::new());
        let untyped = declared.as_ref().is_some_and(|columns| columns.iter().all(is_untyped));
        for start in (0..dataset.len()).step_by(BLOCK as usize) {
            let block: Vec<u64> = (start..dataset.len().min(start + BLOCK)).collect();
            read(&block, &mut |_, row| {
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
            })?;
        }
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
    pub fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// The row with its text as numbers where the whole column is numbers, and its bytes as text where the whole column
    /// is text; an empty cell of a column of numbers is left out.
    pub fn apply<'a>(&self, row: &'a Row<'a>) -> Row<'a> {
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
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_file_that_is_gone_is_no_broken_record() {
        let (_folder, path) = crate::blob::saved("a.csv", b"a,b\n1,x\n2\n3,4\n");
        let reader = crate::open(std::slice::from_ref(&path), None).expect("opened");
        let dataset = Dataset::new(Arc::from(reader)).expect("records");
        let types = Types::infer_from_good(&dataset, Format::Parquet).expect("read");
        let kinds: Vec<ColumnKind> = types.columns().iter().map(|column| column.kind).collect();
        assert_eq!(kinds, [ColumnKind::Ints, ColumnKind::Text]);
        std::fs::remove_file(&path).expect("removed");
        let error = Types::infer_from_good(&dataset, Format::Parquet).expect_err("it is gone");
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }

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
}
