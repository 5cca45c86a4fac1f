//! Whether two experiment files describe the same run, so that one can go on with what the other has begun.

use salamander_core::yaml;
use serde_json::Value;

/// What may change while a run goes on: how few workers suffice, how many servers hold its tables.
const FREE: [&str; 2] = ["workers.min", "ps.servers"];

/// The first field in which two experiments differ, in words. A file that cannot be read is another's matter.
pub(crate) fn first_difference(there: &str, here: &str) -> Option<String> {
    let [there, here] = [there, here].map(|text| Some(yaml::parse(text).ok()?.to_json()));
    differing("", &there?, &here?)
}

fn differing(path: &str, there: &Value, here: &Value) -> Option<String> {
    if there == here || FREE.contains(&path) {
        return None;
    }
    let (Some(old), Some(new)) = (there.as_object(), here.as_object()) else {
        return Some(format!("{path} is {} there and {} here", word(there), word(here)));
    };
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    let field = |name: &String| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let part =
            |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or_default();
        differing(&path, &part(old), &part(new))
    };
    names.into_iter().find_map(field)
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_string(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_experiment_is_named_by_its_first_field() {
        let text = "entrypoint: m\nhyperparameters: {lr: 0.1}\nworkers: {min: 1, max: 4}\n";
        let check = |other: &str, expected: Option<&str>| {
            assert_eq!(first_difference(text, other).as_deref(), expected, "{other}");
        };
        check(text, None);
        check(&text.replace("min: 1", "min: 2"), None);
        check(
            &format!("{text}ps: {{servers: 3}}\n"),
            Some("ps is not set there and {\"servers\":3} here"),
        );
        check(&text.replace("0.1", "0.2"), Some("hyperparameters.lr is 0.1 there and 0.2 here"));
        check(&text.replace("max: 4", "max: 5"), Some("workers.max is 4 there and 5 here"));
        check(
            &text.replace("entrypoint: m\n", ""),
            Some("entrypoint is \"m\" there and not set here"),
        );
    }
}
