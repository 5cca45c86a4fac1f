//! What is told about models: the repository's index and configurations; and settings that clients send.

use serde_json::{Map, Value as Json, json};

use crate::engine::{ModelStatus, Registry, ServedVersion};
use crate::model::TensorInfo;
use crate::refusal::{Refusal, check_loading};
use crate::tensor::DataType;

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

/// Refuses a model's configuration or files that come with the request to load it. Older clients send other bodies,
/// and nothing is read of these.
pub(crate) fn check_load(body: &[u8]) -> Result<(), Refusal> {
    #[derive(Default, serde::Deserialize)]
    struct LoadBody {
        #[serde(default)]
        parameters: Map<String, Json>,
    }
    let LoadBody { parameters } = serde_json::from_slice(body).unwrap_or_default();
    check_loading(parameters.keys())
}

/// A model's configuration, as far as clients ask for it.
pub(crate) fn config(registry: &Registry, model: &str, version: &ServedVersion) -> Json {
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

/// Settings by their names.
pub(crate) fn settings(body: &[u8]) -> Result<Map<String, Json>, Refusal> {
    match body.iter().all(u8::is_ascii_whitespace) {
        true => Ok(Map::new()),
        false => serde_json::from_slice(body)
            .map_err(|error| Refusal::Invalid(format!("no settings by their names: {error}"))),
    }
}
