//! How a run stands, from its folder alone: runs in one process have no master to ask, and runs that are over have none
//! any more.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use salamander_core::experiment::Experiment;
use salamander_core::layout::RunLayout;
use salamander_core::progress::StepCount;
use salamander_core::report::Start;
use salamander_core::status::State;
use salamander_files::{Durability, replace};
use salamander_train::checkpoint::CheckpointStore;
use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::folder::holder;
use crate::search::{is_search, read_search, searched_model};

/// How a run stands, as its folder tells it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FolderStatus {
    /// The run's id.
    pub run: String,
    /// Its folder.
    pub dir: PathBuf,
    /// The model's name.
    pub model: Option<String>,
    /// What it is doing, or how it ended.
    pub state: State,
    /// Why it failed, or what is known of its end.
    pub error: Option<String>,
    /// The process that trains, while one does.
    pub pid: Option<u32>,
    /// When it was started, or resumed last, in UTC: `2026-01-31 12:00:00`.
    pub started: Option<String>,
    /// Steps done.
    pub steps: StepCount,
    /// Steps in all, once they are known.
    pub total_steps: Option<StepCount>,
    /// The epoch of the last step, from 0.
    pub epoch: u64,
    /// Epochs in all, once they are known.
    pub epochs: Option<u64>,
    /// The loss of the last step.
    pub loss: Option<f64>,
    /// Values of the last validation.
    pub validation: BTreeMap<String, Option<f64>>,
    /// The best validation.
    pub best: Option<BestValidation>,
    /// The newest checkpoint's id.
    pub checkpoint: Option<String>,
    /// The hash of all that was learned up to it.
    pub weights_hash: Option<String>,
    /// About how long it will take, while it trains.
    pub seconds_left: Option<f64>,
    /// What a search has besides; it has no steps of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchStatus>,
}

/// What the folder of a search tells of its trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchStatus {
    /// How many there are so far.
    pub trials: u64,
    /// The run of the best one.
    pub best: Option<PathBuf>,
}

/// The validation that is the best so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestValidation {
    /// The watched metric's name.
    pub metric: String,
    /// Its value.
    pub value: Option<f64>,
    /// Steps done then.
    pub steps: StepCount,
}

impl FolderStatus {
    /// Reads a run's folder.
    pub fn read(run: &RunLayout) -> Self {
        if is_search(run.folder()) {
            return of_search(run);
        }
        let text = fs::read_to_string(run.experiment()).unwrap_or_default();
        let experiment = Experiment::parse(&text, &[]).ok();
        let metric = experiment.as_ref().map_or("loss", Experiment::metric);
        let told = ToldByMetrics::read(&run.metrics(), metric);
        let plan = plan(run);
        let holder = holder(run);
        let summary = read_json(&run.summary()).filter(|_| holder.is_none());
        let (state, error) = match (&holder, &summary) {
            (Some(_), _) => (State::Running, None),
            (None, Some(summary)) => ended(summary),
            (None, None) => (State::Interrupted, Some(unexplained(&told))),
        };
        let newest = CheckpointStore::list(&run.checkpoints()).ok().and_then(|mut all| all.pop());
        let left = || seconds_left(&run.plan(), plan.as_ref()?, told.steps);
        Self {
            run: run.id(),
            dir: run.folder().to_path_buf(),
            model: experiment.as_ref().and_then(Experiment::model).map(ToString::to_string),
            state,
            error,
            pid: holder.and_then(|holder| holder.pid),
            started: started(run).map(written),
            seconds_left: left().filter(|_| state == State::Running),
            steps: told.steps,
            total_steps: plan.as_ref().map(|plan| plan.total).filter(|total| total.0 > 0),
            epoch: told.epoch,
            epochs: plan.as_ref().map(|plan| plan.epochs),
            loss: told.loss,
            validation: told.validation,
            best: told.best,
            weights_hash: newest.as_ref().and_then(|newest| newest.weights_hash.clone()),
            checkpoint: newest.map(|newest| newest.id),
            search: None,
        }
    }

    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }
}

