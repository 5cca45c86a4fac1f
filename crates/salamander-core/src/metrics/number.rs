//! Numbers in JSON, which has no NaN and no infinity: those are written as text.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Number(f64),
    Text(String),
}

/// For `#[serde(with = "number")]`.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let finite = value.is_finite();
    let written =
        if finite { JsonNumber::Number(*value) } else { JsonNumber::Text(value.to_string()) };
    written.serialize(serializer)
}

/// For `#[serde(with = "number")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match JsonNumber::deserialize(deserializer)? {
        JsonNumber::Number(value) => Ok(value),
        JsonNumber::Text(text) => text.parse().map_err(D::Error::custom),
    }
}
