//! Records as older clients send them: v1's instances, and what TorchServe's handlers take.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;

use super::form;
use super::json::records;
use crate::input::Input;
use crate::model::{Metadata, TensorInfo};
use crate::refusal::Refusal;
use crate::tensor::{DataType, Tensor, Values};

/// The records of a body: JSON, a form (`curl -F data=@picture.jpg`, `curl -d data=text`), or the bytes of the model's
/// only input, as `curl -T picture.jpg` sends them.
pub(crate) fn read_records(
    headers: &HeaderMap,
    body: Bytes,
    metadata: &Metadata,
) -> Result<Input, Refusal> {
    let needed: Vec<&TensorInfo> = metadata.inputs.iter().filter(|input| !input.optional).collect();
    let only = match needed.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let name = only.map(|only| only.name.as_str());
    if let Some(boundary) = form::boundary(content_type(headers)) {
        return form::record(&body, boundary, name).map_err(Refusal::Invalid);
    }
    if form::is_one_line(content_type(headers))
        && !is_json(headers, &body)
        && let Some(record) = form::line_record(&body, &metadata.inputs, name)
    {
        return record.map_err(Refusal::Invalid);
    }
    match only.and_then(|only| one_value(only, headers, &body)) {
        Some(tensor) => Ok(Input::Tensors(vec![tensor.map_err(Refusal::Invalid)?])),
        None => records(&body, name).map_err(Refusal::Invalid),
    }
}

/// A body that is an input's value itself; nothing where it is JSON.
fn one_value(
    input: &TensorInfo,
    headers: &HeaderMap,
    body: &Bytes,
) -> Option<Result<Tensor, String>> {
    if is_json(headers, body) {
        return None;
    }
    let size = input.shape.iter().product::<i64>();
    let shape = input.batch_shape().into_iter().map(|size| if size < 0 { 1 } else { size });
    match input.datatype {
        DataType::Bytes => {
            let values = Values::Texts(vec![body.clone()]);
            Some(Tensor::new(&input.name, DataType::Bytes, &[1, 1], values))
        }
        DataType::Uint8 if size == body.len() as i64 => {
            let (shape, values): (Vec<i64>, _) = (shape.collect(), Values::Bytes(body.clone()));
            Some(Tensor::new(&input.name, DataType::Uint8, &shape, values))
        }
        _ => None,
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default()
}

/// Whether a body says or looks that it is JSON.
fn is_json(headers: &HeaderMap, body: &Bytes) -> bool {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    content_type(headers).starts_with("application/json") || matches!(first, Some(b'{' | b'['))
}

/// Whether a body is `{"instances": [..]}`.
pub(crate) fn has_instances(headers: &HeaderMap, body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Instances {
        #[serde(rename = "instances")]
        _instances: Vec<serde::de::IgnoredAny>,
    }
    is_json(headers, body) && serde_json::from_slice::<Instances>(body).is_ok()
}
