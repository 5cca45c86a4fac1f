//! Between our rows and arrays: records of any format as batches, and batches as rows that our sinks and statistics
//! take.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::builder::{
    BinaryBuilder, Float32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::{Float32Type, Int64Type};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use salamander_data::{ColumnInfo, ColumnKind, Format, Row, Value};

use super::Error;

/// The columns of records as a schema; all may be null.
pub(crate) fn schema_of(columns: &[ColumnInfo]) -> SchemaRef {
    let field = |column: &ColumnInfo| {
        let item = match column.kind {
            ColumnKind::Ints => DataType::Int64,
            ColumnKind::Floats => DataType::Float32,
            ColumnKind::Text | ColumnKind::Untyped => DataType::Utf8,
            ColumnKind::Bytes => DataType::Binary,
        };
        let kind = if column.list { list_of(item) } else { item };
        Field::new(&column.name, kind, true)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// Collects rows of records for a batch.
pub(crate) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    rows: usize,
}

enum ColumnBuilder {
    Int(Int64Builder),
    Float(Float32Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Ints(ListBuilder<Int64Builder>),
    Floats(ListBuilder<Float32Builder>),
    Texts(ListBuilder<StringBuilder>),
    ByteLists(ListBuilder<BinaryBuilder>),
}

impl BatchBuilder {
    pub(crate) fn new(columns: &[ColumnInfo], schema: SchemaRef) -> Self {
        Self { schema, columns: columns.iter().map(ColumnBuilder::new).collect(), rows: 0 }
    }

    /// Adds a row; one that does not fit is an error and changes nothing.
    pub(crate) fn add(&mut self, row: &Row<'_>) -> Result<(), String> {
        let schema = Arc::clone(&self.schema);
        for (column, field) in self.columns.iter().zip(schema.fields()) {
            if let Some(value) = row.get(field.name())
                && let Err(reason) = column.check(value)
            {
                return Err(format!("column \"{}\": {reason}", field.name()));
            }
        }
        for (column, field) in self.columns.iter_mut().zip(schema.fields()) {
            column.add(row.get(field.name()));
        }
        self.rows += 1;
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Result<RecordBatch, Error> {
        let arrays: Vec<ArrayRef> = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

impl ColumnBuilder {
    fn new(column: &ColumnInfo) -> Self {
        match (column.kind, column.list) {
            (ColumnKind::Ints, false) => Self::Int(Int64Builder::new()),
            (ColumnKind::Floats, false) => Self::Float(Float32Builder::new()),
            (ColumnKind::Text | ColumnKind::Untyped, false) => Self::Text(StringBuilder::new()),
            (ColumnKind::Bytes, false) => Self::Bytes(BinaryBuilder::new()),
            (ColumnKind::Ints, true) => Self::Ints(ListBuilder::new(Int64Builder::new())),
            (ColumnKind::Floats, true) => Self::Floats(ListBuilder::new(Float32Builder::new())),
            (ColumnKind::Text | ColumnKind::Untyped, true) => {
                Self::Texts(ListBuilder::new(StringBuilder::new()))
            }
            (ColumnKind::Bytes, true) => Self::ByteLists(ListBuilder::new(BinaryBuilder::new())),
        }
    }

    fn check(&self, value: &Value<'_>) -> Result<(), String> {
        let single = matches!(self, Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Bytes(_));
        if single && value.count() != 1 {
            return Err(format!("{} items where one is expected", value.count()));
        }
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        let fits = match (self, value) {
            (Self::Int(_) | Self::Ints(_), Value::Ints(_))
            | (Self::Float(_) | Self::Floats(_), Value::Ints(_) | Value::Floats(_))
            | (Self::Text(_) | Self::Texts(_), Value::Text(_))
            | (Self::Bytes(_) | Self::ByteLists(_), Value::Text(_) | Value::Bytes(_))
            | (Self::ByteLists(_), Value::List(_)) => true,
            (Self::Text(_) | Self::Texts(_), Value::Bytes(bytes)) => text(bytes),
            (Self::Texts(_), Value::List(items)) => items.iter().all(|item| text(item)),
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("{} do not fit", value.kind())) }
    }

    /// Adds a value that was checked.
    fn add(&mut self, value: Option<&Value<'_>>) {
        match self {
            Self::Int(cells) => {
                cells.append_option(value.and_then(|value| ints(value).first().copied()))
            }
            Self::Float(cells) => {
                cells.append_option(value.and_then(|value| floats(value).first().copied()));
            }
            Self::Text(cells) => {
                cells.append_option(value.and_then(|value| texts(value).first().copied()));
            }
            Self::Bytes(cells) => {
                cells.append_option(value.and_then(|value| bytes(value).first().copied()));
            }
            Self::Ints(cells) => {
                cells.append_option(value.map(|value| ints(value).to_vec().into_iter().map(Some)));
            }
            Self::Floats(cells) => {
                cells.append_option(
                    value.map(|value| floats(value).into_owned().into_iter().map(Some)),
                );
            }
            Self::Texts(cells) => {
                cells.append_option(value.map(|value| texts(value).into_iter().map(Some)))
            }
            Self::ByteLists(cells) => {
                cells.append_option(value.map(|value| bytes(value).into_iter().map(Some)));
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(cells) => Arc::new(cells.finish()),
            Self::Float(cells) => Arc::new(cells.finish()),
            Self::Text(cells) => Arc::new(cells.finish()),
            Self::Bytes(cells) => Arc::new(cells.finish()),
            Self::Ints(cells) => Arc::new(cells.finish()),
            Self::Floats(cells) => Arc::new(cells.finish()),
            Self::Texts(cells) => Arc::new(cells.finish()),
            Self::ByteLists(cells) => Arc::new(cells.finish()),
        }
    }
}

fn ints<'a>(value: &'a Value<'_>) -> &'a [i64] {
    if let Value::Ints(items) = value { items } else { &[] }
}

fn floats<'a>(value: &'a Value<'_>) -> Cow<'a, [f32]> {
    match value {
        Value::Floats(items) => Cow::Borrowed(items),
        Value::Ints(items) => items.iter().map(|&item| item as f32).collect::<Vec<_>>().into(),
        _ => Cow::Borrowed(&[]),
    }
}

fn bytes<'a>(value: &Value<'a>) -> Vec<&'a [u8]> {
    match value {
        Value::Bytes(bytes) => vec![bytes],
        Value::Text(text) => vec![text.as_bytes()],
        Value::List(items) => items.clone(),
        Value::Ints(_) | Value::Floats(_) => Vec::new(),
    }
}

fn texts<'a>(value: &Value<'a>) -> Vec<&'a str> {
    bytes(value).into_iter().filter_map(|bytes| std::str::from_utf8(bytes).ok()).collect()
}

/// The columns of a batch as files of a format have them: what our readers cannot read is refused here.
#[derive(Clone, Debug)]
pub(crate) struct WrittenColumns {
    pub(crate) schema: SchemaRef,
}

impl WrittenColumns {
    pub(crate) fn new(schema: &Schema, format: Format) -> Result<Self, Error> {
        let mut fields: Vec<FieldRef> = Vec::new();
        for field in schema.fields() {
            let kind = written(field.data_type(), format == Format::Parquet).ok_or_else(|| {
                let (name, kind) = (field.name(), field.data_type());
                Error::Invalid(format!(
                    "column \"{name}\": {kind} cannot be written: select its parts as columns of their own"
                ))
            })?;
            fields.push(Arc::new(Field::new(field.name(), kind, true)));
        }
        Ok(Self { schema: Arc::new(Schema::new(fields)) })
    }

    pub(crate) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let mut arrays = Vec::with_capacity(batch.num_columns());
        for (array, field) in batch.columns().iter().zip(self.schema.fields()) {
            let same = array.data_type() == field.data_type();
            arrays.push(if same { Arc::clone(array) } else { cast(array, field.data_type())? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }

    /// The same columns as our sinks know them.
    pub(crate) fn infos(&self) -> Vec<ColumnInfo> {
        let info = |field: &FieldRef| {
            let (kind, list) = match field.data_type() {
                DataType::List(item) => (item.data_type(), true),
                kind => (kind, false),
            };
            let kind = match kind {
                kind if kind.is_integer() || kind == &DataType::Boolean => ColumnKind::Ints,
                DataType::Utf8 => ColumnKind::Text,
                DataType::Binary => ColumnKind::Bytes,
                _ => ColumnKind::Floats,
            };
            ColumnInfo { name: field.name().clone(), kind, list }
        };
        self.schema.fields().iter().map(info).collect()
    }
}

/// The type that a column is written as; numbers keep theirs in Parquet, which has room for them.
fn written(kind: &DataType, keeps_numbers: bool) -> Option<DataType> {
    Some(match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let item = written(item.data_type(), keeps_numbers)?;
            if matches!(item, DataType::List(_)) {
                return None;
            }
            list_of(item)
        }
        DataType::Dictionary(_, value) => written(value, keeps_numbers)?,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        kind if keeps_numbers && (kind.is_numeric() || kind.is_temporal()) => kind.clone(),
        DataType::Boolean if keeps_numbers => DataType::Boolean,
        kind if kind.is_integer() || kind == &DataType::Boolean => DataType::Int64,
        kind if kind.is_floating()
            || matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..)) =>
        {
            DataType::Float32
        }
        kind if kind.is_temporal() => DataType::Utf8,
        DataType::Null => DataType::Utf8,
        _ => return None,
    })
}

