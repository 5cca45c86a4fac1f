//! Hyperparameters in a line, for people: JSON is for programs, and they ask for it.

use serde_json::Value as Json;

/// `learning_rate=0.003918 optimizer.name=sgd`; nothing where there are none. Numbers have four digits that count.
pub(crate) fn hparams_line(hparams: &Json) -> String {
    let mut parts = Vec::new();
    if hparams.is_object() {
        collect("", hparams, &mut parts);
    }
    parts.join(" ")
}

/// Takes a value, or the fields of a nested one by their paths.
fn collect(path: &str, value: &Json, parts: &mut Vec<String>) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(&path, value, parts);
            }
        }
        Json::String(text) => parts.push(format!("{path}={text}")),
        Json::Number(number) => parts.push(match number.as_f64().filter(|_| number.is_f64()) {
            Some(value) => format!("{path}={}", short(value)),
            None => format!("{path}={number}"),
        }),
        other => parts.push(format!("{path}={other}")),
    }
}

fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    format!("{rounded:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_stand_behind_their_paths() {
        let check = |hparams: Json, expected: &str| assert_eq!(hparams_line(&hparams), expected);
        check(
            json!({"rate": 0.003917994204434354, "size": 64, "optimizer": {"name": "sgd", "nesterov": true}}),
            "rate=0.003918 size=64 optimizer.name=sgd optimizer.nesterov=true",
        );
        check(
            json!({"decay": 1.5e-9, "one": 1.0, "hidden": [32, 16]}),
            "decay=1.5e-9 one=1.0 hidden=[32,16]",
        );
        check(Json::Null, "");
    }
}
