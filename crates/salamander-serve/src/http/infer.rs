//! `POST /v2/models/M/infer`: tensors as JSON or as bytes behind it, or a record with the data's own columns.

use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, Response};
use serde_json::{Map, Value as Json, json};

use super::body::{self, JSON_LENGTH, TakenRoom};
use super::json::{InferBody, InferJson, InputBody, OutputBody, OutputJson, records};
use crate::engine::InferResponse;
use crate::input::Input;
use crate::refusal::{Refusal, check_output};
use crate::tensor::{DataType, Values};

/// A request that was read.
#[derive(Debug)]
pub(crate) struct ReadRequest {
    pub(crate) id: Json,
    pub(crate) input: Input,
    pub(crate) outputs: Vec<WantedOutput>,
    /// Whether outputs that say nothing else are bytes.
    pub(crate) binary: bool,
    pub(crate) timeout: Option<Duration>,
}

/// An output that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WantedOutput {
    pub(crate) name: String,
    pub(crate) binary: Option<bool>,
}

/// How a request wants its answer.
pub(crate) struct AnswerForm<'a> {
    pub(crate) id: &'a Json,
    pub(crate) wanted: &'a [WantedOutput],
    /// Whether outputs that say nothing else are bytes.
    pub(crate) binary: bool,
}

/// Reads a request's body, and takes room for what its tensors take beside its bytes.
pub(crate) fn read(
    headers: &HeaderMap,
    body: Bytes,
    room: &TakenRoom,
) -> Result<ReadRequest, Refusal> {
    let (json, mut raw) = body::split(headers, body)?;
    let read: Option<InferBody> = match json.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => None,
        _ => Some(
            serde_json::from_slice(&json)
                .map_err(|error| invalid(format!("no request: {error}")))?,
        ),
    };
    let Some(InferBody { id, parameters, inputs: Some(inputs), outputs }) = read else {
        let input = records(&json, None).map_err(Refusal::Invalid)?;
        let (id, outputs) = (Json::Null, Vec::new());
        return Ok(ReadRequest { id, input, outputs, binary: false, timeout: None });
    };
    let mut tensors = Vec::with_capacity(inputs.len());
    for input in inputs {
        let own = own_bytes(&input, &mut raw)?;
        if let (Some(own), Ok(datatype)) = (&own, DataType::parse(&input.datatype)) {
            room.take_values(Values::grown(datatype, own))?;
        }
        tensors.push(input.tensor(own).map_err(Refusal::Invalid)?);
    }
    if !raw.is_empty() {
        let left = raw.len();
        return Err(invalid(format!(
            "{left} bytes of the body belong to no input: set binary_data_size"
        )));
    }
    let parameters = parameters.unwrap_or_default();
    let wanted = |OutputBody { name, parameters }| {
        let own = parameters.unwrap_or_default();
        check_output(&name, own.keys())?;
        let binary = own.get("binary_data").and_then(Json::as_bool);
        Ok::<_, Refusal>(WantedOutput { name, binary })
    };
    let outputs = outputs.unwrap_or_default().into_iter().map(wanted);
    Ok(ReadRequest {
        id,
        input: Input::Tensors(tensors),
        outputs: outputs.collect::<Result<_, _>>()?,
        binary: parameters.get("binary_data_output").and_then(Json::as_bool).unwrap_or(false),
        timeout: timeout(&parameters),
    })
}

