//! What a request asks about: tensors, or records with the columns of the data that the model has learned from.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use salamander_data::{JsonRecord, Row, Value};
use serde_json::{Map, Value as Json};

use crate::model::TensorInfo;
use crate::tensor::{Tensor, Values};

/// The records of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A column each.
    Tensors(Vec<Tensor>),
    /// One by one.
    Records(Vec<JsonRecord>),
}

impl Input {
    /// From records as JSON has them; see [`record`].
    pub fn from_json(records: Vec<Json>) -> Result<Self, String> {
        let all = records.into_iter().enumerate().map(|(place, json)| match json {
            Json::Object(object) => {
                record(object).map_err(|reason| format!("record {place}: {reason}"))
            }
            _ => Err(format!("record {place}: write {{\"column\": value, ..}}")),
        });
        all.collect::<Result<_, _>>().map(Input::Records)
    }

    /// Refuses tensors that the model does not have, which would be left out, and names that are there twice. Records
    /// keep the other columns that the data has.
    pub(crate) fn check_names(&self, known: &[TensorInfo]) -> Result<(), String> {
        let Input::Tensors(tensors) = self else { return Ok(()) };
        let mut names = BTreeSet::new();
        for Tensor { name, .. } in tensors {
            if !known.iter().any(|input| input.name == *name) {
                let known: Vec<&str> = known.iter().map(|input| input.name.as_str()).collect();
                let known = known.join(", ");
                return Err(format!("there is no input \"{name}\" (there are: {known})"));
            }
            if !names.insert(name) {
                return Err(format!("input \"{name}\" is there twice"));
            }
        }
        Ok(())
    }

    /// How many records.
    pub fn rows(&self) -> usize {
        match self {
            Input::Tensors(tensors) => tensors.first().map_or(0, Tensor::rows),
            Input::Records(records) => records.len(),
        }
    }

    /// Gives each record as a row; an error is told with its record.
    pub fn each(&self, take: &mut dyn FnMut(&Row<'_>) -> Result<(), String>) -> Result<(), String> {
        let rows = self.rows();
        let named = |place: usize, reason: String| match rows {
            1 => reason,
            _ => format!("record {place}: {reason}"),
        };
        if let Input::Tensors(tensors) = self
            && let Some(other) = tensors.iter().find(|tensor| tensor.rows() != rows)
        {
            let Tensor { name, shape, .. } = other;
            return Err(format!(
                "input \"{name}\": shape {shape:?} does not begin with {rows}, as that of the first input does"
            ));
        }
        for place in 0..rows {
            let row = match self {
                Input::Records(records) => records[place].row(),
                Input::Tensors(tensors) => Row::new(
                    tensors
                        .iter()
                        .map(|tensor| (tensor.name.as_str().into(), cell(tensor, place)))
                        .collect(),
                ),
            };
            take(&row).map_err(|reason| named(place, reason))?;
        }
        Ok(())
    }
}

/// What a tensor holds for a record.
fn cell(tensor: &Tensor, row: usize) -> Value<'_> {
    let width = tensor.width();
    let range = row * width..(row + 1) * width;
    match &tensor.values {
        Values::Bytes(bytes) if width == 1 => Value::Ints(Cow::Owned(vec![bytes[row].into()])),
        Values::Bytes(bytes) => Value::Bytes(&bytes[range]),
        Values::Ints(ints) => Value::Ints(Cow::Borrowed(&ints[range])),
        Values::Floats(floats) => Value::Floats(Cow::Borrowed(&floats[range])),
        Values::Texts(texts) => match &texts[range] {
            [one] => std::str::from_utf8(one).map_or(Value::Bytes(one), Value::Text),
            several => Value::List(several.iter().map(|text| &text[..]).collect()),
        },
    }
}

/// A record from JSON. Lists within lists are one list, row by row, and `{"b64": ".."}` stands for bytes, such as a
/// picture's file.
pub fn record(object: Map<String, Json>) -> Result<JsonRecord, String> {
    let (mut plain, mut bytes) = (Map::new(), Vec::new());
    for (name, value) in object {
        match value {
            Json::Object(inner) if is_base64(&inner) => {
                let text = inner.get("b64").and_then(Json::as_str).unwrap_or_default();
                let decoded = STANDARD.decode(text);
                let decoded =
                    decoded.map_err(|error| format!("column \"{name}\": b64: {error}"))?;
                bytes.push((name, decoded));
            }
            Json::Array(items) if items.iter().any(Json::is_array) => {
                let mut flat = Vec::new();
                flatten(items, &mut flat);
                plain.insert(name, Json::Array(flat));
            }
            value => {
                plain.insert(name, value);
            }
        }
    }
    let record = JsonRecord::new(plain)?;
    Ok(bytes.into_iter().fold(record, |record, (name, bytes)| record.with_bytes(&name, bytes)))
}

fn is_base64(object: &Map<String, Json>) -> bool {
    object.len() == 1 && object.get("b64").is_some_and(Json::is_string)
}

/// The parser bounds how deep lists lie.
fn flatten(items: Vec<Json>, flat: &mut Vec<Json>) {
    for item in items {
        match item {
            Json::Array(items) => flatten(items, flat),
            item => flat.push(item),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tensor::DataType;

    fn rows(input: &Input) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        input.each(&mut |row| {
            let cells = row.columns().map(|(name, value)| format!("{name}={value:?}"));
            rows.push(cells.collect::<Vec<_>>().join(" "));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn records_are_rows_of_their_columns() {
        let check = |json: Json, expected: &str| {
            let input = Input::from_json(vec![json]);
            assert_eq!(input.and_then(|input| rows(&input)), Ok(vec![expected.to_string()]));
        };
        check(json!({"x": 1, "name": "ada"}), "x=Ints([1]) name=Text(\"ada\")");
        check(json!({"image": [[1, 2], [3, 4]]}), "image=Ints([1, 2, 3, 4])");
        check(json!({"image": {"b64": "AP8="}, "x": 0.5}), "x=Floats([0.5]) image=Bytes([0, 255])");
        let wrong = Input::from_json(vec![json!({"x": 1}), json!(5)]).unwrap_err();
        assert_eq!(wrong, "record 1: write {\"column\": value, ..}");
    }

    #[test]
    fn tensors_are_columns() {
        let tensor = |name: &str, kind, shape: &[i64], values| {
            Tensor::new(name, kind, shape, values).unwrap()
        };
        let image =
            tensor("image", DataType::Uint8, &[2, 2], Values::Bytes(vec![1, 2, 3, 4].into()));
        let age = tensor("age", DataType::Int64, &[2], Values::Ints(vec![7, 8]));
        let text =
            tensor("t", DataType::Bytes, &[2, 1], Values::Texts(vec!["a".into(), "b".into()]));
        let input = Input::Tensors(vec![image, age, text]);
        let expected = [
            "image=Bytes([1, 2]) age=Ints([7]) t=Text(\"a\")",
            "image=Bytes([3, 4]) age=Ints([8]) t=Text(\"b\")",
        ];
        assert_eq!(rows(&input).unwrap(), expected);
        let short = tensor("x", DataType::Fp32, &[1, 2], Values::Floats(vec![0.0, 1.0]));
        let long = tensor("y", DataType::Fp32, &[2, 1], Values::Floats(vec![0.0, 1.0]));
        let error = rows(&Input::Tensors(vec![short, long])).unwrap_err();
        assert!(error.starts_with("input \"y\": shape [2, 1] does not begin with 1"), "{error}");
    }
}
