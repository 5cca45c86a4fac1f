//! Turns Arrow's many types into the few of a row, once per block, so that giving out rows copies nothing.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrowPrimitiveType, BinaryArray, FixedSizeBinaryArray};
use arrow_array::{Float32Array, Int64Array, ListArray, StringArray};
use arrow_schema::{DataType, TimeUnit};

use crate::{ColumnInfo, ColumnKind, Value};

/// A column of a block.
#[derive(Debug)]
pub(super) enum DecodedColumn {
    Nothing,
    Ints(Int64Array),
    Floats(Float32Array),
    Text(StringArray),
    Bytes(BinaryArray),
    FixedBytes(FixedSizeBinaryArray),
    List { lists: ListArray, items: Box<DecodedColumn> },
}

/// Why a column cannot be turned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// The row in the block, when one is at fault.
    pub(super) row: Option<usize>,
    pub(super) reason: String,
}

impl DecodedColumn {
    pub(super) fn new(array: &dyn Array) -> Result<DecodedColumn, Unfit> {
        use DataType as T;
        Ok(match array.data_type() {
            T::Null => DecodedColumn::Nothing,
            T::Boolean => {
                let bits = array.as_boolean();
                DecodedColumn::Ints(bits.iter().map(|bit| bit.map(i64::from)).collect())
            }
            T::Int8 => ints::<Int8Type>(array),
            T::Int16 => ints::<Int16Type>(array),
            T::Int32 => ints::<Int32Type>(array),
            T::Int64 => DecodedColumn::Ints(array.as_primitive().clone()),
            T::UInt8 => ints::<UInt8Type>(array),
            T::UInt16 => ints::<UInt16Type>(array),
            T::UInt32 => ints::<UInt32Type>(array),
            T::UInt64 => unsigned(array)?,
            T::Float16 | T::Float32 | T::Float64 => floats(array),
            T::Utf8 => DecodedColumn::Text(array.as_string().clone()),
            T::Binary => DecodedColumn::Bytes(array.as_binary().clone()),
            T::FixedSizeBinary(_) => {
                DecodedColumn::FixedBytes(array.as_fixed_size_binary().clone())
            }
            T::List(_) => {
                let lists = array.as_list::<i32>().clone();
                let items = Box::new(DecodedColumn::new(lists.values()).map_err(|unfit| {
                    Unfit { row: unfit.row.map(|item| list_of(&lists, item)), ..unfit }
                })?);
                DecodedColumn::List { lists, items }
            }
            other => time(array).or_else(|| decimal(array)).ok_or_else(|| Unfit {
                row: None,
                reason: format!("cannot read values of type {other}"),
            })?,
        })
    }

    /// Memory that keeping the column takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            DecodedColumn::Nothing => 0,
            DecodedColumn::Ints(array) => array.get_array_memory_size(),
            DecodedColumn::Floats(array) => array.get_array_memory_size(),
            DecodedColumn::Text(array) => array.get_array_memory_size(),
            DecodedColumn::Bytes(array) => array.get_array_memory_size(),
            DecodedColumn::FixedBytes(array) => array.get_array_memory_size(),
            DecodedColumn::List { lists, items } => lists.get_array_memory_size() + items.bytes(),
        }
    }

    /// The value in a row; none for a null.
    pub(super) fn value(&self, row: usize) -> Result<Option<Value<'_>>, String> {
        Ok(match self {
            DecodedColumn::Nothing => None,
            DecodedColumn::Ints(array) => {
                array.is_valid(row).then(|| int_items(array, row, row + 1))
            }
            DecodedColumn::Floats(array) => {
                array.is_valid(row).then(|| float_items(array, row, row + 1))
            }
            DecodedColumn::Text(array) => {
                array.is_valid(row).then(|| Value::Text(array.value(row)))
            }
            DecodedColumn::Bytes(array) => {
                array.is_valid(row).then(|| Value::Bytes(array.value(row)))
            }
            DecodedColumn::FixedBytes(array) => {
                array.is_valid(row).then(|| Value::Bytes(array.value(row)))
            }
            DecodedColumn::List { lists, items } if lists.is_valid(row) => {
                let offsets = lists.value_offsets();
                Some(items.items(offsets[row] as usize, offsets[row + 1] as usize)?)
            }
            DecodedColumn::List { .. } => None,
        })
    }

    /// Neighbouring values as one.
    fn items(&self, start: usize, end: usize) -> Result<Value<'_>, String> {
        let bytes = |range: std::ops::Range<usize>| -> Result<Value<'_>, String> {
            let mut items = Vec::with_capacity(range.len());
            for row in range {
                match self.value(row)? {
                    Some(Value::Text(text)) => items.push(text.as_bytes()),
                    Some(Value::Bytes(bytes)) => items.push(bytes),
                    Some(_) => return Err("a list inside a list".to_owned()),
                    None => return Err("a null inside a list".to_owned()),
                }
            }
            Ok(if let [one] = items[..] { Value::Bytes(one) } else { Value::List(items) })
        };
        let null = |array: &dyn Array| {
            array.null_count() > 0 && (start..end).any(|row| array.is_null(row))
        };
        match self {
            DecodedColumn::Ints(array) if !null(array) => Ok(int_items(array, start, end)),
            DecodedColumn::Floats(array) if !null(array) => Ok(float_items(array, start, end)),
            DecodedColumn::Ints(_) | DecodedColumn::Floats(_) => {
                Err("a null inside a list".to_owned())
            }
            _ => bytes(start..end),
        }
    }
}

