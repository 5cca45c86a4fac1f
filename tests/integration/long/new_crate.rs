//! `salamander new`: what it writes builds, trains, and has every subcommand.

use std::path::Path;
use std::process::Command;

use crate::support::Workplace;

#[test]
fn a_new_crate_builds_and_trains() {
    let place = Workplace::new();
    place.ok(&["new", "my_model"]);
    let folder = place.path().join("my_model");
    let source = std::fs::read_to_string(folder.join("src/main.rs")).expect("a program");
    assert!(source.lines().count() <= 60, "one file of at most 60 lines");

    // The same target folder and profile as this test, whatever the crate's own settings say. Burn may be built once
    // more all the same: it is shared with the program of the zoo, and the workspace's tests have more features.
    let program = Path::new(env!("CARGO_BIN_EXE_salamander-under-test"));
    let target = program.ancestors().nth(2).expect("target/debug/program");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline"])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(&folder)
        .output()
        .expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let own = target.join("debug/my_model");
    let run = |args: &[&str]| {
        let output = Command::new(&own).args(args).current_dir(&folder).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        text
    };
    let out = run(&["train", "experiment.yaml", "--json"]);
    let summary: serde_json::Value =
        serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    let accuracy = summary["metrics"]["validation"]["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.9, "{accuracy}");
    let id = summary["run"].as_str().expect("a name");
    run(&["evaluate", id]);
    run(&["predict", id, "--data", "data/valid.csv", "--out", "predictions.csv"]);
    run(&["export", id, "--out", "exported"]);
    run(&["ledger", id]);
    assert!(run(&["models"]).starts_with("my_model\n"));

    let again = place.run(&["new", "my_model"]);
    assert!(again.err().contains("exists already"), "{}", again.err());
    assert!(place.run(&["new", "fn"]).err().contains("no name for a crate"));
    assert!(place.run(&["new", "1st"]).err().contains("no name for a crate"));
}

#[test]
fn a_table_becomes_a_crate_that_trains() {
    let place = Workplace::new();
    // As pandas and spreadsheets write it: row numbers without a name, and names that are none in Rust.
    let mut text = String::from(",age,capital-gain,Size (cm) / max,city,type,income\n");
    for i in 0..2000 {
        let age = 20 + (i * 7) % 50;
        let gain = if i % 5 == 0 { String::new() } else { ((i * 31) % 97).to_string() };
        let income = if age > 45 { " >50K" } else { " <=50K" };
        let city = ["Bern", "Chur"][i % 2];
        text += &format!("{i},{age},{gain},{},{city},k{},{income}\n", i % 11, i % 7);
    }
    place.write("people.csv", &text);
    let error = place.run(&["new", "--tabular", "people.csv", "--label", "wage"]).err();
    assert!(error.contains("there is no column \"wage\"") && error.contains("income"), "{error}");
    assert!(!place.path().join("people").exists(), "nothing is left of a mistake");
    let told = place.ok(&["new", "--tabular", "people.csv", "--label", "income"]).out();
    assert!(told.contains("5 inputs\n") && told.contains("column \"\" is left out"), "{told}");

    let folder = place.path().join("people");
    let program = Path::new(env!("CARGO_BIN_EXE_salamander-under-test"));
    let target = program.ancestors().nth(2).expect("target/debug/program");
    let ran = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--", "train", "experiment.yaml", "--json"])
        .args(["--set", "hyperparameters.learning_rate=0.01"])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(&folder)
        .output()
        .expect("cargo starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !said.contains("snake case"), "{said}");
    let out = String::from_utf8_lossy(&ran.stdout);
    let summary: serde_json::Value =
        serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    let accuracy = summary["metrics"]["validation"]["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.8, "{accuracy}");
}