/// The protocol's timeout, in microseconds; none is none, and so is zero.
fn timeout(parameters: &Map<String, Json>) -> Option<Duration> {
    let micros = parameters.get("timeout")?.as_u64()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// The bytes of an input that are behind the JSON.
fn own_bytes(input: &InputBody, raw: &mut Bytes) -> Result<Option<Bytes>, Refusal> {
    let said = input.parameters.as_ref().and_then(|own| own.get("binary_data_size"));
    let Some(said) = said else { return Ok(None) };
    let size = said.as_u64().and_then(|size| usize::try_from(size).ok());
    match size.filter(|size| *size <= raw.len()) {
        Some(size) => Ok(Some(raw.split_to(size))),
        None => {
            let (name, left) = (&input.name, raw.len());
            Err(invalid(format!(
                "input \"{name}\": binary_data_size is {said}, but {left} bytes are left of the body"
            )))
        }
    }
}

/// Writes an answer: JSON, with the tensors behind it that are wanted as bytes.
pub(crate) fn write(
    model: &str,
    form: &AnswerForm<'_>,
    response: &InferResponse,
) -> Result<Response<Vec<u8>>, Refusal> {
    let AnswerForm { id, wanted, binary } = *form;
    let (mut outputs, mut raw) = (Vec::new(), Vec::new());
    for tensor in &response.outputs {
        let said = wanted.iter().find(|output| output.name == tensor.name);
        let mut output = OutputJson::new(tensor);
        if said.and_then(|output| output.binary).unwrap_or(binary) {
            let bytes = tensor.values.to_raw();
            output.parameters = Some(json!({"binary_data_size": bytes.len()}));
            output.data = None;
            raw.push(bytes);
        }
        outputs.push(output);
    }
    let answer = InferJson { model_name: model, model_version: &response.version, id, outputs };
    let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
    let mut body = serde_json::to_vec(&answer).map_err(|error| failed(&error))?;
    if raw.is_empty() {
        let response = Response::builder().header("content-type", "application/json");
        return response.body(body).map_err(|error| failed(&error));
    }
    let json = body.len();
    raw.iter().for_each(|bytes| body.extend_from_slice(bytes));
    let response = Response::builder()
        .header("content-type", "application/octet-stream")
        .header(JSON_LENGTH, json.to_string());
    response.body(body).map_err(|error| failed(&error))
}

fn invalid(reason: String) -> Refusal {
    Refusal::Invalid(reason)
}

#[cfg(test)]
mod tests {
    use super::super::BodyReader;
    use super::*;
    use crate::tensor::Tensor;

    fn read_within(most: usize, json: &str, raw: &[u8]) -> Result<ReadRequest, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(JSON_LENGTH, json.len().into());
        let room = BodyReader::new(most, most, Duration::ZERO).room();
        read(&headers, [json.as_bytes(), raw].concat().into(), &room)
    }

    fn read_text(json: &str, raw: &[u8]) -> Result<ReadRequest, Refusal> {
        read_within(1 << 20, json, raw)
    }

    #[test]
    fn texts_are_counted_before_they_take_memory() {
        let json = r#"{"inputs": [{"name": "t", "shape": [1000], "datatype": "BYTES",
            "parameters": {"binary_data_size": 4000}}]}"#;
        let rows = |most| read_within(most, json, &[0; 4000]).map(|request| request.input.rows());
        assert_eq!(rows(32_000), Ok(1000));
        assert!(matches!(rows(31_999), Err(Refusal::TooLarge(_))));
    }

    #[test]
    fn tensors_may_be_behind_the_json() {
        let json = r#"{"id": "7", "parameters": {"binary_data_output": true, "timeout": 5},
            "inputs": [
                {"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
                {"name": "y", "shape": [1], "datatype": "INT64", "data": [3]},
                {"name": "t", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}],
            "outputs": [{"name": "scores", "parameters": {"binary_data": false}}]}"#;
        let found = read_text(json, &[0, 0, 0xc0, 0x3f, 1, 0, 0, 0, b'a']).unwrap();
        let Input::Tensors(tensors) = &found.input else { panic!("tensors are due") };
        let values: Vec<&Values> = tensors.iter().map(|tensor| &tensor.values).collect();
        let expected =
            [Values::Floats(vec![1.5]), Values::Ints(vec![3]), Values::Texts(vec!["a".into()])];
        assert_eq!(values, expected.iter().collect::<Vec<_>>());
        assert_eq!((found.id, found.binary), ("7".into(), true));
        assert_eq!(found.timeout, Some(Duration::from_micros(5)));
        let wanted = WantedOutput { name: "scores".to_string(), binary: Some(false) };
        assert_eq!(found.outputs, [wanted]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let input = |size: &str| {
            let json = format!(
                r#"{{"inputs": [{{"name": "x", "shape": [1], "datatype": "FP32",
                    "parameters": {{"binary_data_size": {size}}}}}]}}"#
            );
            read_text(&json, &[0; 8]).unwrap_err().to_string()
        };
        assert!(input("9").contains("binary_data_size is 9, but 8 bytes are left"));
        assert!(input("-1").contains("binary_data_size is -1"));
        assert!(input("18446744073709551615").contains("8 bytes are left"));
        assert!(input("4").contains("4 bytes of the body belong to no input"));
        assert!(input("8").contains("shape [1] does not fit 2 values"));
    }

    #[test]
    fn what_outputs_do_not_have_is_refused() {
        let json = r#"{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}],
            "outputs": [{"name": "scores", "parameters": {"classification": 3}}]}"#;
        let refused = read_text(json, &[]).unwrap_err().to_string();
        assert!(refused.starts_with("output \"scores\": there is no classification"), "{refused}");
    }

    #[test]
    fn outputs_are_json_or_bytes() {
        let tensor = |name: &str, value| {
            Tensor::new(name, DataType::Fp32, &[1], Values::Floats(vec![value]))
        };
        let outputs = vec![tensor("a", 1.0).unwrap(), tensor("b", 1.5).unwrap()];
        let response = InferResponse { version: "v".to_string(), outputs };
        let wanted = [WantedOutput { name: "a".to_string(), binary: Some(false) }];
        let form = AnswerForm { id: &Json::Null, wanted: &wanted, binary: true };
        let written = write("m", &form, &response).unwrap();
        let length: usize = written.headers()[JSON_LENGTH].to_str().unwrap().parse().unwrap();
        let (json, raw) = written.body().split_at(length);
        let expected = json!({"model_name": "m", "model_version": "v", "outputs": [
            {"name": "a", "datatype": "FP32", "shape": [1], "data": [1.0]},
            {"name": "b", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}},
        ]});
        assert_eq!(serde_json::from_slice::<Json>(json).unwrap(), expected);
        assert_eq!(raw, 1.5f32.to_le_bytes());
        let form = AnswerForm { id: &Json::Null, wanted: &[], binary: false };
        let plain = write("m", &form, &response).unwrap();
        assert!(!plain.headers().contains_key(JSON_LENGTH));
    }
}
