//! A search that is told to TensorBoard and, by MLflow's API, to a hub: every step of every trial is there once, also
//! when the hub was gone for a while.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::{Value, json};

use crate::hub::Hub;
use crate::support::{Workplace, ids_csv, python};

const STEPS: u64 = 200;
const TRIALS: [u64; 2] = [1, 2];

/// A search of trials of `tally`, two at a time.
pub(crate) struct TallySearch<'a> {
    pub(crate) name: &'a str,
    pub(crate) batches: u64,
    pub(crate) trials: usize,
    /// Lines of hyperparameters besides those that all have.
    pub(crate) hyperparameters: &'a str,
}

impl TallySearch<'_> {
    /// Its experiment file; the data are `ids.csv` and `few.csv`.
    pub(crate) fn text(&self) -> String {
        let Self { name, batches, trials, hyperparameters } = self;
        format!(
            "name: {name}\n\
             entrypoint: tally\n\
             data: {{training: ids.csv, validation: few.csv}}\n\
             hyperparameters:\n  \
               global_batch_size: 40\n  \
               learning_rate: {{type: log, base: 10, minval: -3, maxval: -1}}\n\
             {hyperparameters}\
             searcher:\n  \
               name: random\n  \
               metric: loss\n  \
               max_length: {{batches: {batches}}}\n  \
               max_trials: {trials}\n  \
               max_concurrent_trials: 2\n\
             reproducibility: {{experiment_seed: 7}}\n"
        )
    }
}

/// Every scalar of a folder that TensorBoard's own reader finds.
const SCALARS: &str = r#"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
reader.Reload()
print(json.dumps({tag: [[e.step, e.wall_time, e.value] for e in reader.Scalars(tag)]
                  for tag in reader.Tags()["scalars"]}))
"#;

/// A loss, when it was measured, in seconds since 1970, and after how many steps.
#[derive(Clone, Copy, Debug)]
struct MeasuredLoss {
    step: u64,
    time: f64,
    loss: f64,
}

impl MeasuredLoss {
    fn new(step: &Value, time: f64, loss: &Value) -> Self {
        let (step, loss) = (step.as_u64().expect("a step"), loss.as_f64().expect("a loss"));
        Self { step, time, loss }
    }
}

/// The same steps in the same order, with the same values to the bits of an `f32`, which is what they were and what
/// TensorBoard keeps; times to the millisecond, which is what MLflow keeps.
fn are_the_same(found: &[MeasuredLoss], expected: &[MeasuredLoss], what: &str) {
    let values = |all: &[MeasuredLoss]| -> Vec<(u64, f32)> {
        all.iter().map(|one| (one.step, one.loss as f32)).collect()
    };
    assert_eq!(values(found), values(expected), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found.time - expected.time).abs() < 0.002, "{what}: {found:?} and {expected:?}");
    }
}

/// A search that trains in a folder of its own, which the hub does not see.
struct TrainingSearch {
    process: Child,
    folder: PathBuf,
    slow: PathBuf,
    said: PathBuf,
}

impl TrainingSearch {
    fn start(place: &Workplace, uri: &str) -> Self {
        let slow = place.write("slow", "");
        place.write("ids.csv", &ids_csv(400));
        place.write("few.csv", &ids_csv(40));
        // Slow for as long as the file is there.
        let hyperparameters =
            format!("  records: 400\n  delay_ms: 500\n  slow_file: {}\n", slow.display());
        let search = TallySearch {
            name: "tuned",
            batches: STEPS,
            trials: TRIALS.len(),
            hyperparameters: &hyperparameters,
        };
        place.write("tuned.yaml", &search.text());
        let args = ["train", "tuned.yaml", "--id", "wide", "--out", "elsewhere", "--slots", "2"];
        let tools = ["--json", "--tensorboard", "--mlflow", uri];
        let said = place.path().join("said");
        let mut command = place.command(&[&args[..], &tools].concat());
        command.stderr(File::create(&said).expect("made"));
        let process = command.spawn().expect("started");
        Self { process, folder: place.path().join("elsewhere/wide"), slow, said }
    }