/// Says what is wrong with a type, if anything is.
pub(super) fn check_type(data_type: &DataType) -> Result<(), String> {
    match data_type {
        DataType::List(item) if matches!(item.data_type(), DataType::List(_)) => {
            Err("lists inside lists cannot be read as one value".to_owned())
        }
        DataType::List(item) => check_type(item.data_type()),
        DataType::Struct(_) | DataType::Map(..) | DataType::Interval(_) | DataType::Union(..) => {
            let kind = match data_type {
                DataType::Struct(_) => "a struct",
                DataType::Map(..) => "a map",
                _ => "of a type that is neither number, text nor bytes",
            };
            Err(format!("{kind}: leave it out of the file"))
        }
        _ => Ok(()),
    }
}

/// What rows have of a column of a type that [`check_type`] allows.
pub(super) fn column_info(name: &str, data_type: &DataType) -> ColumnInfo {
    use DataType as T;
    let (item, list) = match data_type {
        T::List(item) => (item.data_type(), true),
        other => (other, false),
    };
    let kind = match item {
        T::Utf8 => ColumnKind::Text,
        T::Binary | T::FixedSizeBinary(_) => ColumnKind::Bytes,
        T::Float16 | T::Float32 | T::Float64 => ColumnKind::Floats,
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
            ColumnKind::Floats
        }
        _ => ColumnKind::Ints,
    };
    ColumnInfo { name: name.to_owned(), kind, list }
}

fn int_items(array: &Int64Array, start: usize, end: usize) -> Value<'_> {
    Value::Ints(Cow::Borrowed(&array.values()[start..end]))
}

fn float_items(array: &Float32Array, start: usize, end: usize) -> Value<'_> {
    Value::Floats(Cow::Borrowed(&array.values()[start..end]))
}

fn ints<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> DecodedColumn {
    DecodedColumn::Ints(array.as_primitive::<T>().unary(Into::into))
}

fn unsigned(array: &dyn Array) -> Result<DecodedColumn, Unfit> {
    let array = array.as_primitive::<UInt64Type>();
    for row in 0..array.len() {
        if array.is_valid(row) && array.value(row) > i64::MAX as u64 {
            let reason = format!("{} is more than {}", array.value(row), i64::MAX);
            return Err(Unfit { row: Some(row), reason });
        }
    }
    Ok(DecodedColumn::Ints(array.unary(|value| value as i64)))
}

fn floats(array: &dyn Array) -> DecodedColumn {
    DecodedColumn::Floats(match array.data_type() {
        DataType::Float16 => array.as_primitive::<Float16Type>().unary(f32::from),
        DataType::Float32 => array.as_primitive().clone(),
        _ => array.as_primitive::<Float64Type>().unary(|value| value as f32),
    })
}

/// Dates, times and durations as integers in their own unit.
fn time(array: &dyn Array) -> Option<DecodedColumn> {
    use DataType as T;
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match array.data_type() {
        T::Date32 => ints::<Date32Type>(array),
        T::Date64 => ints::<Date64Type>(array),
        T::Time32(Second) => ints::<Time32SecondType>(array),
        T::Time32(_) => ints::<Time32MillisecondType>(array),
        T::Time64(Nanosecond) => ints::<Time64NanosecondType>(array),
        T::Time64(_) => ints::<Time64MicrosecondType>(array),
        T::Timestamp(Second, _) => ints::<TimestampSecondType>(array),
        T::Timestamp(Millisecond, _) => ints::<TimestampMillisecondType>(array),
        T::Timestamp(Microsecond, _) => ints::<TimestampMicrosecondType>(array),
        T::Timestamp(Nanosecond, _) => ints::<TimestampNanosecondType>(array),
        _ => return None,
    })
}

fn decimal(array: &dyn Array) -> Option<DecodedColumn> {
    use DataType as T;
    let scaled = |value: f64, scale: i8| (value / 10f64.powi(scale.into())) as f32;
    Some(DecodedColumn::Floats(match *array.data_type() {
        T::Decimal32(_, scale) => {
            array.as_primitive::<Decimal32Type>().unary(|value| scaled(value.into(), scale))
        }
        T::Decimal64(_, scale) => {
            array.as_primitive::<Decimal64Type>().unary(|value| scaled(value as f64, scale))
        }
        T::Decimal128(_, scale) => {
            array.as_primitive::<Decimal128Type>().unary(|value| scaled(value as f64, scale))
        }
        T::Decimal256(_, scale) => array.as_primitive::<Decimal256Type>().unary(|value| {
            // Its text is the one form that keeps all 256 bits until they are a float.
            scaled(value.to_string().parse().unwrap_or(f64::NAN), scale)
        }),
        _ => return None,
    }))
}

/// The list that an item belongs to.
fn list_of(lists: &ListArray, item: usize) -> usize {
    lists.value_offsets().partition_point(|&offset| offset as usize <= item).saturating_sub(1)
}