/// Refuses nulls among the items of lists: rows of ours have no place for them, and would have a 0 or an empty text.
pub(crate) fn refuse_null_items(batch: &RecordBatch) -> Result<(), Error> {
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let Some(list) = array.as_list_opt::<i32>() else { continue };
        let (items, ends) = (list.values(), list.value_offsets());
        if items.null_count() == 0 {
            continue;
        }
        let has_null =
            |row: usize| (ends[row] as usize..ends[row + 1] as usize).any(|at| items.is_null(at));
        if (0..list.len()).any(|row| list.is_valid(row) && has_null(row)) {
            let name = field.name();
            return Err(Error::Invalid(format!(
                "column \"{name}\": a list has a null among its items, which only parquet can hold: fill it, or leave \
                 it out"
            )));
        }
    }
    Ok(())
}

/// The types that rows are made of, for batches whose numbers are of any type.
pub(crate) fn row_columns(schema: &Schema) -> Result<WrittenColumns, Error> {
    WrittenColumns::new(schema, Format::RecordIo)
}

/// A row of a batch of [`row_columns`]; nulls are left out, as our readers do.
pub(crate) fn row_of<'a>(batch: &'a RecordBatch, schema: &'a Schema, row: usize) -> Row<'a> {
    let mut cells = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        if array.is_valid(row) {
            cells.push((Cow::Borrowed(field.name().as_str()), value_of(array, row)));
        }
    }
    Row::new(cells)
}

