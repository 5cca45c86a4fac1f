//! The columns of a source as a whole: a record lacks those that are null in it, so no single record tells them all.

use serde::{Deserialize, Serialize};

use crate::{Row, Value};

/// A column that records of a source can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: ColumnKind,
    /// Whether a value can have several items, or none.
    pub list: bool,
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Integers.
    Ints,
    /// Floating-point numbers.
    Floats,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Text of a file that holds nothing else, so that it may stand for numbers.
    Untyped,
}

impl ColumnInfo {
    /// The column of a value.
    pub fn of(name: &str, value: &Value<'_>) -> ColumnInfo {
        let (kind, list) = match value {
            Value::Bytes(_) => (ColumnKind::Bytes, false),
            Value::List(_) => (ColumnKind::Bytes, true),
            Value::Text(_) => (ColumnKind::Text, false),
            Value::Ints(items) => (ColumnKind::Ints, items.len() != 1),
            Value::Floats(items) => (ColumnKind::Floats, items.len() != 1),
        };
        ColumnInfo { name: name.to_owned(), kind, list }
    }

    /// Makes room for another column of this name; nothing changes where there is no kind for both.
    fn widen(&mut self, other: &ColumnInfo) {
        self.list |= other.list;
        self.kind = self.kind.with(other.kind).unwrap_or(self.kind);
    }
}

impl ColumnKind {
    /// The kind that has room for both.
    pub fn with(self, other: ColumnKind) -> Option<ColumnKind> {
        use ColumnKind::{Bytes, Floats, Ints, Text, Untyped};
        match (self, other) {
            (mine, other) if mine == other => Some(mine),
            (Ints | Floats, Ints | Floats) => Some(Floats),
            (Text | Untyped, Text | Untyped) => Some(Text),
            (Text | Untyped | Bytes, Text | Untyped | Bytes) => Some(Bytes),
            _ => None,
        }
    }

    /// What such a value is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            ColumnKind::Ints => "integers",
            ColumnKind::Floats => "floats",
            ColumnKind::Text | ColumnKind::Untyped => "text",
            ColumnKind::Bytes => "bytes",
        }
    }
}

/// Adds columns to those that are known, in the order in which they are first seen.
pub fn add_columns(known: &mut Vec<ColumnInfo>, more: impl IntoIterator<Item = ColumnInfo>) {
    for (guess, column) in more.into_iter().enumerate() {
        let same = |known: &ColumnInfo| known.name == column.name;
        let place = match known.get(guess).is_some_and(same) {
            true => Some(guess),
            false => known.iter().position(same),
        };
        match place {
            Some(place) => known[place].widen(&column),
            None => known.push(column),
        }
    }
}

/// Adds the columns of a record.
pub fn add_columns_of(known: &mut Vec<ColumnInfo>, row: &Row<'_>) {
    add_columns(known, row.columns().map(|(name, value)| ColumnInfo::of(name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_several_records_are_joined() {
        let mut known = Vec::new();
        add_columns_of(&mut known, &Row::new(vec![("b".into(), Value::Ints(vec![1].into()))]));
        let row = Row::new(vec![
            ("a".into(), Value::Text("x")),
            ("b".into(), Value::Floats(vec![0.5, 1.0].into())),
        ]);
        add_columns_of(&mut known, &row);
        let column = |name: &str, kind, list| ColumnInfo { name: name.to_owned(), kind, list };
        let expected =
            [column("b", ColumnKind::Floats, true), column("a", ColumnKind::Text, false)];
        assert_eq!(known, expected);
    }
}
