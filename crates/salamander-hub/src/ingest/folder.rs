//! What the folder of a run says of it, apart from its curves and logs.

use std::fs::{self, File};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use salamander_core::experiment::Experiment;
use salamander_core::layout::{MANIFEST, RunLayout};
use salamander_core::report::Start;
use serde_json::Value as Json;

use crate::hub::now;
use crate::ids::RunId;
use crate::store::checkpoints::Checkpoint;
use crate::store::runs::RunFacts;

/// How long nothing may be heard of a run on another machine, in milliseconds.
const REMOTE_SILENCE: i64 = 60_000;

/// What changes when a folder does, so that unchanged ones cost a few looks and no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature(Vec<Option<(i64, u64)>>);

impl Signature {
    pub(super) fn of(run: &RunLayout) -> Self {
        let files = [
            run.experiment(),
            run.plan(),
            run.summary(),
            run.lock(),
            run.remote_live(),
            run.metrics(),
            run.checkpoints(),
            run.counted(),
            run.search_journal(),
            run.logs(),
        ];
        Self(files.iter().map(|path| stamp(path)).collect())
    }
}

fn stamp(path: &Path) -> Option<(i64, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((milliseconds(about.modified().ok()?), about.len()))
}

/// When a file was written, in milliseconds since 1970.
pub(crate) fn written(path: &Path) -> Option<i64> {
    stamp(path).map(|(time, _)| time)
}

fn milliseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// The process that trains in a folder, if one does; 0 where its number is not known.
pub(crate) fn holder(run: &RunLayout) -> Option<u32> {
    if let Some(heard) = written(&run.remote_live()) {
        // On another machine, which says so every few seconds.
        return (now() - heard < REMOTE_SILENCE).then_some(0);
    }
    let lock = File::open(run.lock()).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let text = fs::read_to_string(run.lock()).unwrap_or_default();
    Some(text.trim().parse().unwrap_or(0))
}

/// Whether a folder is a run's or a search's.
pub(super) fn is_run(run: &RunLayout) -> bool {
    let begun = || run.lock().is_file() || run.journal().is_file();
    run.search().is_file() || (run.experiment().is_file() && begun())
}

pub(super) fn read_json(path: &Path) -> Option<Json> {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// How a run stands: held by a process, or as it summed up, or neither.
pub(crate) fn state(run: &RunLayout, holder: Option<u32>) -> (String, Option<String>) {
    if holder.is_some() {
        return ("running".to_string(), None);
    }
    let Some(summary) = read_json(&run.summary()) else {
        let reason = "its process ended without a word: it was killed, or its machine went down";
        return ("interrupted".to_string(), Some(reason.to_string()));
    };
    let told = summary["state"].as_str().filter(|state| matches!(*state, "completed" | "failed"));
    let state = told.unwrap_or("interrupted");
    (state.to_string(), summary["error"].as_str().map(str::to_string))
}

/// All that the folder of a run says.
pub(super) fn facts(run: &RunLayout, folder: &str, holder: Option<u32>) -> RunFacts {
    let text = fs::read_to_string(run.experiment()).unwrap_or_default();
    let experiment = Experiment::parse(&text, &[]).ok();
    let plan: Option<Start> = read_json(&run.plan()).and_then(|p| serde_json::from_value(p).ok());
    let summary = fs::read_to_string(run.summary()).ok().filter(|_| holder.is_none());
    let (state, reason) = state(run, holder);
    let of_plan = |number: fn(&Start) -> u64| plan.as_ref().map(|plan| number(plan) as i64);
    let mut hparams = experiment.as_ref().map_or(Json::Null, |e| e.hyperparameters.to_json());
    if hparams.is_null() {
        hparams = serde_json::json!({});
    }
    RunFacts {
        folder: folder.to_string(),
        name: experiment.as_ref().and_then(|e| e.name.clone()).unwrap_or_else(|| run.id()),
        state,
        reason,
        model: experiment.as_ref().and_then(Experiment::model).map(str::to_string),
        hparams,
        // Of data that is still being written nobody knows them.
        total_steps: of_plan(|plan| plan.total.0).filter(|total| *total > 0),
        epochs: of_plan(|plan| plan.epochs),
        steps_per_epoch: of_plan(|plan| plan.steps_per_epoch).filter(|steps| *steps > 0),
        parameters: of_plan(|plan| plan.parameters),
        workers: of_plan(|plan| plan.workers),
        metric: experiment.as_ref().map(|e| e.metric().to_string()),
        smaller_is_better: experiment.as_ref().is_none_or(|e| e.searcher.smaller_is_better),
        length: None,
        measured: None,
        started: written(&run.experiment()),
        ended: written(&run.summary()).filter(|_| holder.is_none()),
        pid: holder.map(i64::from).filter(|pid| *pid > 0),
        summary,
    }
}

/// The checkpoints that count, as their manifests tell.
pub(super) fn checkpoints(run: &RunLayout, id: RunId) -> Vec<Checkpoint> {
    let counted = fs::read_to_string(run.counted()).ok();
    let counts =
        |name: &str| counted.as_ref().is_none_or(|list| list.lines().any(|line| line == name));
    let entries = fs::read_dir(run.checkpoints()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Checkpoint> = names
        .filter(|name| name.starts_with("step-") && counts(name))
        .filter_map(|name| checkpoint(run, id, &name))
        .collect();
    found.sort_by(|a, b| (a.steps, &a.name).cmp(&(b.steps, &b.name)));
    found
}

fn checkpoint(run: &RunLayout, id: RunId, name: &str) -> Option<Checkpoint> {
    let path = run.checkpoints().join(name).join(MANIFEST);
    let manifest = read_json(&path)?;
    let sizes = manifest["files"].as_object().into_iter().flatten();
    let files: i64 = sizes.filter_map(|(_, file)| file["bytes"].as_i64()).sum();
    let tables = manifest["tables"].as_object().into_iter().flatten();
    let rows: i64 = tables.filter_map(|(_, bytes)| bytes.as_i64()).sum();
    Some(Checkpoint {
        run: id,
        name: name.to_string(),
        steps: manifest["steps"].as_i64()?,
        epoch: manifest["epoch"].as_i64().unwrap_or(0),
        watched: manifest["watched"].as_f64(),
        recovery: manifest["recovery"].as_bool().unwrap_or(false),
        weights_hash: manifest["weights_hash"].as_str().map(str::to_string),
        bytes: files + rows,
        validation: manifest["validation"].clone(),
        state: "completed".to_string(),
        created: written(&path)?,
    })
}
