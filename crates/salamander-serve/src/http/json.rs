//! Requests and answers as JSON.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::{Map, Value as Json, json};

use crate::input::Input;
use crate::model::{Metadata, TensorInfo};
use crate::tensor::{DataType, Tensor, Values};

/// The body of a request for inference, as the protocol has it.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct InferBody {
    #[serde(default)]
    pub(crate) id: Json,
    #[serde(default)]
    pub(crate) parameters: Option<Map<String, Json>>,
    pub(crate) inputs: Option<Vec<InputBody>>,
    #[serde(default)]
    pub(crate) outputs: Option<Vec<OutputBody>>,
}

/// A tensor of a request.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct InputBody {
    pub(crate) name: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) datatype: String,
    #[serde(default)]
    pub(crate) parameters: Option<Map<String, Json>>,
    #[serde(default)]
    pub(crate) data: Option<FlatValues>,
}

/// A tensor that is asked for.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct OutputBody {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) parameters: Option<Map<String, Json>>,
}

impl InputBody {
    /// The tensor; `raw` has its values where JSON has not.
    pub(crate) fn tensor(self, raw: Option<Bytes>) -> Result<Tensor, String> {
        let InputBody { name, shape, datatype, data, .. } = self;
        let wrong = |reason: String| format!("input \"{name}\": {reason}");
        let datatype = DataType::parse(&datatype).map_err(wrong)?;
        let values = match (data, raw) {
            (_, Some(raw)) => Values::from_raw(datatype, raw),
            (Some(flat), None) => flat.values(datatype),
            (None, None) => Err("it has no data".to_string()),
        };
        Tensor::new(name.clone(), datatype, &shape, values.map_err(wrong)?)
    }
}

/// Values in lists however deep, row by row.
#[derive(Debug, PartialEq)]
pub(crate) enum FlatValues {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<String>),
}

impl FlatValues {
    fn values(self, datatype: DataType) -> Result<Values, String> {
        let name = datatype.name();
        match self {
            FlatValues::Texts(texts) if datatype == DataType::Bytes => {
                Ok(Values::Texts(texts.into_iter().map(Bytes::from).collect()))
            }
            // No values at all are of every type.
            FlatValues::Ints(ints) if ints.is_empty() => Values::from_raw(datatype, Bytes::new()),
            FlatValues::Texts(_) => Err(format!("text where {name} holds numbers")),
            FlatValues::Ints(_) | FlatValues::Floats(_) if datatype == DataType::Bf16 => {
                Err("BF16 has no JSON: send it as bytes".to_string())
            }
            FlatValues::Ints(ints) => Values::from_ints(datatype, ints),
            FlatValues::Floats(floats) => Values::from_floats(datatype, floats),
        }
    }

    fn push_float(&mut self, float: f64) -> Result<(), &'static str> {
        match self {
            FlatValues::Floats(floats) => floats.push(float),
            FlatValues::Ints(ints) => {
                let mut floats: Vec<f64> = ints.iter().map(|int| *int as f64).collect();
                floats.push(float);
                *self = FlatValues::Floats(floats);
            }
            FlatValues::Texts(_) => return Err("numbers and text in one list"),
        }
        Ok(())
    }

    fn push_int(&mut self, int: i64) -> Result<(), &'static str> {
        match self {
            FlatValues::Ints(ints) => ints.push(int),
            FlatValues::Floats(floats) => floats.push(int as f64),
            FlatValues::Texts(_) => return Err("numbers and text in one list"),
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), &'static str> {
        match self {
            FlatValues::Texts(texts) => texts.push(text.to_string()),
            FlatValues::Ints(ints) if ints.is_empty() => {
                *self = FlatValues::Texts(vec![text.to_string()])
            }
            _ => return Err("numbers and text in one list"),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for FlatValues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut flat = FlatValues::Ints(Vec::new());
        from.deserialize_any(Into(&mut flat))?;
        Ok(flat)
    }
}

/// Adds what is read to a flat list.
struct Into<'a>(&'a mut FlatValues);

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers or texts, or lists of them")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.push_int(value.into()).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.push_int(value).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        let int = i64::try_from(value);
        let int = int.map_err(|_| E::custom(format!("{value} is more than {}", i64::MAX)))?;
        self.0.push_int(int).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.push_float(value).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.push_text(value).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Into(self.0))?.is_some() {}
        Ok(())
    }
}

