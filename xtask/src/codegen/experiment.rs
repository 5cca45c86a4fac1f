//! The reference page of experiment files, from their JSON Schema: every field with its type, default and meaning.

use std::fmt::Write;

use anyhow::Context;
use serde_json::{Map, Value};

use super::one_line;

const OPENING: &str = "\
# The experiment file

Every field of an experiment file: all of them can be left out unless the table says *required*. What
they do together is in [Hyperparameters and the experiment file](../hyperparameters.md); the same
fields for editors are in the JSON Schema that `salamander schema` prints.
";

/// The page.
pub(super) fn page(schema: &Value) -> anyhow::Result<String> {
    let mut page = ReferencePage { schema, text: super::head(OPENING), wanted: Vec::new() };
    let fields = schema["properties"].as_object().context("the schema has no fields")?;
    page.fields(schema, fields);
    let mut next = 0;
    // A section may want others that are not there yet.
    while let Some(name) = page.wanted.get(next).cloned() {
        page.section(&name)?;
        next += 1;
    }
    Ok(page.text)
}

struct ReferencePage<'a> {
    schema: &'a Value,
    text: String,
    /// Types that get a section, in the order in which they were met.
    wanted: Vec<String>,
}

impl ReferencePage<'_> {
    fn section(&mut self, name: &str) -> anyhow::Result<()> {
        let definition = &self.schema["$defs"][name];
        self.line(&format!("\n## {name}\n\n{}", about(definition)));
        if let Some(fields) = definition["properties"].as_object() {
            self.fields(definition, fields);
            return Ok(());
        }
        let values = choices(definition).with_context(|| format!("{name} has no values"))?;
        self.line("\n| value | meaning |\n| --- | --- |");
        for value in values {
            let shown = cell(&self.shown(value));
            self.line(&format!("| `{shown}` | {} |", cell(&meaning(value))));
        }
        Ok(())
    }

    fn fields(&mut self, owner: &Value, fields: &Map<String, Value>) {
        self.line("\n| field | type | default | meaning |\n| --- | --- | --- | --- |");
        let required = owner["required"].as_array();
        for (name, field) in fields {
            let kind = self.kind(field);
            let is_required = required.is_some_and(|list| list.iter().any(|item| item == name));
            let default = if is_required { "*required*".into() } else { default(field) };
            let row =
                format!("| `{name}` | {} | {default} | {} |", cell(&kind), cell(&about(field)));
            self.line(&row);
        }
    }

    /// What may be written, in words: a link where that is a list of its own.
    fn kind(&mut self, field: &Value) -> String {
        if let Some(name) = reference(field) {
            let definition = &self.schema["$defs"][name];
            if reference(definition).is_some() {
                return self.kind(&definition.clone());
            }
            let is_listed = definition["properties"].is_object() || choices(definition).is_some();
            return match is_listed {
                true => self.link(name),
                false => self.kind(&definition.clone()),
            };
        }
        if let Some(several) = field["anyOf"].as_array() {
            let kinds: Vec<String> = several
                .iter()
                .filter(|kind| kind["type"] != "null")
                .map(|kind| self.kind(kind))
                .collect();
            return kinds.join(" or ");
        }
        let plain = match &field["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str),
            kind => kind.as_str(),
        };
        match plain {
            Some("object") if field["properties"].is_object() => format!("`{}`", self.shown(field)),
            Some("object") | None => "any".into(),
            Some("array") => format!("list of {}", self.kind(&field["items"])),
            Some("boolean") => "true or false".into(),
            Some("string") => "text".into(),
            Some(number) => number.into(),
        }
    }

    /// A value as YAML has it, with types in place of what is free.
    fn shown(&mut self, value: &Value) -> String {
        if let Some(constant) = value["const"].as_str() {
            return constant.into();
        }
        let Some(fields) = value["properties"].as_object() else {
            return self.kind(value);
        };
        let fields: Vec<String> =
            fields.iter().map(|(name, field)| format!("{name}: {}", self.shown(field))).collect();
        format!("{{{}}}", fields.join(", "))
    }

    fn link(&mut self, name: &str) -> String {
        if !self.wanted.iter().any(|wanted| wanted == name) {
            self.wanted.push(name.to_owned());
        }
        format!("[{name}](#{})", name.to_lowercase())
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }
}

fn reference(field: &Value) -> Option<&str> {
    field["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"))
}

fn choices(definition: &Value) -> Option<&Vec<Value>> {
    definition["oneOf"].as_array()
}

fn about(field: &Value) -> String {
    one_line(field["description"].as_str().unwrap_or_default())
}

/// The meaning of a value, and of the fields inside of it.
fn meaning(value: &Value) -> String {
    let mut text = about(value);
    let inner = value["properties"].as_object().into_iter().flat_map(Map::values);
    for (name, field) in inner.filter_map(|inner| inner["properties"].as_object()).flatten() {
        let default = match field.get("default") {
            Some(Value::Null) | None => String::new(),
            Some(default) => format!(" (default {default})"),
        };
        let _ = write!(text, " `{name}`{default}: {}", about(field));
    }
    text
}

fn default(field: &Value) -> String {
    match field.get("default") {
        None if field["type"] == "boolean" => "`false`".into(),
        Some(Value::Null) | None => String::new(),
        // Its fields have their own.
        Some(Value::Object(fields)) if fields.len() != 1 => String::new(),
        Some(Value::Object(fields)) => {
            let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            format!("`{{{}}}`", fields.join(", "))
        }
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_has_a_row_and_every_type_a_section() {
        let schema = json!({
            "required": ["length"],
            "properties": {
                "name": {"type": ["string", "null"], "description": "For\npeople."},
                "length": {"$ref": "#/$defs/Period", "description": "How long."},
                "workers": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Bounds"}, {"type": "null"}]},
                "fit": {"type": "boolean"},
                "paths": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "$defs": {
                "Period": {"$ref": "#/$defs/Length"},
                "Length": {"description": "A length.", "oneOf": [
                    {"type": "string", "const": "end", "description": "To the end."},
                    {"type": "object", "description": "Some.", "properties": {"epochs": {"type": "integer"}}},
                ]},
                "Bounds": {"properties": {"min": {"type": "integer", "default": 1, "description": "a|b"}}},
            },
        });
        let page = page(&schema).unwrap();
        let rows = [
            "| `name` | text |  | For people. |",
            "| `length` | [Length](#length) | *required* | How long. |",
            "| `workers` | integer or [Bounds](#bounds) |  |  |",
            "| `fit` | true or false | `false` |  |",
            "| `paths` | list of text | `[]` |  |",
            "| `end` | To the end. |",
            "| `{epochs: integer}` | Some. |",
            "| `min` | integer | `1` | a\\|b |",
        ];
        for row in rows {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
        assert!(page.contains("## Length\n\nA length.\n"));
    }

    #[test]
    fn every_field_of_experiments_has_a_meaning() {
        let page = page(&salamander_core::experiment::schema()).unwrap();
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            assert!(!line.ends_with("|  |"), "no meaning: {line}");
        }
    }
}
