//! The columns of a Parquet file to be: their kinds from the first records, and their cells until there are
//! enough for a batch.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder};
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BinaryArray, ListArray, PrimitiveArray};
use arrow_schema::{DataType, Field};

use crate::row::OwnedValue;
use crate::{ColumnInfo, ColumnKind, Value};

/// A column and the cells that wait, one for each record.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) name: String,
    kind: ColumnKind,
    list: bool,
    /// Whether kind and list are known, and not taken from the first values.
    expected: bool,
    waiting: Vec<Option<OwnedValue>>,
}

impl Cells {
    /// A column whose first value this is; the records before have none.
    pub(super) fn new(name: &str, value: &Value<'_>) -> Cells {
        Cells { expected: false, ..Cells::expected(&ColumnInfo::of(name, value)) }
    }

    /// A column of which all is known.
    pub(super) fn expected(column: &ColumnInfo) -> Cells {
        let ColumnInfo { name, kind, list } = column.clone();
        let kind = if kind == ColumnKind::Untyped { ColumnKind::Text } else { kind };
        Cells { name, kind, list, expected: true, waiting: Vec::new() }
    }

    /// Makes room for another kind of value, if there is a kind for both.
    pub(super) fn widen(&mut self, value: &Value<'_>) -> Result<(), String> {
        if self.expected {
            return self.check(value);
        }
        let ColumnInfo { kind, list, .. } = ColumnInfo::of(&self.name, value);
        self.kind = self.kind.with(kind).ok_or_else(|| self.misfit(value))?;
        self.list |= list;
        Ok(())
    }

    /// Refuses a value that the column has no room for.
    pub(super) fn check(&self, value: &Value<'_>) -> Result<(), String> {
        let ColumnInfo { kind, list, .. } = ColumnInfo::of(&self.name, value);
        // Lists have no kind for text, so that bytes may be some.
        let text = self.kind == ColumnKind::Text && kind == ColumnKind::Bytes;
        let same = self.kind.with(kind) == Some(self.kind) || (text && self.list);
        if list && !self.list {
            return Err(format!("{} items where the first records have one", value.count()));
        }
        if same { Ok(()) } else { Err(self.misfit(value)) }
    }

    fn misfit(&self, value: &Value<'_>) -> String {
        let mine = self.kind.name();
        format!("{} where the first records have {mine}", value.kind())
    }

    /// Keeps the value for record `row` of the batch.
    pub(super) fn put(&mut self, row: usize, value: &Value<'_>) {
        self.pad(row);
        self.waiting.push(Some(OwnedValue::of(value)));
    }

    /// Records without this column are nulls.
    pub(super) fn pad(&mut self, rows: usize) {
        while self.waiting.len() < rows {
            self.waiting.push(None);
        }
    }

    pub(super) fn field(&self) -> Field {
        let item = match self.kind {
            ColumnKind::Ints => DataType::Int64,
            ColumnKind::Floats => DataType::Float32,
            ColumnKind::Text | ColumnKind::Untyped => DataType::Utf8,
            ColumnKind::Bytes => DataType::Binary,
        };
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        Field::new(&self.name, if self.list { list(item) } else { item }, true)
    }

    /// The waiting cells as an array; the error has the record of the batch.
    pub(super) fn take(&mut self) -> Result<ArrayRef, (usize, String)> {
        let waiting = std::mem::take(&mut self.waiting);
        Ok(match self.kind {
            ColumnKind::Ints => ints(waiting, self.list),
            ColumnKind::Floats => floats(waiting, self.list)?,
            ColumnKind::Text | ColumnKind::Untyped => texts(waiting, self.list)?,
            ColumnKind::Bytes => bytes(waiting, self.list),
        })
    }
}

fn ints(waiting: Vec<Option<OwnedValue>>, list: bool) -> ArrayRef {
    let items = waiting.into_iter().map(|cell| match cell {
        Some(OwnedValue::Ints(items)) => Some(items),
        _ => None,
    });
    numbers::<Int64Type>(items, list)
}

fn floats(waiting: Vec<Option<OwnedValue>>, list: bool) -> Result<ArrayRef, (usize, String)> {
    let mut all = Vec::with_capacity(waiting.len());
    for (row, cell) in waiting.into_iter().enumerate() {
        all.push(match cell {
            Some(OwnedValue::Floats(items)) => Some(items),
            Some(OwnedValue::Ints(items)) => Some(exact(&items).map_err(|reason| (row, reason))?),
            _ => None,
        });
    }
    Ok(numbers::<Float32Type>(all.into_iter(), list))
}

/// Each cell's numbers as a list, or its only one.
fn numbers<T: ArrowPrimitiveType>(
    cells: impl Iterator<Item = Option<Vec<T::Native>>>,
    list: bool,
) -> ArrayRef {
    if list {
        let lists = cells.map(|items| items.map(|items| items.into_iter().map(Some)));
        return Arc::new(ListArray::from_iter_primitive::<T, _, _>(lists));
    }
    let only = cells.map(|items| items?.first().copied());
    Arc::new(only.collect::<PrimitiveArray<T>>())
}

/// Integers among floats, as long as none is changed by that.
fn exact(items: &[i64]) -> Result<Vec<f32>, String> {
    let mut floats = Vec::with_capacity(items.len());
    for &item in items {
        let float = item as f32;
        if float as i128 != i128::from(item) {
            return Err(format!("{item} is among floats, and no float of 32 bits is the same"));
        }
        floats.push(float);
    }
    Ok(floats)
}

/// Each cell's strings of bytes; nothing for a null.
fn strings(waiting: Vec<Option<OwnedValue>>) -> impl Iterator<Item = Option<Vec<Vec<u8>>>> {
    waiting.into_iter().map(|cell| match cell {
        Some(OwnedValue::Text(text)) => Some(vec![text.into_bytes()]),
        Some(OwnedValue::Bytes(bytes)) => Some(vec![bytes]),
        Some(OwnedValue::List(items)) => Some(items),
        _ => None,
    })
}

fn texts(waiting: Vec<Option<OwnedValue>>, list: bool) -> Result<ArrayRef, (usize, String)> {
    let (mut single, mut lists) = (StringBuilder::new(), ListBuilder::new(StringBuilder::new()));
    for (row, items) in strings(waiting).enumerate() {
        let valid = items.is_some();
        let mut texts = Vec::new();
        for item in items.unwrap_or_default() {
            texts.push(String::from_utf8(item).map_err(|error| (row, error.to_string()))?);
        }
        match list {
            true => {
                texts.into_iter().for_each(|text| lists.values().append_value(text));
                lists.append(valid);
            }
            false => single.append_option(texts.into_iter().next()),
        }
    }
    Ok(if list { Arc::new(lists.finish()) } else { Arc::new(single.finish()) })
}

fn bytes(waiting: Vec<Option<OwnedValue>>, list: bool) -> ArrayRef {
    let items = strings(waiting);
    if !list {
        let first = |items: Option<Vec<Vec<u8>>>| items?.into_iter().next();
        return Arc::new(items.map(first).collect::<BinaryArray>());
    }
    let mut lists = ListBuilder::new(BinaryBuilder::new());
    for items in items {
        let valid = items.is_some();
        for item in items.unwrap_or_default() {
            lists.values().append_value(item);
        }
        lists.append(valid);
    }
    Arc::new(lists.finish())
}
