//! The zoo's flows as people run them: a pipeline prepares data by a function of the program, trains on what that has
//! left, and does nothing twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

#[path = "zoo/support.rs"]
mod support;

/// A pipeline of the zoo with parameters of its own, in a folder of its own.
struct ZooPipeline {
    folder: tempfile::TempDir,
    file: PathBuf,
    sets: Vec<String>,
}

impl ZooPipeline {
    fn new(file: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("flow").join(file);
        Self { folder, file, sets: Vec::new() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.sets.push(format!("{name}={value}"));
    }

    /// Runs it to its end, which must be a good one.
    fn run(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_salamander"));
        command.args(["pipeline", "run", "--json", "--out"]).arg(self.at("kept")).arg(&self.file);
        self.sets.iter().for_each(|set| {
            command.args(["--set", set]);
        });
        let ended = command.current_dir(self.folder.path()).output().expect("the program starts");
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{}:\n{told}{out}", self.file.display());
        serde_json::from_str(out.lines().last().unwrap_or_default()).expect("JSON")
    }
}

/// What ran, by name.
fn ran(summary: &Value) -> Vec<&str> {
    let steps = summary["steps"].as_array().expect("a list").iter();
    steps.filter(|step| step["ran"] == true).filter_map(|step| step["name"].as_str()).collect()
}

fn outputs<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let mut steps = summary["steps"].as_array().expect("a list").iter();
    let step = steps.find(|step| step["name"] == name);
    &step.unwrap_or_else(|| panic!("no {name} in {summary}"))["outputs"]
}

/// The files of a folder that a step has left.
fn files(folder: &Value) -> usize {
    fs::read_dir(folder.as_str().expect("a folder")).expect("there").count()
}

#[test]
fn the_digits_are_prepared_trained_on_and_nothing_is_done_twice() {
    let mut digits = ZooPipeline::new("digits.yaml");
    digits.set("train", "../mnist/data/mnist-valid.recordio");
    digits.set("experiment", "../mnist/mlp.yaml");
    digits.set("workers", 2);
    digits.set("good", 0.1);
    let summary = digits.run();
    let all = ["train_data", "test_data", "fit", "test", "stats", "ship"];
    let done = ran(&summary);
    assert!(all.iter().all(|name| done.contains(name)), "{summary}");
    for (name, shards) in [("train_data", 4), ("test_data", 1)] {
        let data = outputs(&summary, name);
        assert_eq!((&data["rows"], &data["bad_rows"]), (&json!(2000), &json!(0)), "{name}");
        assert_eq!(files(&data["train"]), shards, "{name}");
    }
    assert_eq!(outputs(&summary, "fit")["workers"], 2);
    assert_eq!(outputs(&summary, "test")["records"], 2000);
    let accuracy = outputs(&summary, "test")["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.5, "{accuracy} after an epoch");
    assert_eq!(ran(&digits.run()), [""; 0]);
}

#[test]
fn clicks_with_vocabulary_and_statistics_are_learned_from() {
    let mut clicks = ZooPipeline::new("clicks.yaml");
    clicks.set("records", 5000);
    clicks.set("epochs", 1);
    let summary = clicks.run();
    assert_eq!(ran(&summary), ["raw", "prepare", "fit", "test"]);
    let data = outputs(&summary, "prepare");
    assert_eq!((&data["rows"], &data["bad_rows"]), (&json!(5000), &json!(0)));
    assert_eq!(files(&data["vocabulary"]), 4);
    let statistics = fs::read_to_string(data["statistics"].as_str().expect("a file"));
    let statistics: Value = serde_json::from_str(&statistics.expect("there")).expect("JSON");
    assert!(statistics.to_string().contains("\"I13\""), "{statistics}");
    // To within a row for each class.
    let tested = outputs(&summary, "test")["records"].as_i64().expect("a number");
    assert!((tested - 500).abs() <= 2, "{tested} of 5000");
    let auc = outputs(&summary, "test")["auc"].as_f64().expect("a number");
    assert!((0.0..=1.0).contains(&auc), "{auc}");
    assert_eq!(ran(&clicks.run()), [""; 0]);
}

#[test]
fn reviews_as_tokens_are_trained_on() {
    let mut reviews = ZooPipeline::new("reviews.yaml");
    let review = |at: usize| match at % 2 {
        0 => format!("\"a wonderful film, warm and funny {}\",positive\n", at % 7),
        _ => format!("\"it is dull; the jokes are old {}\",negative\n", at % 5),
    };
    let text = format!("text,label\n{}", (0..96).map(review).collect::<String>());
    fs::write(reviews.at("reviews.csv"), text).expect("written");
    support::tiny_bert(&reviews.at("tiny"));
    reviews.set("reviews", reviews.at("reviews.csv").display());
    reviews.set("bert", reviews.at("tiny").display());
    reviews.set("epochs", 1);
    let summary = reviews.run();
    assert_eq!(ran(&summary), ["tokens", "fit", "test"]);
    let data = outputs(&summary, "tokens");
    assert_eq!((&data["rows"], &data["bad_rows"]), (&json!(96), &json!(0)));
    // To within a row for each class.
    let tested = outputs(&summary, "test")["records"].as_i64().expect("a number");
    assert!((tested - 10).abs() <= 2, "{tested} of 96");
    assert_eq!(ran(&reviews.run()), [""; 0]);
}
