//! Values by name, of which each may be NaN or infinite; see [`number`](super::number). `null`, which was written for
//! those, is NaN.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Number(#[serde(with = "super::number")] f64);

type NamedValues = BTreeMap<String, f64>;

/// For `#[serde(with = "numbers")]`.
pub fn serialize<S: Serializer>(values: &NamedValues, out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(values.iter().map(|(name, value)| (name, Number(*value))))
}

/// For `#[serde(with = "numbers")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<NamedValues, D::Error> {
    let values = BTreeMap::<String, Option<Number>>::deserialize(input)?;
    let value = |number: Option<Number>| number.map_or(f64::NAN, |Number(value)| value);
    Ok(values.into_iter().map(|(name, number)| (name, value(number))).collect())
}
