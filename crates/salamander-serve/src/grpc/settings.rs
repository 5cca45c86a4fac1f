//! Settings as messages: what Triton's clients ask and change.

use std::collections::HashMap;

use salamander_proto::inference::log_settings_request::SettingValue as LogChange;
use salamander_proto::inference::log_settings_request::setting_value::ParameterChoice as LogChoice;
use salamander_proto::inference::log_settings_response::SettingValue as LogNow;
use salamander_proto::inference::log_settings_response::setting_value::ParameterChoice;
use salamander_proto::inference::trace_setting_request::SettingValue as TraceChange;
use salamander_proto::inference::trace_setting_response::SettingValue as TraceNow;
use salamander_proto::inference::{LogSettingsResponse, TraceSettingResponse};
use serde_json::{Map, Value as Json};

/// What a client wants to be traced.
pub(super) fn trace_changes(settings: HashMap<String, TraceChange>) -> Map<String, Json> {
    settings.into_iter().map(|(name, change)| (name, change.value.into())).collect()
}

/// What is traced.
pub(super) fn trace(settings: Map<String, Json>) -> TraceSettingResponse {
    let texts = |value: Json| match value {
        Json::Array(items) => items.iter().filter_map(|item| Some(item.as_str()?.into())).collect(),
        Json::String(text) => vec![text],
        _ => Vec::new(),
    };
    let one = |(name, value)| (name, TraceNow { value: texts(value) });
    TraceSettingResponse { settings: settings.into_iter().map(one).collect() }
}

/// What a client wants to be logged.
pub(super) fn log_changes(settings: HashMap<String, LogChange>) -> Map<String, Json> {
    let one = |(name, change): (String, LogChange)| {
        let value = match change.parameter_choice {
            Some(LogChoice::BoolParam(on)) => on.into(),
            Some(LogChoice::Uint32Param(number)) => number.into(),
            Some(LogChoice::StringParam(text)) => text.into(),
            None => Json::Null,
        };
        (name, value)
    };
    settings.into_iter().map(one).collect()
}

/// What is logged.
pub(super) fn log(settings: Map<String, Json>) -> LogSettingsResponse {
    let one = |(name, value)| {
        let parameter_choice = Some(match value {
            Json::Bool(on) => ParameterChoice::BoolParam(on),
            Json::String(text) => ParameterChoice::StringParam(text),
            other => ParameterChoice::Uint32Param(other.as_u64().unwrap_or(0) as u32),
        });
        (name, LogNow { parameter_choice })
    };
    LogSettingsResponse { settings: settings.into_iter().map(one).collect() }
}
