//! Rows as the tensors that a model takes, and its outputs as rows.

use bytes::Bytes;
use salamander_data::{Row, Value};
use serde_json::{Map, Number, Value as Json, json};

use super::Question;
use crate::tensor::{DataType, Values};

/// An input as the server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedInput {
    name: String,
    datatype: DataType,
    /// Of one record.
    shape: Vec<i64>,
}

/// The inputs of a model's metadata.
pub(super) fn wanted(metadata: &Json) -> Result<Vec<WantedInput>, String> {
    let inputs = metadata["inputs"].as_array().filter(|inputs| !inputs.is_empty());
    let inputs = inputs.ok_or("the server does not say what the model takes")?;
    let input = |input: &Json| {
        let name = input["name"].as_str().unwrap_or_default().to_string();
        let datatype = DataType::parse(input["datatype"].as_str().unwrap_or_default())
            .map_err(|reason| format!("input \"{name}\": {reason}"))?;
        let shape = input["shape"].as_array().map_or(&[][..], Vec::as_slice);
        let shape = shape.iter().skip(1).map(|size| size.as_i64().unwrap_or(-1)).collect();
        Ok(WantedInput { name, datatype, shape })
    };
    inputs.iter().map(input).collect()
}

/// Asks about rows; columns that an input is not in are left to the server, which knows whether they may be absent.
pub(super) fn question(inputs: &[WantedInput], rows: &[Row<'_>]) -> Result<Question, String> {
    let (mut tensors, mut raw) = (Vec::new(), Vec::new());
    for input in inputs {
        if rows.iter().all(|row| row.get(&input.name).is_none()) {
            continue;
        }
        let (mut data, mut texts, mut count) = (Vec::new(), Vec::new(), None);
        for (place, row) in rows.iter().enumerate() {
            let wrong =
                |reason: String| format!("record {place}: column \"{}\": {reason}", input.name);
            let value =
                row.require(&input.name).map_err(|error| format!("record {place}: {error}"))?;
            let before = data.len() + texts.len();
            match input.datatype {
                DataType::Bytes => texts.extend(strings(value).map_err(wrong)?),
                _ => numbers(value, &mut data).map_err(wrong)?,
            }
            let own = data.len() + texts.len() - before;
            if *count.get_or_insert(own) != own {
                let reason =
                    "has another number of values than the record before: ask with --batch 1";
                return Err(wrong(reason.to_string()));
            }
        }
        let (count, records) = (count.unwrap_or_default(), rows.len());
        // Two sizes that may be any, minus one each, are not one value.
        let fits = input.shape.iter().all(|size| *size >= 0)
            && input.shape.iter().product::<i64>() == count as i64;
        let own = if fits { input.shape.clone() } else { vec![count as i64] };
        let shape: Vec<i64> = std::iter::once(records as i64).chain(own).collect();
        let mut tensor =
            json!({"name": input.name, "datatype": input.datatype.name(), "shape": shape});
        match input.datatype {
            DataType::Bytes => {
                let bytes = Values::Texts(texts).to_raw();
                tensor["parameters"] = json!({"binary_data_size": bytes.len()});
                raw.push(bytes);
            }
            _ => tensor["data"] = Json::Array(data),
        }
        tensors.push(tensor);
    }
    if tensors.is_empty() {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(format!("the data has none of the model's inputs: {}", names.join(", ")));
    }
    let parameters = json!({"binary_data_output": false});
    let mut body = json!({"inputs": tensors, "parameters": parameters}).to_string().into_bytes();
    let json_bytes = body.len();
    raw.iter().for_each(|bytes| body.extend_from_slice(bytes));
    Ok(Question { body: body.into(), json_bytes, records: rows.len() })
}

fn strings(value: &Value<'_>) -> Result<Vec<Bytes>, String> {
    Ok(match value {
        Value::Text(text) => vec![Bytes::copy_from_slice(text.as_bytes())],
        Value::Bytes(bytes) => vec![Bytes::copy_from_slice(bytes)],
        Value::List(items) => items.iter().map(|item| Bytes::copy_from_slice(item)).collect(),
        Value::Ints(ints) => ints.iter().map(|int| int.to_string().into()).collect(),
        Value::Floats(floats) => floats.iter().map(|float| float.to_string().into()).collect(),
    })
}

fn numbers(value: &Value<'_>, data: &mut Vec<Json>) -> Result<(), String> {
    let parse = |text: &str, data: &mut Vec<Json>| {
        for word in text.split_whitespace() {
            let number: Number =
                word.parse().map_err(|_| format!("\"{word}\" where a number is due"))?;
            data.push(Json::Number(number));
        }
        Ok::<_, String>(())
    };
    match value {
        Value::Bytes(bytes) => data.extend(bytes.iter().map(|byte| Json::from(*byte))),
        Value::Ints(ints) => data.extend(ints.iter().map(|int| Json::from(*int))),
        Value::Floats(floats) => {
            for float in floats.iter() {
                // The few digits that are enough to read the same float again.
                parse(&float.to_string(), data)?;
            }
        }
        Value::Text(text) => parse(text, data)?,
        Value::List(items) => {
            for item in items {
                parse(std::str::from_utf8(item).map_err(|error| error.to_string())?, data)?;
            }
        }
    }
    Ok(())
}

/// The outputs of each record.
pub(super) fn answers(answer: &Json, records: usize) -> Result<Vec<Json>, String> {
    let outputs = answer["outputs"].as_array().ok_or("the answer has no outputs")?;
    let mut rows = vec![Map::new(); records];
    for output in outputs {
        let name = output["name"].as_str().unwrap_or_default();
        let wrong = |reason: &str| format!("output \"{name}\": {reason}");
        let mut data = Vec::new();
        flat(&output["data"], &mut data);
        let shape = output["shape"].as_array().map_or(0, Vec::len);
        if records == 0 || !data.len().is_multiple_of(records) {
            let reason = format!("{} values for {records} records", data.len());
            return Err(wrong(&reason));
        }
        let width = (data.len() / records).max(1);
        for (row, values) in rows.iter_mut().zip(data.chunks(width)) {
            let value = match (values, shape) {
                ([one], 1) => Json::clone(one),
                (several, _) => several.iter().map(|value| (*value).clone()).collect(),
            };
            row.insert(name.to_string(), value);
        }
    }
    Ok(rows.into_iter().map(Json::Object).collect())
}

fn flat<'a>(data: &'a Json, values: &mut Vec<&'a Json>) {
    match data {
        Json::Array(items) => items.iter().for_each(|item| flat(item, values)),
        value => values.push(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Vec<WantedInput> {
        let metadata = json!({"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "t", "datatype": "BYTES", "shape": [-1, 1]},
        ]});
        wanted(&metadata).unwrap()
    }

    fn row(x: Value<'static>) -> Row<'static> {
        Row::new(vec![
            ("x".into(), x),
            ("t".into(), Value::Text("a")),
            ("more".into(), Value::Text("b")),
        ])
    }

    #[test]
    fn rows_become_the_tensors_that_are_wanted() {
        let rows = [row(Value::Text("1 0.1")), row(Value::Floats(vec![0.1, 3.0].into()))];
        let asked = question(&inputs(), &rows).unwrap();
        let (text, raw) = asked.body.split_at(asked.json_bytes);
        let json: Json = serde_json::from_slice(text).unwrap();
        let x = json!({"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 0.1, 0.1, 3]});
        assert_eq!(json["inputs"][0], x);
        assert_eq!(json["inputs"][1]["parameters"]["binary_data_size"], 10);
        assert_eq!(raw, [1, 0, 0, 0, b'a', 1, 0, 0, 0, b'a']);
    }

    #[test]
    fn faults_name_record_and_column() {
        let check = |rows: &[Row<'_>], expected: &str| {
            let error = question(&inputs(), rows).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(&[row(Value::Text("1 x"))], "record 0: column \"x\": \"x\" where a number is due");
        let (two, one) = (row(Value::Text("1 2")), row(Value::Text("1")));
        check(&[two, one], "record 1: column \"x\": has another number of values");
        let other = Row::new(vec![("y".into(), Value::Text("1"))]);
        check(&[other], "none of the model's inputs: x, t");
    }

    #[test]
    fn outputs_become_rows() {
        let answer = json!({"outputs": [
            {"name": "label", "shape": [2], "data": ["a", "b"]},
            {"name": "scores", "shape": [2, 2], "data": [[1, 2], [3, 4]]},
        ]});
        let expected =
            [json!({"label": "a", "scores": [1, 2]}), json!({"label": "b", "scores": [3, 4]})];
        assert_eq!(answers(&answer, 2).unwrap(), expected);
        assert!(answers(&answer, 3).is_err());
    }
}