fn value_of(array: &ArrayRef, row: usize) -> Value<'_> {
    match array.data_type() {
        DataType::Int64 => {
            Value::Ints(Cow::Borrowed(&array.as_primitive::<Int64Type>().values()[row..row + 1]))
        }
        DataType::Float32 => Value::Floats(Cow::Borrowed(
            &array.as_primitive::<Float32Type>().values()[row..row + 1],
        )),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row)),
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let (start, end) =
                (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
            let items = list.values();
            match item.data_type() {
                DataType::Int64 => Value::Ints(Cow::Borrowed(
                    &items.as_primitive::<Int64Type>().values()[start..end],
                )),
                DataType::Float32 => Value::Floats(Cow::Borrowed(
                    &items.as_primitive::<Float32Type>().values()[start..end],
                )),
                DataType::Utf8 => {
                    let texts = items.as_string::<i32>();
                    listed((start..end).map(|place| texts.value(place).as_bytes()).collect())
                }
                _ => {
                    let bytes = items.as_binary::<i32>();
                    listed((start..end).map(|place| bytes.value(place)).collect())
                }
            }
        }
        _ => Value::Bytes(array.as_binary::<i32>().value(row)),
    }
}

/// A single string of bytes is never a list.
fn listed(items: Vec<&[u8]>) -> Value<'_> {
    match items.as_slice() {
        [one] => Value::Bytes(one),
        _ => Value::List(items),
    }
}
