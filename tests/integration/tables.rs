//! Embedding tables: in this process, on servers, in checkpoints and exports, always the same rows.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::chaos::{self, Fire, processes_of};
use tests::factors::ratings_csv;

use crate::elastic::{assert_same_bits, fire, losses};
use crate::interrupted::start;
use crate::support::{PROGRAM, Workplace};

pub(crate) fn experiment(place: &Workplace) -> String {
    place.write("ratings.csv", &ratings_csv(803));
    let text = "entrypoint: factors\n\
                data: {training: ratings.csv, validation: ratings.csv, shuffle: full}\n\
                micro_batches: 4\n\
                hyperparameters: {global_batch_size: 37}\n\
                min_checkpoint_period: {batches: 30}\n\
                searcher: {metric: auc, smaller_is_better: false, max_length: {batches: 100}}\n\
                reproducibility: {experiment_seed: 5}\n";
    place.write("factors.yaml", text).display().to_string()
}

pub(crate) fn validation(summary: &Value) -> (f64, f64) {
    let of = |name: &str| summary["metrics"]["validation"][name].as_f64().expect("a number");
    (of("loss"), of("auc"))
}

fn refusal(place: &Workplace, args: &[&str]) -> String {
    let ended = place.run(args);
    assert_ne!(ended.code(), Some(0), "{}", ended.out());
    ended.err()
}

#[test]
fn tables_on_servers_follow_a_local_run() {
    let place = Workplace::new();
    let file = experiment(&place);
    let local = place.train(&[&file]);
    let (_, auc) = validation(&local);
    assert!(auc > 0.7, "nothing was learnt: {auc}");
    for (workers, servers) in [("1", "1"), ("2", "3"), ("4", "2")] {
        let at = format!("{workers} workers, {servers} servers");
        let summary = place.train(&[&file, "--workers", workers, "--ps", servers]);
        assert_same_bits(&summary, &local, &at);
    }
}

/// Under Adagrad a parameter whose rows are not used does not move either: an independent check of the tables.
#[test]
fn rows_move_as_an_ordinary_parameter_does() {
    let place = Workplace::new();
    let file = experiment(&place);
    let run = |as_parameters: &str| {
        let parameters = format!("hyperparameters.as_parameters={as_parameters}");
        let sets = ["--set", "hyperparameters.adagrad=true", "--set", &parameters];
        losses(&place.train(&[&[file.as_str()], sets.as_slice()].concat()))
    };
    let (rows, parameters) = (run("false"), run("true"));
    assert_eq!(rows.len(), 100);
    for (step, (rows, parameters)) in rows.iter().zip(&parameters).enumerate() {
        assert!((rows - parameters).abs() < 1e-5, "step {step}: {rows} and {parameters}");
    }
    assert!(rows[99] < rows[0] - 0.02, "nothing was learnt: {} and {}", rows[0], rows[99]);
}

#[test]
fn a_run_goes_on_with_its_rows_and_with_another_number_of_servers() {
    let place = Workplace::new();
    let file = experiment(&place);
    let uncut = place.train(&[&file]);
    let half = place.train(&[&file, "--ps", "2", "--set", "searcher.max_length={batches: 50}"]);
    let run = half["dir"].as_str().expect("a folder");
    let sets = ["--set", "searcher.max_length={batches: 100}", "--ps", "3"];
    let whole = place.train(&[&["--resume", run], sets.as_slice()].concat());
    assert_eq!(whole["weights_hash"], uncut["weights_hash"], "{whole} and {uncut}");
    let local = ["--set", "searcher.max_length={batches: 130}", "--strategy", "local"];
    let longer = place.train(&[&["--resume", run], local.as_slice()].concat());
    assert_eq!(longer["steps"], 130);
}

#[test]
fn rows_are_evaluated_predicted_and_exported() {
    let place = Workplace::new();
    let summary = place.train(&[&experiment(&place), "--ps", "2"]);
    let run = summary["dir"].as_str().expect("a folder");
    let json = place.ok(&["evaluate", run, "--checkpoint", "latest", "--json"]).json();
    let found = json["metrics"]["loss"].as_f64().expect("a loss");
    assert!((found - validation(&summary).0).abs() < 1e-5, "{json}");
    place.ok(&["export", run, "--out", "exported", "--checkpoint", "latest"]);
    let exported = place.path().join("exported");
    for table in ["user", "item", "tag"] {
        assert!(exported.join(format!("tables/{table}-00000.safetensors")).exists(), "{table}");
    }
    let predict = |model: &str, out: &str| {
        let data = place.path().join("ratings.csv").display().to_string();
        place.ok(&["predict", model, "--data", &data, "--out", out]);
        std::fs::read_to_string(place.path().join(out)).expect("predictions")
    };
    let latest = Path::new(run).display().to_string();
    place.ok(&["export", &latest, "--out", "best"]);
    let best = place.path().join("best").display().to_string();
    assert_eq!(predict(run, "a.csv"), predict(&best, "b.csv"));
}

#[test]
fn an_id_outside_of_a_small_vocabulary_is_named() {
    let place = Workplace::new();
    let file = experiment(&place);
    place.write("ratings.csv", "user,item,tags,liked\n1,50,a,1\n");
    let error = refusal(&place, &["train", &file]);
    assert!(error.contains("table \"bias\": id 50 is outside of its vocabulary of 50"), "{error}");
}

#[test]
fn several_workers_need_servers_for_tables() {
    let place = Workplace::new();
    let error = refusal(&place, &["train", &experiment(&place), "--workers", "2"]);
    assert!(error.contains("--strategy hybrid"), "{error}");
}

/// Scales 2 -> 3 -> 1 servers in mid-run, and returns what the master had to say.
pub(crate) fn scaled(fire: &Fire, note: &str) -> String {
    let place = Workplace::new();
    chaos::prepare(place.path(), fire);
    let command = place.command(&["train", "tally.yaml", "--json"]);
    let (mut child, run) = start(command, &place, 20, Duration::ZERO);
    let folder = run.display().to_string();
    for servers in [3, 1] {
        place.ok(&["scale", &folder, "--ps", &servers.to_string()]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let note = format!("{note} {servers} parameter server");
        let parent = child.id();
        let is_there = || {
            let processes = processes_of(parent, "ps").len();
            processes == servers && place.ok(&["logs", &folder]).out().contains(&note)
        };
        while !is_there() {
            assert!(child.try_wait().expect("a state").is_none(), "it ended: make it longer");
            assert!(Instant::now() < deadline, "there are not {servers} servers");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(child.wait().expect("ended").success());
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    let proven = chaos::prove(Path::new(PROGRAM), place.path(), fire, &summary);
    proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
    assert_eq!(summary["restarts"]["ps"], 0, "{summary}");
    place.ok(&["logs", &folder]).out()
}

#[test]
fn another_number_of_servers_redoes_no_step() {
    let fire = Fire { servers: 2, delay_ms: 5, ..fire(1, 2, 12) };
    let notes = scaled(&fire, "the rows of tables are on");
    assert!(!notes.contains("from checkpoint"), "it went back: {notes}");
}