/// How a search stands: its best validation is that of its best trial.
fn of_search(run: &RunLayout) -> FolderStatus {
    let (holder, found) = (holder(run), read_search(run.folder()));
    let (state, error) = match (&holder, &found) {
        (Some(_), _) => (State::Running, None),
        (None, Err(error)) => (State::Failed, Some(error.to_string())),
        (None, Ok(end)) if end.interrupted => (State::Interrupted, None),
        (None, Ok(end)) if end.is_completed() => (State::Completed, None),
        (None, Ok(_)) => (State::Failed, Some("every trial failed".to_string())),
    };
    let end = found.ok();
    let best = end.as_ref().and_then(|end| {
        let (trial, value) = end.search().best()?;
        Some((end.trial_folder(trial.id), end.search().method().metric.clone(), value))
    });
    let trials = end.as_ref().map_or(0, |end| end.search().trials().len() as u64);
    FolderStatus {
        run: run.id(),
        dir: run.folder().to_path_buf(),
        model: searched_model(run.folder()),
        state,
        error,
        pid: holder.and_then(|holder| holder.pid),
        started: started(run).map(written),
        steps: StepCount(0),
        total_steps: None,
        epoch: 0,
        epochs: None,
        loss: None,
        validation: BTreeMap::new(),
        best: best.as_ref().map(|(folder, metric, value)| BestValidation {
            metric: metric.clone(),
            value: Some(*value).filter(|value| value.is_finite()),
            steps: FolderStatus::read(&RunLayout::new(folder)).steps,
        }),
        checkpoint: None,
        weights_hash: None,
        seconds_left: None,
        search: Some(SearchStatus { trials, best: best.map(|(folder, ..)| folder) }),
    }
}

/// All runs and searches below a folder, the newest first.
pub fn runs(folder: &Path) -> Vec<FolderStatus> {
    run_folders(folder).iter().map(FolderStatus::read).collect()
}

/// The folders of all runs and searches below a folder, the one that was started or resumed last first.
pub(crate) fn run_folders(folder: &Path) -> Vec<RunLayout> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(SystemTime, RunLayout)> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| RunLayout::new(entry.path()))
        // Other folders may have an experiment, too.
        .filter(|run| run.lock().is_file() || run.journal().is_file())
        .filter_map(|run| Some((started(&run)?, run)))
        .collect();
    found.sort_by(|a, b| (b.0, b.1.folder()).cmp(&(a.0, a.1.folder())));
    found.into_iter().map(|(_, run)| run).collect()
}

/// Keeps how long a run will be, for whoever looks at its folder.
pub(crate) fn note_plan(run: &RunLayout, plan: &Start) -> Result<(), Error> {
    let path = run.plan();
    let json = serde_json::to_vec(plan).map_err(Error::broken(&path))?;
    replace(&path, &json, Durability::Unsynced).map_err(Error::io(&path))
}

/// How long a run will be, once that is known.
pub(crate) fn plan(run: &RunLayout) -> Option<Start> {
    read_json(&run.plan()).and_then(|plan| serde_json::from_value(plan).ok())
}