/// What TorchServe's handlers call a model's only input, whatever the model calls it.
pub(crate) const OTHER_NAMES: [&str; 2] = ["data", "body"];

/// A body that is no request of the protocol: a record, or a list of them, or `{"instances": [..]}`. `only` is the
/// model's only input that is needed: a record may be its value alone, or name it `data` or `body`.
pub(crate) fn records(body: &[u8], only: Option<&str>) -> Result<Input, String> {
    let json: Json = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
    let all = |records: Vec<Json>| {
        Input::from_json(records.into_iter().map(|record| named(record, only)).collect())
    };
    match json {
        Json::Array(records) => all(records),
        Json::Object(mut object) => match object.get("instances") {
            Some(Json::Array(_)) => match object.remove("instances") {
                Some(Json::Array(records)) => all(records),
                _ => Err("instances: a list is due".to_string()),
            },
            _ => all(vec![Json::Object(object)]),
        },
        value if only.is_some() => all(vec![value]),
        _ => Err("a record is due: {\"column\": value, ..}".to_string()),
    }
}

/// A record with the name that its only input has.
fn named(record: Json, only: Option<&str>) -> Json {
    let Some(only) = only else { return record };
    match record {
        Json::Object(mut object) if !object.contains_key(only) => {
            let other = OTHER_NAMES.iter().find_map(|name| object.remove(*name));
            if let Some(value) = other {
                object.insert(only.to_string(), value);
            }
            Json::Object(object)
        }
        Json::Object(object) => Json::Object(object),
        value => json!({only: value}),
    }
}

/// An answer's tensor.
#[derive(Debug, serde::Serialize)]
pub(crate) struct OutputJson<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: &'static str,
    pub(crate) shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parameters: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a Values>,
}

impl<'a> OutputJson<'a> {
    /// With its values.
    pub(crate) fn new(tensor: &'a Tensor) -> Self {
        Self {
            name: &tensor.name,
            datatype: tensor.datatype.name(),
            shape: &tensor.shape,
            parameters: None,
            data: Some(&tensor.values),
        }
    }
}

/// An answer.
#[derive(Debug, serde::Serialize)]
pub(crate) struct InferJson<'a> {
    pub(crate) model_name: &'a str,
    pub(crate) model_version: &'a str,
    #[serde(skip_serializing_if = "Json::is_null")]
    pub(crate) id: &'a Json,
    pub(crate) outputs: Vec<OutputJson<'a>>,
}

/// Outputs as an object per record: a list where a record has several values. A single output stands alone.
pub(crate) fn rows(outputs: &[Tensor]) -> Vec<Json> {
    let row = |row: usize| {
        let mut object: Map<String, Json> =
            outputs.iter().map(|output| (output.name.clone(), cell(output, row))).collect();
        match (object.len(), outputs.first()) {
            (1, Some(only)) => object.remove(&only.name).unwrap_or_default(),
            _ => Json::Object(object),
        }
    };
    (0..outputs.first().map_or(0, Tensor::rows)).map(row).collect()
}

fn cell(output: &Tensor, row: usize) -> Json {
    let width = output.width();
    let values = to_json(&output.values.slice(row * width..(row + 1) * width));
    match (values, output.shape.len()) {
        (Json::Array(mut values), 1) => values.pop().unwrap_or_default(),
        (values, _) => values,
    }
}

