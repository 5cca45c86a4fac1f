//! What is not a struct or an enum with the same fields on both sides: metrics by name, and values without a schema.

use std::collections::BTreeMap;

use salamander_core::metrics::{Metric, Metrics};
use salamander_core::progress::Progress;

use super::Error;
use super::wire::{FieldName, MessageField, message};
use crate::v1;

impl MessageField<v1::Metrics> for Metrics {
    fn put(self) -> v1::Metrics {
        let metric = |(name, metric): (&str, &Metric)| (name.to_string(), metric.clone().put());
        v1::Metrics { metrics: self.iter().map(metric).collect() }
    }

    fn take(message: v1::Metrics, at: FieldName) -> Result<Self, Error> {
        let mut metrics = Metrics::new();
        for (name, metric) in message.metrics {
            metrics = metrics.with(name, MessageField::take(metric, at)?);
        }
        Ok(metrics)
    }
}

message!(Metrics => Metrics);

/// Buckets of scores, to (negatives, positives).
impl MessageField<v1::Auc> for BTreeMap<u32, (u64, u64)> {
    fn put(self) -> v1::Auc {
        v1::Auc {
            buckets: self.keys().copied().collect(),
            negatives: self.values().map(|(negatives, _)| *negatives).collect(),
            positives: self.values().map(|(_, positives)| *positives).collect(),
        }
    }

    fn take(auc: v1::Auc, _at: FieldName) -> Result<Self, Error> {
        let counts = auc.negatives.into_iter().zip(auc.positives);
        Ok(auc.buckets.into_iter().zip(counts).collect())
    }
}

/// As a checkpoint holds it.
impl MessageField<Option<v1::Value>> for Progress {
    fn put(self) -> Option<v1::Value> {
        // Numbers that JSON has not are written as text, and all keys are text.
        Some(serde_json::to_value(&self).unwrap_or_default().into())
    }

    fn take(value: Option<v1::Value>, at: FieldName) -> Result<Self, Error> {
        let value = value.ok_or(at.missing())?.into();
        serde_json::from_value(value).map_err(|error| Error::Progress(error.to_string()))
    }
}

impl From<serde_json::Value> for v1::Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as J;
        use v1::value::Value as V;
        let value = match value {
            J::Null => None,
            J::Bool(value) => Some(V::Boolean(value)),
            J::Number(number) => Some(match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => V::Unsigned(unsigned),
                (None, Some(signed)) => V::Signed(signed),
                (None, None) => V::Number(number.as_f64().unwrap_or(f64::NAN)),
            }),
            J::String(text) => Some(V::Text(text)),
            J::Array(values) => {
                Some(V::List(v1::List { values: values.into_iter().map(Into::into).collect() }))
            }
            J::Object(fields) => {
                let fields = fields.into_iter().map(|(key, value)| (key, value.into())).collect();
                Some(V::Object(v1::Object { fields }))
            }
        };
        Self { value }
    }
}

impl From<v1::Value> for serde_json::Value {
    fn from(value: v1::Value) -> Self {
        use v1::value::Value as V;
        match value.value {
            None => Self::Null,
            Some(V::Boolean(value)) => value.into(),
            Some(V::Unsigned(value)) => value.into(),
            Some(V::Signed(value)) => value.into(),
            Some(V::Number(value)) => value.into(),
            Some(V::Text(text)) => text.into(),
            Some(V::List(list)) => list.values.into_iter().map(Self::from).collect(),
            Some(V::Object(object)) => {
                let fields: BTreeMap<String, v1::Value> = object.fields.into_iter().collect();
                fields.into_iter().map(|(key, value)| (key, Self::from(value))).collect()
            }
        }
    }
}
