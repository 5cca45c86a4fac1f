//! A record as named columns, borrowed from the reader's buffer so that reading copies no images.

use std::borrow::Cow;
use std::cell::Cell;

use crate::Error;

/// One named cell of a record, borrowed from the reader's buffer where possible.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// One string of bytes, such as an encoded image.
    Bytes(&'a [u8]),
    /// None or several strings of bytes; a single one is always [`Value::Bytes`].
    List(Vec<&'a [u8]>),
    /// Text, as CSV has it.
    Text(&'a str),
    /// Integers.
    Ints(Cow<'a, [i64]>),
    /// Floating-point numbers.
    Floats(Cow<'a, [f32]>),
}

impl Value<'_> {
    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list of bytes",
            Value::Text(_) => "text",
            Value::Ints(_) => "integers",
            Value::Floats(_) => "floats",
        }
    }

    /// How many items the value has: numbers, or strings of bytes; a text or bytes value is one.
    pub fn count(&self) -> usize {
        match self {
            Value::Bytes(_) | Value::Text(_) => 1,
            Value::List(items) => items.len(),
            Value::Ints(items) => items.len(),
            Value::Floats(items) => items.len(),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::List(items) => items.iter().map(|item| item.len()).sum(),
            Value::Text(text) => text.len(),
            Value::Ints(items) => 8 * items.len(),
            Value::Floats(items) => 4 * items.len(),
        }
    }
}

/// A value that outlives its row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OwnedValue {
    Bytes(Vec<u8>),
    List(Vec<Vec<u8>>),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
}

impl OwnedValue {
    pub(crate) fn of(value: &Value<'_>) -> OwnedValue {
        match value {
            Value::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
            Value::List(items) => {
                OwnedValue::List(items.iter().map(|item| item.to_vec()).collect())
            }
            Value::Text(text) => OwnedValue::Text((*text).to_owned()),
            Value::Ints(items) => OwnedValue::Ints(items.to_vec()),
            Value::Floats(items) => OwnedValue::Floats(items.to_vec()),
        }
    }

    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            OwnedValue::Bytes(bytes) => Value::Bytes(bytes),
            OwnedValue::List(items) => Value::List(items.iter().map(Vec::as_slice).collect()),
            OwnedValue::Text(text) => Value::Text(text),
            OwnedValue::Ints(items) => Value::Ints(Cow::Borrowed(items)),
            OwnedValue::Floats(items) => Value::Floats(Cow::Borrowed(items)),
        }
    }
}

/// A record as named columns, in the order of the source.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    columns: Vec<(Cow<'a, str>, Value<'a>)>,
    /// Behind the column that was found last: examples ask for columns in the order of the file, and a search from
    /// the first one took a fifth of the loader's time with forty columns.
    next: Cell<usize>,
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns
    }
}

impl<'a> Row<'a> {
    /// A row of these columns, whose names are expected to differ.
    pub fn new(columns: Vec<(Cow<'a, str>, Value<'a>)>) -> Row<'a> {
        Row { columns, next: Cell::new(0) }
    }

    /// The value of a column.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let start = self.next.get().min(self.columns.len());
        let mut places = (start..self.columns.len()).chain(0..start);
        let found = places.find(|place| self.columns[*place].0 == name)?;
        self.next.set(found + 1);
        Some(&self.columns[found].1)
    }

    /// All columns in order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &Value<'a>)> {
        self.columns.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// All columns, for those who name them otherwise.
    pub(crate) fn into_columns(self) -> Vec<(Cow<'a, str>, Value<'a>)> {
        self.columns
    }

    /// The value of a column, or an error that lists the columns there are.
    pub fn require(&self, name: &str) -> Result<&Value<'a>, Error> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.columns().map(|(name, _)| name).collect();
            let reason = format!("missing (the record has: {})", names.join(", "));
            Error::column(name, reason)
        })
    }

    /// A column of bytes; text counts as its UTF-8 bytes.
    pub fn bytes(&self, name: &str) -> Result<&'a [u8], Error> {
        match self.require(name)? {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Text(text) => Ok(text.as_bytes()),
            other => Err(wrong_kind(name, "bytes", other)),
        }
    }

    /// A column of text; bytes count as text when they are UTF-8.
    pub fn text(&self, name: &str) -> Result<&'a str, Error> {
        match self.require(name)? {
            Value::Text(text) => Ok(text),
            Value::Bytes(bytes) => {
                std::str::from_utf8(bytes).map_err(|error| Error::column(name, error))
            }
            other => Err(wrong_kind(name, "text", other)),
        }
    }

    /// A column of integers.
    pub fn ints(&self, name: &str) -> Result<&[i64], Error> {
        match self.require(name)? {
            Value::Ints(items) => Ok(items),
            other => Err(wrong_kind(name, "integers", other)),
        }
    }

    /// A column of floating-point numbers.
    pub fn floats(&self, name: &str) -> Result<&[f32], Error> {
        match self.require(name)? {
            Value::Floats(items) => Ok(items),
            other => Err(wrong_kind(name, "floats", other)),
        }
    }
}

fn wrong_kind(column: &str, wanted: &str, found: &Value<'_>) -> Error {
    Error::column(column, format!("{} where {wanted} are needed", found.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Row<'static> {
        Row::new(vec![
            ("image".into(), Value::Bytes(&[1, 255])),
            ("label".into(), Value::Ints(Cow::Owned(vec![7]))),
            ("name".into(), Value::Text("ada")),
        ])
    }

    #[test]
    fn columns_are_found_by_name() {
        let row = sample();
        assert_eq!(row.bytes("image").unwrap(), [1, 255]);
        assert_eq!(row.ints("label").unwrap(), [7]);
        assert_eq!(row.text("name").unwrap(), "ada");
        assert_eq!(row.get("nothing"), None);
        // Also those before the one that was found last, and the same one again.
        assert_eq!(row.bytes("image").unwrap(), [1, 255]);
        assert_eq!(row.bytes("image").unwrap(), [1, 255]);
        assert_eq!(row, sample());
        assert_eq!(
            row.columns().map(|(name, _)| name).collect::<Vec<_>>(),
            ["image", "label", "name"]
        );
    }

    #[test]
    fn errors_say_what_is_there() {
        let check = |error: Error, expected: &str| assert_eq!(error.to_string(), expected);
        let row = sample();
        check(
            row.ints("lable").unwrap_err(),
            "column \"lable\": missing (the record has: image, label, name)",
        );
        check(
            row.floats("label").unwrap_err(),
            "column \"label\": integers where floats are needed",
        );
        check(
            row.text("image").unwrap_err(),
            "column \"image\": invalid utf-8 sequence of 1 bytes from index 1",
        );
    }
}