    fn trial(&self, trial: u64) -> PathBuf {
        self.folder.join(format!("trials/{trial:05}"))
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits until something is so, which must be before the search ends.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let ended = self.process.try_wait().expect("a state");
            assert!(ended.is_none(), "{what}: it ended before ({ended:?}):\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lines of the metrics of both trials.
    fn lines(&self) -> [usize; 2] {
        TRIALS.map(|trial| {
            let metrics = fs::read_to_string(self.trial(trial).join("metrics.jsonl"));
            metrics.map_or(0, |text| text.lines().count())
        })
    }

    /// Lets it come to its end, and returns how it ended.
    fn finish(self) -> Value {
        fs::remove_file(&self.slow).expect("it was there");
        let said = self.said.clone();
        let output = self.process.wait_with_output().expect("it ends");
        let said = fs::read_to_string(said).unwrap_or_default();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{out}{said}");
        serde_json::from_str(out.lines().last().unwrap_or_default()).expect("one line of JSON")
    }
}

/// Trials of which the hub has a loss.
fn heard(hub: &Hub) -> usize {
    let listed = hub.get("/api/v1/runs?limit=100&metrics=loss");
    let items = listed["items"].as_array().expect("a list");
    items.iter().filter(|run| run["metrics"]["loss"].is_number()).count()
}

/// The losses in a run's own file: of its steps, or of its validations.
fn in_folder(run: &Path, kind: &str) -> Vec<MeasuredLoss> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_line = |line: Value| {
        let loss = if kind == "step" { &line["loss"] } else { &line["validation"]["loss"] };
        let time = line["time"].as_f64().expect("a time");
        loss.is_number().then(|| MeasuredLoss::new(&line["steps"], time, loss))
    };
    lines.filter(|line| line["kind"] == kind).filter_map(of_line).collect()
}

/// What an MLflow client reads of a run.
struct LoggedRun<'a> {
    hub: &'a Hub,
    id: String,
    /// Its place in the hub's own lists.
    listed: Value,
    read: Value,
}

impl<'a> LoggedRun<'a> {
    /// All that are there, by their names.
    fn all(hub: &'a Hub) -> Vec<Self> {
        let listed = hub.get("/api/v1/runs?limit=100&metrics=*");
        let items = listed["items"].as_array().expect("a list").clone();
        // One whose making was not answered in time may have been made twice, and is deleted again.
        let items = items.into_iter().filter(|run| run["state"] != "deleted");
        let mut all: Vec<Self> = items.map(|listed| Self::of(hub, listed)).collect();
        all.sort_by_key(|run| run.name());
        all
    }

    fn of(hub: &'a Hub, listed: Value) -> Self {
        let folder = listed["folder"].as_str().expect("a folder");
        let id = folder.rsplit('/').next().expect("a name").to_string();
        let read = hub.get(&format!("/api/2.0/mlflow/runs/get?run_id={id}"))["run"].clone();
        Self { hub, id, listed, read }
    }

    fn name(&self) -> String {
        self.listed["name"].as_str().expect("a name").to_string()
    }

    /// A tag or a parameter.
    fn value(&self, kind: &str, key: &str) -> Option<&str> {
        let all = self.read["data"][kind].as_array().expect("pairs");
        all.iter().find(|pair| pair["key"] == key)?["value"].as_str()
    }

    fn history(&self, metric: &str) -> Vec<MeasuredLoss> {
        let query = format!("run_id={}&metric_key={metric}", self.id);
        let told = self.hub.get(&format!("/api/2.0/mlflow/metrics/get-history?{query}"));
        let points = told["metrics"].as_array().expect("points").clone();
        let mut points: Vec<MeasuredLoss> = points
            .iter()
            .map(|one| {
                let time = one["timestamp"].as_f64().expect("a time") / 1000.0;
                MeasuredLoss::new(&one["step"], time, &one["value"])
            })
            .collect();
        points.sort_by_key(|one| one.step);
        points
    }

    /// The curve that the page draws, over the times that it knows.
    fn curve(&self, metric: &str) -> Vec<MeasuredLoss> {
        let run = self.listed["id"].as_str().expect("an id");
        let path =
            format!("/api/v1/runs/{run}/curves?points=20000&metrics={metric},@time/{metric}");
        let told = self.hub.get(&path);
        let numbers = |curve: usize, part: &str| -> Vec<Value> {
            told["curves"][curve][part].as_array().cloned().unwrap_or_default()
        };
        assert_eq!(numbers(0, "steps"), numbers(1, "steps"), "each point of {metric} has a time");
        let times = numbers(1, "values").into_iter().map(|time| time.as_f64().expect("a time"));
        let points = numbers(0, "steps").into_iter().zip(times).zip(numbers(0, "values"));
        points.map(|((step, time), loss)| MeasuredLoss::new(&step, time, &loss)).collect()
    }
}

