//! JSON values as block-style YAML, for the configuration in force that people read and edit.

use serde_json::Value;

/// Writes a value as YAML that [`parse`](super::parse) reads back to the same value.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

/// Writes the rest of a line, or lines of their own for what has entries that need them.
fn write(value: &Value, indent: usize, out: &mut String) {
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(map) if is_block(value) => {
            map.iter().map(|(key, value)| (format!("{}:", text(key)), value)).collect()
        }
        Value::Array(items) if is_block(value) => {
            items.iter().map(|item| ("-".to_string(), item)).collect()
        }
        _ => {
            out.push_str(&inline(value));
            out.push('\n');
            return;
        }
    };
    for (head, value) in entries {
        out.push_str(&" ".repeat(indent));
        out.push_str(&head);
        out.push(if is_block(value) { '\n' } else { ' ' });
        write(value, indent + 2, out);
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_array()),
        _ => false,
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(value) => text(value),
        // Flow style holds scalars only, where JSON and YAML agree.
        other => other.to_string(),
    }
}

/// Quotes a text only where YAML would read it as something else.
fn text(value: &str) -> String {
    let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:".contains(c))
        && !value.ends_with(':')
        && value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.');
    let reads_back = || {
        super::parse(value).is_ok_and(|node| node.value == super::Value::Text(value.to_string()))
    };
    if plain && reads_back() { value.to_string() } else { Value::from(value).to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{from_node, parse};
    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6..1e6f64).prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z0-9:# -]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any_value()) {
            let yaml = to_yaml(&value);
            let node = parse(&yaml).map_err(|e| TestCaseError::fail(format!("{e}\n{yaml}")))?;
            prop_assert_eq!(from_node(&node), Ok(value), "{}", yaml);
        }
    }
}
