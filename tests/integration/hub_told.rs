//! What a hub tells of runs beside what their folders have: every point, line and checkpoint, each once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use salamander_core::layout::{MANIFEST, RunLayout};
use serde_json::Value;

use crate::hub::Hub;

/// A run, by what must not be lost or doubled.
#[derive(Debug, Default, PartialEq)]
struct RunContents {
    losses: Vec<(u64, Option<f64>)>,
    /// Lines of each process.
    logs: BTreeMap<String, Vec<String>>,
    checkpoints: Vec<String>,
}

/// How long a hub may take to read what is there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a hub tells of every run just what is in its folder, and looks whether every step is in there once.
pub(crate) fn is_whole(hub: &Hub, runs: &Path) {
    let listed = hub.get("/api/v1/runs?archived=true&limit=1000");
    let listed = listed["items"].as_array().expect("a list");
    assert!(!listed.is_empty(), "there are runs");
    for run in listed {
        let (id, folder) = (text(&run["id"]), text(&run["folder"]));
        let layout = RunLayout::new(runs.join(&folder));
        let since = Instant::now();
        let there = loop {
            let there = in_folder(&layout);
            let told = in_hub(hub, &id, &there);
            if told == there {
                break there;
            }
            if since.elapsed() > PATIENCE {
                assert_eq!(told, there, "run {id} in {folder}");
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let steps: Vec<u64> = there.losses.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>(), "steps of {folder}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_string()
}

fn in_folder(run: &RunLayout) -> RunContents {
    let metrics = fs::read_to_string(run.metrics()).unwrap_or_default();
    let lines = metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let steps = lines.filter(|line| line["kind"] == "step");
    let losses = steps
        .map(|line| (line["steps"].as_u64().expect("a number"), line["loss"].as_f64()))
        .collect();
    let logs = fs::read_dir(run.logs()).into_iter().flatten().flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let log = |path: std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let bytes = fs::read(&path).expect("read");
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        (name, text.lines().map(str::to_string).collect::<Vec<_>>())
    };
    let logs = logs.map(log).filter(|(_, lines)| !lines.is_empty()).collect();
    let counted = fs::read_to_string(run.counted()).ok();
    let counts =
        |name: &str| counted.as_ref().is_none_or(|list| list.lines().any(|line| line == name));
    let names = fs::read_dir(run.checkpoints()).into_iter().flatten().flatten();
    let names = names.filter(|entry| entry.path().join(MANIFEST).is_file());
    let mut checkpoints: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("step-") && counts(name))
        .collect();
    checkpoints.sort();
    RunContents { losses, logs, checkpoints }
}

/// What the hub tells, of the logs those that the folder has: the console is in none.
fn in_hub(hub: &Hub, id: &str, there: &RunContents) -> RunContents {
    let curve = hub.get(&format!("/api/v1/runs/{id}/curves?metrics=loss&points=20000"));
    let part = |name: &str| curve["curves"][0][name].as_array().cloned().unwrap_or_default();
    let steps = part("steps").into_iter().map(|step| step.as_u64().expect("a step"));
    let losses = steps.zip(part("values").iter().map(Value::as_f64)).collect();
    let log = |process: &String| {
        let path = format!("/api/v1/runs/{id}/logs?process={process}&limit=10000");
        let lines = hub.get(&path)["lines"].as_array().expect("lines").clone();
        (process.clone(), lines.iter().map(|line| text(&line["text"])).collect())
    };
    let logs = there.logs.keys().map(log).collect();
    let checkpoints = hub.get(&format!("/api/v1/runs/{id}/checkpoints"));
    let mut checkpoints: Vec<String> = checkpoints
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["state"] == "completed")
        .map(|one| text(&one["name"]))
        .collect();
    checkpoints.sort();
    RunContents { losses, logs, checkpoints }
}