/// The experiment in force is written when a run is started or resumed, and at no other time; so is the number of the
/// process that has a search.
fn started(run: &RunLayout) -> Option<SystemTime> {
    let file = if is_search(run.folder()) { run.lock() } else { run.experiment() };
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

fn written(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// How a run ended, from its summary.
fn ended(summary: &Value) -> (State, Option<String>) {
    let state = match summary["state"].as_str() {
        Some("completed") => State::Completed,
        Some("failed") => State::Failed,
        _ => State::Interrupted,
    };
    (state, summary["error"].as_str().map(ToString::to_string))
}

/// What is known of a run that nobody trains and that did not sum up.
fn unexplained(told: &ToldByMetrics) -> String {
    let reason = match told.steps {
        StepCount(0) => "it did not begin, or was killed before its first step",
        _ => "its process ended without a word: it was killed, or its machine went down",
    };
    reason.to_string()
}

/// What the steps since the start took, for those that are left.
fn seconds_left(file: &Path, plan: &Start, steps: StepCount) -> Option<f64> {
    let begun = fs::metadata(file).and_then(|file| file.modified()).ok()?;
    let seconds = begun.elapsed().ok()?.as_secs_f64();
    let counted = plan.total.0 > 0;
    let done = Some(steps.since(plan.done)).filter(|done| *done > 0 && counted)?;
    Some(seconds / done as f64 * plan.total.since(steps) as f64)
}

fn read_json(path: &Path) -> Option<Value> {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// What the metrics file tells.
#[derive(Debug, Default, PartialEq)]
struct ToldByMetrics {
    steps: StepCount,
    epoch: u64,
    loss: Option<f64>,
    validation: BTreeMap<String, Option<f64>>,
    best: Option<BestValidation>,
}

impl ToldByMetrics {
    fn read(path: &Path, metric: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let mut told = ToldByMetrics::default();
        // There may be a million steps, and only the last one is of interest; the last line may be written right now.
        let last_step = text.lines().rev().filter(|line| is_of(line, "step")).find_map(parse);
        if let Some(step) = last_step {
            told.steps = StepCount(step["steps"].as_u64().unwrap_or(0));
            told.epoch = step["epoch"].as_u64().unwrap_or(0);
            told.loss = step["loss"].as_f64();
        }
        for epoch in text.lines().filter(|line| is_of(line, "epoch")).filter_map(parse) {
            told.take_epoch(&epoch, metric);
        }
        told
    }

    fn take_epoch(&mut self, epoch: &Value, metric: &str) {
        let Some(values) = epoch["validation"].as_object() else { return };
        let values = values.iter().map(|(name, value)| (name.clone(), value.as_f64()));
        self.validation = values.collect();
        if epoch["best"] == true {
            let value = self.validation.get(metric).copied().flatten();
            let steps = StepCount(epoch["steps"].as_u64().unwrap_or(0));
            self.best = Some(BestValidation { metric: metric.to_string(), value, steps });
        }
    }
}

/// Whether a line of the metrics file is of this kind, which is its first field.
fn is_of(line: &str, kind: &str) -> bool {
    line.strip_prefix("{\"kind\":\"").is_some_and(|rest| rest.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{RunFolder, RunName};

    const EXPERIMENT: &str = "entrypoint: net\nsearcher: {metric: accuracy}\n";

    fn run() -> (tempfile::TempDir, RunFolder) {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = made(parent.path(), "x");
        (parent, folder)
    }

    fn made(parent: &Path, name: &str) -> RunFolder {
        let fill = |folder: &Path| {
            fs::write(RunLayout::new(folder).experiment(), EXPERIMENT).expect("written");
            Ok(())
        };
        RunFolder::create(parent, RunName::After(name), fill).expect("made")
    }

    #[test]
    fn a_run_that_somebody_trains_is_running_whatever_its_folder_says_of_earlier() {
        let (_parent, folder) = run();
        let layout = folder.layout().clone();
        fs::write(layout.summary(), "{\"state\": \"interrupted\"}").expect("written");
        let plan = Start { total: StepCount(40), epochs: 4, ..Start::default() };
        note_plan(&layout, &plan).expect("written");
        fs::write(
            layout.metrics(),
            "{\"kind\":\"step\",\"steps\":9,\"epoch\":0,\"loss\":0.7}\n\
             {\"kind\":\"epoch\",\"steps\":10,\"validation\":{\"accuracy\":0.9},\"best\":true}\n\
             {\"kind\":\"epoch\",\"steps\":20,\"validation\":{\"accuracy\":0.8},\"best\":false}\n\
             {\"kind\":\"step\",\"steps\":21,\"epoch\":2,\"loss\":0.5}\n\
             {\"kind\":\"step\",\"ste",
        )
        .expect("written");
        let status = FolderStatus::read(&layout);
        assert!(status.is_running());
        assert_eq!(status.pid, Some(std::process::id()));
        assert_eq!(
            (status.steps, status.total_steps, status.epoch, status.epochs),
            (StepCount(21), Some(StepCount(40)), 2, Some(4))
        );
        assert_eq!((status.loss, status.model.as_deref()), (Some(0.5), Some("net")));
        assert_eq!(status.validation["accuracy"], Some(0.8));
        let steps = StepCount(10);
        let best = BestValidation { metric: "accuracy".into(), value: Some(0.9), steps };
        assert_eq!(status.best, Some(best));
        assert!(status.seconds_left.is_some_and(|left| left >= 0.0));
    }

    #[test]
    fn a_run_that_is_over_says_how_it_ended_and_why() {
        let (_parent, folder) = run();
        let layout = folder.layout().clone();
        drop(folder);
        let status = FolderStatus::read(&layout);
        assert_eq!((status.state, status.pid), (State::Interrupted, None));
        assert!(status.error.expect("a reason").contains("did not begin"));
        fs::write(layout.summary(), "{\"state\": \"failed\", \"error\": \"no data\"}").expect("ok");
        let status = FolderStatus::read(&layout);
        assert_eq!((status.state, status.error.as_deref()), (State::Failed, Some("no data")));
    }

    #[test]
    fn runs_are_listed_from_the_newest_on_and_other_folders_are_none() {
        let (parent, first) = run();
        let second = made(parent.path(), "y");
        fs::create_dir(parent.path().join("data")).expect("made");
        let ids: Vec<String> = runs(parent.path()).into_iter().map(|run| run.run).collect();
        assert_eq!(ids, [second.layout().id(), first.layout().id()]);
        assert!(runs(Path::new("nowhere")).is_empty());
    }
}
