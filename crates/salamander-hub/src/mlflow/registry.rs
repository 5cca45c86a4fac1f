//! Registered models and their versions, as they are kept and as clients see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Field, FieldValue};
use super::tracked::{Pairs, pairs};

/// A model with its versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RegisteredModel {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) created: i64,
    pub(super) updated: i64,
    #[serde(default)]
    pub(super) tags: Pairs,
    #[serde(default)]
    pub(super) aliases: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) versions: BTreeMap<u64, MlflowVersion>,
    /// The greatest number that was ever given: none is given twice.
    #[serde(default)]
    pub(super) last: u64,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MlflowVersion {
    pub(super) description: String,
    pub(super) source: String,
    /// Where its files are, if it was made from another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) storage: Option<String>,
    pub(super) run: String,
    pub(super) run_link: String,
    pub(super) model: String,
    pub(super) stage: String,
    pub(super) created: i64,
    pub(super) updated: i64,
    #[serde(default)]
    pub(super) tags: Pairs,
}

/// The stages that a version may be in.
pub(super) const STAGES: [&str; 4] = ["None", "Staging", "Production", "Archived"];
/// Those of versions that are in use.
pub(super) const ACTIVE: [&str; 2] = ["Staging", "Production"];

impl RegisteredModel {
    pub(super) fn to_json(&self) -> Value {
        let alias = |(alias, version): (&String, &u64)| json!({"alias": alias, "version": version.to_string()});
        let latest = self.latest(&[]).into_iter().map(|number| self.version_json(number));
        json!({
            "name": self.name,
            "description": self.description,
            "creation_timestamp": self.created,
            "last_updated_timestamp": self.updated,
            "tags": pairs(&self.tags),
            "aliases": self.aliases.iter().map(alias).collect::<Vec<_>>(),
            "latest_versions": latest.collect::<Vec<_>>(),
        })
    }

    /// The newest version of each of these stages; of all, if none is named.
    pub(super) fn latest(&self, stages: &[String]) -> Vec<u64> {
        let wanted = |stage: &str| {
            stages.is_empty() || stages.iter().any(|one| one.eq_ignore_ascii_case(stage))
        };
        let newest = |stage: &&str| {
            let of_stage = self.versions.iter().filter(|(_, version)| version.stage == **stage);
            of_stage.map(|(number, _)| *number).next_back()
        };
        STAGES.iter().filter(|stage| wanted(stage)).filter_map(newest).collect()
    }

    pub(super) fn version_json(&self, number: u64) -> Value {
        let Some(version) = self.versions.get(&number) else { return Value::Null };
        let aliases = self.aliases.iter().filter(|(_, version)| **version == number);
        json!({
            "name": self.name,
            "version": number.to_string(),
            "creation_timestamp": version.created,
            "last_updated_timestamp": version.updated,
            "current_stage": version.stage,
            "description": version.description,
            "source": version.source,
            "run_id": version.run,
            "run_link": version.run_link,
            "status": "READY",
            "tags": pairs(&version.tags),
            "aliases": aliases.map(|(alias, _)| alias.clone()).collect::<Vec<_>>(),
            "model_id": version.model,
        })
    }

    pub(super) fn found(&self, field: Field, key: &str) -> Option<FieldValue> {
        match (field, key) {
            (Field::Tag, key) => self.tags.get(key).cloned().map(FieldValue::Text),
            (Field::Attribute, "name") => Some(FieldValue::Text(self.name.clone())),
            (Field::Attribute, "timestamp" | "last_updated_timestamp") => {
                Some(FieldValue::Number(self.updated as f64))
            }
            (Field::Attribute, "creation_timestamp") => {
                Some(FieldValue::Number(self.created as f64))
            }
            _ => None,
        }
    }

    pub(super) fn version_found(&self, number: u64, field: Field, key: &str) -> Option<FieldValue> {
        let version = self.versions.get(&number)?;
        let text = |text: &String| Some(FieldValue::Text(text.clone()));
        match (field, key) {
            (Field::Tag, key) => version.tags.get(key).cloned().map(FieldValue::Text),
            (Field::Attribute, "name") => text(&self.name),
            (Field::Attribute, "run_id") => text(&version.run),
            (Field::Attribute, "source_path" | "source") => text(&version.source),
            (Field::Attribute, "model_id") => text(&version.model),
            (Field::Attribute, "version_number" | "version") => {
                Some(FieldValue::Number(number as f64))
            }
            (Field::Attribute, "creation_timestamp") => {
                Some(FieldValue::Number(version.created as f64))
            }
            (Field::Attribute, "last_updated_timestamp") => {
                Some(FieldValue::Number(version.updated as f64))
            }
            _ => None,
        }
    }
}