/// Floats keep their few digits: as doubles they would be written with all of those.
fn to_json(values: &Values) -> Json {
    match values {
        Values::Floats(floats) => floats.iter().map(|float| short(*float)).collect(),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

fn short(float: f32) -> Json {
    float.to_string().parse::<f64>().map_or(Json::Null, Json::from)
}

/// What a model takes and gives.
pub(crate) fn metadata(name: &str, versions: &[String], metadata: &Metadata) -> Json {
    let tensor = |info: &TensorInfo| {
        let (datatype, shape) = (info.datatype.name(), info.batch_shape());
        json!({"name": info.name, "datatype": datatype, "shape": shape})
    };
    let tensors = |all: &[TensorInfo]| all.iter().map(tensor).collect::<Vec<_>>();
    json!({
        "name": name,
        "versions": versions,
        "platform": metadata.platform,
        "inputs": tensors(&metadata.inputs),
        "outputs": tensors(&metadata.outputs),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor(json: &str) -> Result<Tensor, String> {
        let body: InputBody = serde_json::from_str(json).map_err(|error| error.to_string())?;
        body.tensor(None)
    }

    #[test]
    fn lists_are_flat_and_of_their_type() {
        let check = |shape: &str, kind: &str, data: &str, expected: Values| {
            let json =
                format!(r#"{{"name":"x","shape":{shape},"datatype":"{kind}","data":{data}}}"#);
            assert_eq!(tensor(&json).map(|tensor| tensor.values), Ok(expected), "{json}");
        };
        check("[2,2]", "FP32", "[[1,2],[0.5,4]]", Values::Floats(vec![1.0, 2.0, 0.5, 4.0]));
        check("[2]", "UINT8", "[1,255]", Values::Bytes(vec![1, 255].into()));
        check("[2]", "BOOL", "[true,0]", Values::Ints(vec![1, 0]));
        check("[1,2]", "BYTES", r#"[["a","b"]]"#, Values::Texts(vec!["a".into(), "b".into()]));
        check("[0]", "BYTES", "[]", Values::Texts(vec![]));
    }

    #[test]
    fn faults_are_named() {
        let check = |json: &str, expected: &str| {
            let error = tensor(json).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(r#"{"name":"x","shape":[1],"datatype":"INT9","data":[1]}"#, "no datatype \"INT9\"");
        check(r#"{"name":"x","shape":[3],"datatype":"INT8","data":[1]}"#, "input \"x\": shape [3]");
        check(r#"{"name":"x","shape":[1],"datatype":"INT8","data":[1,"a"]}"#, "numbers and text");
        check(r#"{"name":"x","shape":[1],"datatype":"INT8"}"#, "it has no data");
        check(r#"{"name":"x","shape":[1],"datatype":"BF16","data":[1]}"#, "send it as bytes");
        let deep = format!(
            r#"{{"name":"x","shape":[1],"datatype":"INT8","data":{}1{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        check(&deep, "recursion limit");
    }

    #[test]
    fn an_answer_is_an_object_per_record() {
        let label = Tensor::new(
            "prediction",
            DataType::Bytes,
            &[2],
            Values::Texts(vec!["a".into(), "b".into()]),
        );
        let scores = Tensor::new(
            "scores",
            DataType::Fp32,
            &[2, 2],
            Values::Floats(vec![0.0, 1.0, 2.0, 0.5]),
        );
        let (label, scores) = (label.unwrap(), scores.unwrap());
        let expected = [
            json!({"prediction": "a", "scores": [0.0, 1.0]}),
            json!({"prediction": "b", "scores": [2.0, 0.5]}),
        ];
        assert_eq!(rows(&[label, scores.clone()]), expected);
        assert_eq!(rows(&[scores])[1], json!([2.0, 0.5]));
    }

    #[test]
    fn the_only_input_has_other_names_and_may_stand_alone() {
        let check = |body: &str, expected: &str| {
            let input = records(body.as_bytes(), Some("text")).unwrap();
            let mut cells = Vec::new();
            let each = &mut |row: &salamander_data::Row<'_>| {
                cells.extend(row.columns().map(|(name, value)| format!("{name}={value:?}")));
                Ok(())
            };
            input.each(each).unwrap();
            assert_eq!(cells.join(" "), expected, "{body}");
        };
        check(
            r#"{"instances": [{"data": "a"}, {"body": "b"}]}"#,
            r#"text=Text("a") text=Text("b")"#,
        );
        check(r#"{"instances": ["a", "b"]}"#, r#"text=Text("a") text=Text("b")"#);
        check(r#"{"text": "a", "data": 1}"#, r#"text=Text("a") data=Ints([1])"#);
        check("\"a\"", r#"text=Text("a")"#);
        assert!(records(b"\"a\"", None).is_err());
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in "[\\[\\]{}a\",:0-9.e\\-a-z ]{0,200}") {
            let _ = serde_json::from_slice::<InferBody>(body.as_bytes());
            let _ = records(body.as_bytes(), None);
            let _ = records(body.as_bytes(), Some("x"));
        }
    }
}
