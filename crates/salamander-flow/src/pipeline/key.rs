//! What names an artifact: a hash of everything that decides about it. A step whose key has an artifact does not run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// How the digest of a content begins where it stands for a file.
pub(crate) const DIGEST: &str = "blake3:";
const DIGITS: usize = 64;
/// Digits of a key: more than enough for artifacts of one folder, and short enough for file names.
const KEY_DIGITS: usize = 40;
/// Changes named in a reason.
const NAMED: usize = 3;
/// Characters of a value in a reason.
const SHOWN: usize = 40;

/// The name of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key(pub(crate) String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything that decides about what a step leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Components {
    /// What it does.
    pub kind: String,
    /// Its fields, with contents instead of places for what other steps left.
    pub fields: Json,
    /// The contents of files that it names itself.
    pub inputs: BTreeMap<String, String>,
    /// The content of the program, where that does the work.
    pub program: Option<String>,
}

impl Components {
    /// Their key.
    pub fn key(&self) -> Key {
        let mut hasher = blake3::Hasher::new();
        let whole = serde_json::json!({
            "version": 1, "kind": self.kind, "fields": self.fields, "inputs": self.inputs,
            "program": self.program,
        });
        hasher.update(canonical(&whole).as_bytes());
        Key(hasher.finalize().to_hex()[..KEY_DIGITS].to_string())
    }
}

/// What is different now, in words.
pub fn changes(before: &Components, now: &Components) -> String {
    if before.kind != now.kind {
        return format!("it was a step of kind {}", before.kind);
    }
    let mut found = Vec::new();
    let (old, new) = (leaves(&before.fields), leaves(&now.fields));
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) if old.contains(DIGEST) && new.contains(DIGEST) => {
                found.push(format!("the content of {name} changed"));
            }
            (Some(old), Some(new)) => found.push(format!("{name}: {} -> {}", cut(old), cut(new))),
            (None, Some(new)) => found.push(format!("{name}: {} is new", cut(new))),
            (_, None) => found.push(format!("{name} is gone")),
        }
    }
    for (name, digest) in &now.inputs {
        if before.inputs.get(name).is_some_and(|old| old != digest) {
            found.push(format!("{name} changed"));
        }
    }
    if before.inputs.keys().ne(now.inputs.keys()) && found.is_empty() {
        found.push("its inputs are others".to_string());
    }
    if before.program != now.program {
        found.push("the program changed".to_string());
    }
    let more = found.len().saturating_sub(NAMED);
    let mut text = found.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// Whether a text stands for a content.
pub(crate) fn is_digest(text: &str) -> bool {
    text.split(DIGEST).skip(1).any(|rest| {
        rest.len() >= DIGITS && rest.bytes().take(DIGITS).all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The same text for the same value, whatever the order of fields.
pub(crate) fn canonical(value: &Json) -> String {
    match value {
        Json::Object(map) => {
            let sorted: BTreeMap<&String, String> =
                map.iter().map(|(name, value)| (name, canonical(value))).collect();
            let fields: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{value}", Json::from(name.as_str())))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Json::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Values by their path.
fn leaves(value: &Json) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect(String::new(), value, &mut found);
    found
}

fn collect(path: String, value: &Json, found: &mut BTreeMap<String, String>) {
    let below = |name: &str| match path.is_empty() {
        true => name.to_string(),
        false => format!("{path}.{name}"),
    };
    match value {
        Json::Object(map) => {
            map.iter().for_each(|(name, value)| collect(below(name), value, found));
        }
        Json::String(text) => drop(found.insert(path, text.clone())),
        other => drop(found.insert(path, other.to_string())),
    }
}

fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.chars().count() > SHOWN || line.len() < text.len() {
        true => line.chars().take(SHOWN - 2).chain("..".chars()).collect(),
        false => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn components(fields: Json, input: &str, program: &str) -> Components {
        Components {
            kind: "train".into(),
            fields,
            inputs: [("a.yaml".to_string(), input.to_string())].into(),
            program: Some(program.into()),
        }
    }

    #[test]
    fn the_order_of_fields_does_not_matter_and_all_else_does() {
        let one = components(json!({"a": 1, "b": {"c": [1, 2], "d": null}}), "x", "p");
        let same = components(json!({"b": {"d": null, "c": [1, 2]}, "a": 1}), "x", "p");
        assert_eq!(one.key(), same.key());
        let others = [
            components(json!({"a": 1, "b": {"c": [2, 1], "d": null}}), "x", "p"),
            components(json!({"a": "1", "b": {"c": [1, 2], "d": null}}), "x", "p"),
            components(one.fields.clone(), "y", "p"),
            components(one.fields.clone(), "x", "q"),
            Components { kind: "search".into(), ..one.clone() },
        ];
        for other in &others {
            assert_ne!(one.key(), other.key(), "{other:?}");
        }
    }

    #[test]
    fn reasons_name_what_changed() {
        let digest = |digit: &str| format!("{DIGEST}{}", digit.repeat(64));
        let fields = json!({"train": "a.yaml", "set": {"epochs": 3, "data": digest("0")}});
        let before = components(fields, "x", "p");
        let check = |fields: Json, input: &str, program: &str, expected: &str| {
            assert_eq!(changes(&before, &components(fields, input, program)), expected);
        };
        let now = |epochs: u64, digit: &str| {
            let set = json!({"epochs": epochs, "data": digest(digit)});
            json!({"set": set, "train": "a.yaml"})
        };
        check(now(4, "0"), "x", "p", "set.epochs: 3 -> 4");
        check(now(3, "1"), "x", "p", "the content of set.data changed");
        check(now(3, "0"), "y", "p", "a.yaml changed");
        check(now(3, "0"), "x", "q", "the program changed");
        check(
            now(4, "1"),
            "y",
            "q",
            "the content of set.data changed; set.epochs: 3 -> 4; a.yaml changed; and 1 more",
        );
        check(json!({"train": "a.yaml"}), "x", "p", "set.data is gone; set.epochs is gone");
    }
}
