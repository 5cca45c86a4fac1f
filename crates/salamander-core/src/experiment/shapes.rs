//! Fields that may be written in two shapes; untagged enums would lose serde's error messages.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// One path or a list of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "OneOrMany")]
pub struct Paths(pub Vec<String>);

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathsVisitor;
        impl<'de> Visitor<'de> for PathsVisitor {
            type Value = Paths;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or a list of paths")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Paths, E> {
                Ok(Paths(vec![value.to_string()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Paths, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(Paths)
            }
        }
        deserializer.deserialize_any(PathsVisitor)
    }
}

/// A number of workers, or the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(with = "NumberOrRange")]
pub struct Workers {
    /// The least to train with.
    pub min: u32,
    /// The most to use.
    pub max: u32,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum NumberOrRange {
    Number(u32),
    Range { min: u32, max: u32 },
}

impl Default for Workers {
    fn default() -> Self {
        Self { min: 1, max: 1 }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Range {
            min: u32,
            max: u32,
        }
        struct WorkersVisitor;
        impl<'de> Visitor<'de> for WorkersVisitor {
            type Value = Workers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of workers or {min: .., max: ..}")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Workers, E> {
                let number = u32::try_from(value).map_err(|_| E::custom("too many workers"))?;
                // A run goes on with fewer while one is replaced.
                Ok(Workers { min: number.min(1), max: number })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Workers, A::Error> {
                let Range { min, max } = Range::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Workers { min, max })
            }
        }
        let workers = deserializer.deserialize_any(WorkersVisitor)?;
        match workers.min == 0 || workers.min > workers.max {
            true => Err(D::Error::custom("needs 1 <= min <= max")),
            false => Ok(workers),
        }
    }
}

/// The trial that a run starts from, as it was written: a number of a hub, a run's id, or its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "NumberOrText")]
pub struct TrialSource(pub String);

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for TrialSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TrialSourceVisitor;
        impl Visitor<'_> for TrialSourceVisitor {
            type Value = TrialSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a trial's number, or a run's id or folder")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<TrialSource, E> {
                Ok(TrialSource(value.to_string()))
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<TrialSource, E> {
                // YAML reads 12.10 and 12.1 as the same number, and they are two trials.
                Err(E::custom("write a trial in quotes, as in \"12.3\""))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<TrialSource, E> {
                Ok(TrialSource(value.to_string()))
            }
        }
        deserializer.deserialize_any(TrialSourceVisitor)
    }
}
