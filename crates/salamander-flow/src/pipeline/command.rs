//! The command line of a step, from its fields.

use std::path::Path;

use salamander_core::layout::CHECKPOINTS;
use serde_json::Value as Json;

use super::kind::FieldKind;
use super::planner::Due;
use super::template::{Known, Quoting, words};

/// The words of a step's command; `folder` is where it writes. `resume` is a run to go on with.
pub(crate) fn line(due: &Due, program: &Path, folder: &Path, resume: Option<&Path>) -> Vec<String> {
    let kind = due.kind;
    let main = due.fields.get(kind.name).unwrap_or(&Json::Null);
    if kind.is_shell() {
        return match main {
            Json::Array(items) => items.iter().map(text).collect(),
            other => vec!["sh".into(), "-c".into(), text(other)],
        };
    }
    let mut line = vec![program.to_string_lossy().into_owned()];
    line.extend(kind.words.iter().map(ToString::to_string));
    if let Some(run) = resume {
        line.extend(["--resume".into(), run.to_string_lossy().into_owned()]);
    } else {
        positional(kind.main, main, &mut line);
        for (name, field) in kind.fields {
            if let Some(value) = due.fields.get(*name).filter(|value| !value.is_null()) {
                option(name, *field, value, &mut line);
            }
        }
    }
    if let Some((flag, place)) = kind.out {
        let place = folder.join(kind.place(place, &due.fields));
        line.extend([flag.to_string(), place.to_string_lossy().into_owned()]);
    }
    if kind.json {
        line.push("--json".into());
    }
    line
}

fn positional(field: FieldKind, value: &Json, line: &mut Vec<String>) {
    match (field, value) {
        (_, Json::Array(items)) => line.extend(items.iter().map(text)),
        (FieldKind::Model, value) => {
            // A checkpoint's folder stands for its run and its id.
            let place = text(value);
            let path = Path::new(&place);
            let checkpoints = path.parent().filter(|parent| parent.ends_with(CHECKPOINTS));
            match (checkpoints.and_then(Path::parent), path.file_name()) {
                (Some(run), Some(id)) => {
                    line.push(run.to_string_lossy().into_owned());
                    line.extend(["--checkpoint".into(), id.to_string_lossy().into_owned()]);
                }
                _ => line.push(place),
            }
        }
        (_, value) => line.push(text(value)),
    }
}

fn option(name: &str, field: FieldKind, value: &Json, line: &mut Vec<String>) {
    let flag = format!("--{}", name.replace('_', "-"));
    match (field, value) {
        (FieldKind::Ending(_), _) => {}
        (FieldKind::Flag, value) => {
            if value == &Json::Bool(true) {
                line.push(flag);
            }
        }
        (FieldKind::Sets, value) => flat(String::new(), value, &mut |set| {
            line.extend([flag.clone(), set]);
        }),
        (FieldKind::Texts, Json::Array(items)) => {
            line.extend([flag, items.iter().map(text).collect::<Vec<_>>().join(",")]);
        }
        (_, Json::Array(items)) => {
            items.iter().for_each(|item| line.extend([flag.clone(), text(item)]));
        }
        (FieldKind::Checkpoint, value) => {
            let place = text(value);
            let id = Path::new(&place).file_name().unwrap_or_default().to_string_lossy();
            line.extend([flag, id.into_owned()]);
        }
        (_, value) => line.extend([flag, text(value)]),
    }
}

/// The changes to an experiment, as `--set` has them.
pub(crate) fn sets(field: Option<&(String, Known)>) -> Vec<String> {
    let mut sets = Vec::new();
    if let Some((_, known)) = field {
        flat(String::new(), &known.real, &mut |set| sets.push(set));
    }
    sets
}

/// Values by path: `{a: {b: 1}}` changes `a.b` and leaves the rest of `a`.
fn flat(path: String, value: &Json, each: &mut dyn FnMut(String)) {
    match value {
        Json::Object(map) => map.iter().for_each(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            flat(path, value, each);
        }),
        // As JSON, which is YAML: a path with a sign of YAML in it stays a text.
        value => each(format!("{path}={value}")),
    }
}

fn text(value: &Json) -> String {
    words(value, Quoting::Plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::key::{Components, Key};
    use super::super::kind::StepKind;
    use super::*;

    fn check(kind: &str, fields: Json, expected: &[&str]) {
        let components = Components {
            kind: kind.into(),
            fields: Json::Null,
            inputs: Default::default(),
            program: None,
        };
        let due = Due {
            step: "s".into(),
            instance: "s".into(),
            kind: StepKind::named(kind).expect("known"),
            key: Key("k".into()),
            components,
            fields,
        };
        assert_eq!(line(&due, Path::new("prog"), Path::new("/o"), None), expected);
    }

    #[test]
    fn fields_become_arguments() {
        check("run", json!({"run": "ls | wc"}), &["sh", "-c", "ls | wc"]);
        check("run", json!({"run": ["ls", 3, "a b"]}), &["ls", "3", "a b"]);
        check(
            "train",
            json!({"train": "a.yaml", "set": {"a.b": "x: y", "c": {"d": 1}}, "workers": 4}),
            &[
                "prog",
                "train",
                "a.yaml",
                "--set",
                "a.b=\"x: y\"",
                "--set",
                "c.d=1",
                "--workers",
                "4",
                "--out",
                "/o/runs",
                "--json",
            ],
        );
        check(
            "convert",
            json!({"convert": ["a", "b"], "to": "parquet", "shard_records": 5}),
            &[
                "prog",
                "data",
                "convert",
                "a",
                "b",
                "--shard-records",
                "5",
                "--out",
                "/o/data/part.parquet",
            ],
        );
        check(
            "split",
            json!({"split": "a.csv", "shares": [0.8, 0.2], "oversample": true, "stratify": "y"}),
            &[
                "prog",
                "data",
                "split",
                "a.csv",
                "--shares",
                "0.8,0.2",
                "--stratify",
                "y",
                "--oversample",
                "--out",
                "/o/data",
            ],
        );
        check(
            "flow",
            json!({
                "flow": "digits", "in": ["a", "b"], "set": {"rate": 0.5}, "split": [0.9, 0.1], "statistics": true,
            }),
            &[
                "prog",
                "flow",
                "run",
                "digits",
                "--in",
                "a",
                "--in",
                "b",
                "--set",
                "rate=0.5",
                "--split",
                "0.9,0.1",
                "--statistics",
                "--out",
                "/o/data",
                "--json",
            ],
        );
        check(
            "predict",
            json!({"predict": "/r/checkpoints/step-1", "data": ["a", "b"]}),
            &[
                "prog",
                "predict",
                "/r",
                "--checkpoint",
                "step-1",
                "--data",
                "a",
                "--data",
                "b",
                "--out",
                "/o/predictions.parquet",
            ],
        );
        check(
            "register",
            json!({"register": "/r/checkpoints/step-1", "model": "sides", "alias": "champion", "runs": "hub"}),
            &[
                "prog",
                "model",
                "add",
                "/r",
                "--checkpoint",
                "step-1",
                "--model",
                "sides",
                "--alias",
                "champion",
                "--runs",
                "hub",
                "--json",
            ],
        );
        check(
            "evaluate",
            json!({"evaluate": "/r", "checkpoint": "/r/checkpoints/step-2"}),
            &["prog", "evaluate", "/r", "--checkpoint", "step-2", "--json"],
        );
    }
}
