//! What is told about models: the repository's index and configurations; and records as older clients send them.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value as Json, json};

use super::json::records;
use crate::engine::{ModelStatus, Registry, Version};
use crate::input::Input;
use crate::model::{Metadata, TensorInfo};
use crate::refusal::Refusal;
use crate::tensor::{DataType, Tensor, Values};

/// All models with their state.
pub(crate) fn index(registry: &Registry, body: &[u8]) -> Result<Json, Refusal> {
    #[derive(serde::Deserialize)]
    struct IndexBody {
        #[serde(default)]
        ready: bool,
    }
    let only_ready = match body.iter().all(u8::is_ascii_whitespace) {
        true => false,
        false => {
            serde_json::from_slice::<IndexBody>(body)
                .map_err(|error| Refusal::Invalid(format!("no request for an index: {error}")))?
                .ready
        }
    };
    let entry = |ModelStatus { name, version, reason, .. }: ModelStatus| {
        let state = if version.is_some() { "READY" } else { "UNAVAILABLE" };
        let version = version.map(|version| version.name.clone()).unwrap_or_default();
        json!({
            "name": name,
            "version": version,
            "state": state,
            "reason": reason.unwrap_or_default(),
        })
    };
    let wanted = |status: &ModelStatus| !only_ready || status.version.is_some();
    Ok(registry.list().into_iter().filter(wanted).map(entry).collect())
}

/// A model's configuration, as far as clients ask for it.
pub(crate) fn config(registry: &Registry, model: &str, version: &Version) -> Json {
    let metadata = version.decoder.metadata();
    let tensor = |info: &TensorInfo| {
        json!({
            "name": info.name,
            "data_type": config_type(info.datatype),
            "dims": info.shape,
            "optional": info.optional,
        })
    };
    json!({
        "name": model,
        "platform": metadata.platform,
        "backend": super::SERVER,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": registry.batching().rows,
        "input": metadata.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "output": metadata.outputs.iter().map(tensor).collect::<Vec<_>>(),
        "dynamic_batching": {
            "preferred_batch_size": [],
            "max_queue_delay_microseconds": registry.batching().delay.as_micros() as u64,
        },
    })
}

/// The name of a type in configurations.
pub(crate) fn config_type(datatype: DataType) -> String {
    match datatype {
        DataType::Bytes => "TYPE_STRING".to_string(),
        other => format!("TYPE_{}", other.name()),
    }
}

/// The records of a body: JSON, or the bytes of the model's only input, as `curl -T picture.jpg` sends them.
pub(crate) fn read_records(
    headers: &HeaderMap,
    body: Bytes,
    metadata: &Metadata,
) -> Result<Input, Refusal> {
    let needed: Vec<&TensorInfo> = metadata.inputs.iter().filter(|input| !input.optional).collect();
    if let [only] = needed.as_slice()
        && only.datatype == DataType::Bytes
        && !is_json(headers, &body)
    {
        let values = Values::Texts(vec![body]);
        let tensor = Tensor::new(&only.name, DataType::Bytes, &[1, 1], values);
        return Ok(Input::Tensors(vec![tensor.map_err(Refusal::Invalid)?]));
    }
    records(&body).map_err(Refusal::Invalid)
}

/// Whether a body says or looks that it is JSON.
fn is_json(headers: &HeaderMap, body: &Bytes) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    said.starts_with("application/json") || matches!(first, Some(b'{' | b'['))
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
