//! Rows as structs of the user: arrays in and out by serde, with columns cast to what a struct asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{can_cast_types, cast};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};
use serde_json::Value as Json;

use super::Error;

/// A row as a struct: its fields are columns. Everything that serde can read and write is one.
pub trait FlowRow: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> FlowRow for T {}

/// The columns of a struct: lists, texts and bytes as every reader has them, and `Vec<u8>` as bytes.
pub(crate) fn columns_of<T: FlowRow>(step: &str) -> Result<Vec<FieldRef>, Error> {
    let options = TracingOptions::default()
        .allow_null_fields(true)
        .sequence_as_large_list(false)
        .strings_as_large_utf8(false)
        .bytes_as_large_binary(false)
        .enums_without_data_as_strings(true);
    let fields = Vec::<FieldRef>::from_type::<T>(options);
    let fields = fields.map_err(|error| Error::step(step, error))?;
    Ok(fields.into_iter().map(bytes_for_lists_of_them).collect())
}

fn bytes_for_lists_of_them(field: FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::List(item) if item.data_type() == &DataType::UInt8 => {
            Arc::new(Field::new(field.name(), DataType::Binary, field.is_nullable()))
        }
        _ => field,
    }
}

/// Reads structs out of batches of one schema.
#[derive(Clone, Debug)]
pub(crate) struct RowReader {
    /// The columns that the struct has and the batches have too: where they are, and as what they are read.
    columns: Vec<(usize, FieldRef)>,
    schema: SchemaRef,
}

impl RowReader {
    /// For batches of a schema; a field that must have a value needs a column.
    pub(crate) fn new<T: FlowRow>(step: &str, input: &Schema) -> Result<Self, Error> {
        let mut columns = Vec::new();
        for field in columns_of::<T>(step)? {
            match input.index_of(field.name()) {
                Ok(place) => columns.push((place, readable(&field, input.field(place)))),
                Err(_) if field.is_nullable() => {}
                Err(_) => {
                    let there: Vec<&str> =
                        input.fields().iter().map(|field| field.name().as_str()).collect();
                    let reason =
                        format!("no column \"{}\" (there are: {})", field.name(), there.join(", "));
                    return Err(Error::step(step, reason));
                }
            }
        }
        let fields: Vec<FieldRef> = columns.iter().map(|(_, field)| Arc::clone(field)).collect();
        Ok(Self { columns, schema: Arc::new(Schema::new(fields)) })
    }

    /// All rows of a batch; where some cannot be read, each with its reason.
    pub(crate) fn read<T: FlowRow>(
        &self,
        batch: &RecordBatch,
    ) -> Result<Vec<Result<T, String>>, Error> {
        let batch = self.cast(batch)?;
        if let Ok(rows) = serde_arrow::from_record_batch::<Vec<T>>(&batch) {
            return Ok(rows.into_iter().map(Ok).collect());
        }
        let one = |row: usize| match serde_arrow::from_record_batch::<Vec<T>>(&batch.slice(row, 1))
        {
            Ok(mut rows) if rows.len() == 1 => Ok(rows.remove(0)),
            Ok(_) => Err("it is no row".to_string()),
            Err(error) => Err(without_backtrace(&error.to_string())),
        };
        Ok((0..batch.num_rows()).map(one).collect())
    }

    /// What cannot be cast becomes null, and is told where a value is needed.
    fn cast(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (place, field) in &self.columns {
            let array = batch.column(*place);
            let same = array.data_type() == field.data_type();
            arrays.push(if same { Arc::clone(array) } else { cast(array, field.data_type())? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// The column as it is read: cast to the struct's type where there is a cast, and nullable, since a cast may fail.
fn readable(wanted: &Field, found: &Field) -> FieldRef {
    let castable = can_cast_types(found.data_type(), wanted.data_type());
    let kind = if castable { wanted.data_type() } else { found.data_type() };
    Arc::new(Field::new(wanted.name(), kind.clone(), true))
}

/// Structs as a batch.
pub(crate) fn batch_of<T: FlowRow>(
    step: &str,
    schema: &SchemaRef,
    rows: &[T],
) -> Result<RecordBatch, Error> {
    if rows.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    let batch = serde_arrow::to_record_batch(&fields, &rows);
    let batch = batch.map_err(|error| Error::step(step, without_backtrace(&error.to_string())))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}

/// A row of a batch for people: what has no JSON is left out.
pub(crate) fn row_json(batch: &RecordBatch, row: usize) -> Json {
    let one = batch.slice(row, 1);
    let mut object = BTreeMap::new();
    for (field, array) in batch.schema().fields().iter().zip(one.columns()) {
        let text = match array.data_type() {
            _ if array.is_null(0) => continue,
            kind if kind.is_binary() => "(bytes)".to_string(),
            _ => datafusion::arrow::util::display::array_value_to_string(array, 0)
                .unwrap_or_default(),
        };
        object.insert(field.name().clone(), Json::String(text));
    }
    serde_json::json!(object)
}

fn without_backtrace(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_string()
}