/// The hub has a run for the search and one below it for each trial, with everything that is in their folders.
fn is_told(hub: &Hub, end: &Value) {
    let runs = LoggedRun::all(hub);
    let names: Vec<String> = runs.iter().map(LoggedRun::name).collect();
    assert_eq!(names, ["wide", "wide/00001", "wide/00002"]);
    let (parent, children) = runs.split_first().expect("three");
    assert_eq!(parent.read["info"]["status"], "FINISHED");
    assert_eq!(parent.value("tags", "mlflow.parentRunId"), None);
    let best = parent.history("best");
    let found: Vec<_> = best.iter().map(|one| (json!(one.step), one.loss as f32)).collect();
    let metric = end["best"]["metric"].as_f64().expect("a metric");
    assert_eq!(found, [(end["best"]["id"].clone(), metric as f32)]);
    for (child, trial) in children.iter().zip(end["trials"].as_array().expect("a list")) {
        let (name, folder) = (child.name(), Path::new(trial["dir"].as_str().expect("a folder")));
        assert_eq!(child.value("tags", "mlflow.parentRunId"), Some(parent.id.as_str()), "{name}");
        assert_eq!(child.value("tags", "salamander.run"), Some(name.as_str()));
        let info = &child.read["info"];
        assert_eq!(info["status"], "FINISHED", "{name}");
        assert_eq!(info["experiment_id"], parent.read["info"]["experiment_id"], "{name}");
        assert_eq!(child.value("params", "model"), Some("tally"));
        assert_eq!(child.value("params", "records"), Some("400"));
        let rate = child.value("params", "learning_rate").and_then(|rate| rate.parse().ok());
        let drawn = trial["hparams"]["learning_rate"].as_f64().expect("a rate");
        assert!(
            rate.is_some_and(|rate: f64| (rate / drawn - 1.0).abs() < 1e-12),
            "{rate:?} {drawn}"
        );
        let steps = in_folder(folder, "step");
        let numbers: Vec<u64> = steps.iter().map(|one| one.step).collect();
        assert_eq!(numbers, (1..=STEPS).collect::<Vec<_>>(), "{name}");
        let validations = in_folder(folder, "epoch");
        assert!(!validations.is_empty(), "{name}");
        for (metric, expected) in [("loss", &steps), ("validation/loss", &validations)] {
            are_the_same(&child.history(metric), expected, &format!("{name}: {metric}"));
            are_the_same(&child.curve(metric), expected, &format!("{name}: curve of {metric}"));
        }
        let files = hub.get(&format!("/api/2.0/mlflow/artifacts/list?run_id={}", child.id));
        let files = files["files"].as_array().expect("a list").clone();
        for file in ["experiment.yaml", "summary.json"] {
            assert!(files.iter().any(|one| one["path"] == file), "{name}: {file} of {files:?}");
        }
    }
}

/// The event files of each trial have what its metrics file has.
fn is_in_event_files(end: &Value, python: &Path) {
    for trial in end["trials"].as_array().expect("a list") {
        let folder = trial["dir"].as_str().expect("a folder");
        let output = Command::new(python).args(["-c", SCALARS, folder]).output().expect("python");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for (tag, kind) in [("loss", "step"), ("validation/loss", "epoch")] {
            let points = read[tag].as_array().cloned().unwrap_or_default();
            let of_point = |point: &Value| {
                MeasuredLoss::new(&point[0], point[1].as_f64().expect("a time"), &point[2])
            };
            let found: Vec<MeasuredLoss> = points.iter().map(of_point).collect();
            are_the_same(&found, &in_folder(Path::new(folder), kind), &format!("{folder}: {tag}"));
        }
    }
}

/// Trains the search; `between` is what happens once the hub has heard of both trials, and gives the hub.
fn told(between: impl FnOnce(&Workplace, &mut TrainingSearch, Hub) -> Hub) {
    let place = Workplace::new();
    let hub = Hub::start(&place);
    let uri = format!("http://{}", hub.address());
    let mut search = TrainingSearch::start(&place, &uri);
    search.until("the hub hears of both trials", |_| heard(&hub) == TRIALS.len());
    let hub = between(&place, &mut search, hub);
    let end = search.finish();
    assert_eq!(end["state"], "completed", "{end:#}");
    if let Some(python) = python("a search that is told", "tensorboard") {
        is_in_event_files(&end, &python);
    }
    // The end of a run waits for nobody for long: what is left is told now. What was told is not told again.
    place.ok(&["track", end["dir"].as_str().expect("a folder"), "--mlflow", &uri]);
    is_told(&hub, &end);
    hub.stop();
}

#[test]
fn a_search_is_told_with_each_step_once() {
    told(|_, _, hub| hub);
}

#[test]
fn a_search_is_told_with_each_step_once_though_the_hub_is_killed() {
    told(|place, search, mut hub| {
        let address = hub.address().to_string();
        hub.kill();
        let before = search.lines();
        search.until("training goes on", |search| {
            search.lines().iter().zip(before).all(|(now, before)| *now > before)
        });
        Hub::start_on(place, &address)
    });
}
