//! Pipelines beside the folder of runs: the pictures that whoever runs them draws, and how they ended.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::response::Response;
use salamander_core::layout::{PIPELINES, PipelineLayout};
use serde_json::{Value, json};

use super::Api;
use super::write::change;
use crate::Error;
use crate::hub::Hub;

/// Pipelines of a list; those that were drawn last.
const MOST: usize = 200;
/// A file of more bytes is no picture of a pipeline.
const LARGEST: u64 = 4 << 20;

/// A pipeline that somebody has run.
struct PipelineFound {
    name: String,
    layout: PipelineLayout,
    /// When its picture was drawn.
    drawn: SystemTime,
}

impl Hub {
    /// Those that were drawn last come first.
    fn drawn_pipelines(&self) -> Vec<PipelineFound> {
        let Some(folder) = self.runs().parent() else { return Vec::new() };
        let folders = fs::read_dir(folder.join(PIPELINES)).into_iter().flatten().flatten();
        let found = folders.filter_map(|entry| {
            let layout = PipelineLayout::new(entry.path());
            let picture = fs::metadata(layout.graph()).ok().filter(|file| file.len() <= LARGEST)?;
            let name = entry.file_name().into_string().ok()?;
            Some(PipelineFound { name, drawn: picture.modified().ok()?, layout })
        });
        let mut found: Vec<PipelineFound> = found.collect();
        found.sort_by(|a, b| b.drawn.cmp(&a.drawn).then_with(|| a.name.cmp(&b.name)));
        found.truncate(MOST);
        found
    }

    fn pipelines(&self) -> Result<Value, Error> {
        Ok(self.drawn_pipelines().iter().map(PipelineFound::told).collect())
    }

    /// Only names of the list name something.
    fn pipeline(&self, name: &str) -> Result<Value, Error> {
        let found = self.drawn_pipelines().into_iter().find(|found| found.name == name);
        let absent = || Error::NotFound(format!("there is no pipeline {name:?} beside the runs"));
        let found = found.ok_or_else(absent)?;
        let path: PathBuf = found.layout.graph();
        let mut told = found.told();
        told["graph"] = fs::read_to_string(&path).map_err(Error::io(&path))?.into();
        Ok(told)
    }
}

impl PipelineFound {
    fn told(&self) -> Value {
        let since = self.drawn.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({"name": self.name, "drawn": since.as_millis() as u64, "state": self.state()})
    }

    /// How its last run ended; null as long as it goes on, or if it was killed.
    fn state(&self) -> Value {
        let path = self.layout.summary();
        let ended = fs::metadata(&path).and_then(|file| file.modified());
        if !ended.is_ok_and(|ended| ended >= self.drawn) {
            return Value::Null;
        }
        let summary = fs::read(&path).unwrap_or_default();
        let summary = serde_json::from_slice::<Value>(&summary).unwrap_or_default();
        summary["state"].clone()
    }
}

pub(super) async fn list(State(api): State<Api>) -> Response {
    change(&api, Hub::pipelines).await
}

pub(super) async fn one(State(api): State<Api>, Path(name): Path<String>) -> Response {
    change(&api, move |hub| hub.pipeline(&name)).await
}
