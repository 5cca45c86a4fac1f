//! Pipelines of the real program: the guide's, the zoo's, and one whose training is cut off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::serving::Serving;
use crate::support::{Workplace, points_csv};

/// What ran, by name.
fn ran(summary: &Value) -> Vec<&str> {
    let steps = summary["steps"].as_array().expect("a list");
    steps
        .iter()
        .filter(|step| step["ran"] == true)
        .filter_map(|step| step["name"].as_str())
        .collect()
}

fn step<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let steps = summary["steps"].as_array().expect("a list");
    steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name} in {summary}"))
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).canonicalize().expect("a file")
}

/// A page of the guide.
fn page(name: &str) -> String {
    fs::read_to_string(repository("docs/guide/src").join(name)).expect("the page")
}

/// Its blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Everything that the page shows is done, in its order: its files, its commands, its request.
#[test]
fn the_guides_page_goes_from_raw_data_to_a_served_model() {
    let (place, page) = (Workplace::new(), page("raw_to_served.md"));
    for file in blocks(&page, "yaml") {
        let name = file.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a name");
        place.write(name, file);
    }
    let lines: Vec<&str> = blocks(&page, "text").into_iter().flat_map(str::lines).collect();
    let words = |line: &str| -> Vec<String> { line.split(' ').skip(1).map(Into::into).collect() };
    let of = |start: &str| -> Vec<Vec<String>> {
        lines.iter().filter(|line| line.starts_with(start)).map(|line| words(line)).collect()
    };
    let commands = of("salamander ");
    assert_eq!(commands.len(), 5, "{lines:?}");
    for command in commands.iter().filter(|command| command[0] != "serve") {
        place.ok(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let again = place.ok(&["pipeline", "run", "pipeline.yaml", "--json"]).json();
    assert_eq!((ran(&again), &again["state"]), (Vec::<&str>::new(), &json!("completed")));
    let check = &step(&again, "check")["outputs"];
    assert_eq!(check["records"], step(&again, "test")["outputs"]["records"]);
    let answers = fs::read_to_string(check["answers"].as_str().expect("a file")).expect("there");
    assert_eq!(check["records"], answers.lines().count());
    assert_eq!(step(&again, "ship")["outputs"]["version"], 1);

    let serve = of("salamander serve ").remove(0);
    let arguments: Vec<&str> = serve[1..].iter().map(String::as_str).collect();
    let serving = Serving::start(&place, &arguments, "127.0.0.1:0");
    let request = lines.iter().find_map(|line| line.strip_prefix("curl localhost:8000"));
    let (path, body) = request.and_then(|request| request.split_once(" -d ")).expect("a request");
    let (status, answer) = serving.call("POST", path, body.trim_matches('\''));
    assert_eq!(status, 200, "{answer}");
    let score = answer["outputs"][0]["data"][0].as_f64().expect("a score");
    assert!((0.0..=1.0).contains(&score), "{answer}");
    drop(serving);

    // A model that is not good enough is neither tried nor registered; a better one is the next version.
    let strict = ["pipeline", "run", "pipeline.yaml", "--set", "good=1.5", "--json"];
    let strict = place.ok(&strict).json();
    assert_eq!(step(&strict, "ship")["state"], "skipped");
    let longer = ["pipeline", "run", "pipeline.yaml", "--set", "epochs=3", "--json"];
    assert_eq!(step(&place.ok(&longer).json(), "ship")["outputs"]["version"], 2);
    let model = place.ok(&["model", "describe", "census", "--json"]).json();
    assert_eq!(model["versions"][1]["aliases"], json!(["champion"]), "{model}");
    // Whoever registers it once more gets the version that there is.
    let run = step(&again, "fit")["outputs"]["run"].as_str().expect("a run");
    let added = place.ok(&["model", "add", run, "--model", "census", "--json"]).json();
    assert_eq!((&added["version"], &added["model"]), (&json!(1), &json!("census")));
}

#[test]
fn the_guides_pipeline_goes_from_raw_data_to_a_model_and_does_nothing_twice() {
    let place = Workplace::new();
    let page = page("pipelines.md");
    let blocks = blocks(&page, "yaml");
    place.write("census.yaml", blocks[0]);
    place.write("pipeline.yaml", blocks[1]);
    let run = |sets: &[&str]| {
        let mut args = vec!["pipeline", "run", "pipeline.yaml", "--json"];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        place.ok(&args).json()
    };
    let first = run(&[]);
    assert_eq!(first["state"], "completed");
    assert_eq!(ran(&first), ["people", "parts", "fit", "test", "scores", "ship"]);
    let model = step(&first, "ship")["outputs"]["model"].as_str().expect("a folder");
    assert!(Path::new(model).join("model.safetensors").exists());
    let scores = step(&first, "scores")["outputs"]["predictions"].as_str().expect("a file");
    assert_eq!(fs::read_to_string(scores).expect("scores").lines().count(), 401);
    assert_eq!(ran(&run(&[])), [""; 0]);

    let plan =
        place.ok(&["pipeline", "plan", "pipeline.yaml", "--set", "epochs=3", "--json"]).json();
    assert_eq!(plan["steps"][2]["why"], "set.searcher.max_length.epochs: 2 -> 3");
    assert_eq!(plan["steps"][2]["runs"], true);
    assert_eq!(plan["steps"][1]["decision"], "unchanged");
    // One parameter of the last step: one step less.
    let strict = run(&["good=0.9999"]);
    assert_eq!(ran(&strict), [""; 0]);
    assert_eq!(step(&strict, "ship")["state"], "skipped");
    let svg = place.ok(&["pipeline", "graph", "pipeline.yaml"]).out();
    assert!(svg.starts_with("<svg ") && svg.contains(">scores</text>"), "{svg}");
    let single = place.ok(&["pipeline", "step", "scores", "--json"]).json();
    assert_eq!(single["steps"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_zoos_mnist_pipeline_goes_from_digits_to_statistics_with_four_partitions_and_workers() {
    let place = Workplace::new();
    let file = repository("model_zoo/flow/mnist.yaml").display().to_string();
    let sets = [
        "train=../mnist/data/mnist-valid.recordio",
        "partition_records=500",
        "experiment=../mnist/mlp.yaml",
        "good=0.1",
    ];
    let mut args = vec!["pipeline", "run", &file, "--out", "p", "--json"];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let summary = place.ok(&args).json();
    let all = ["train_data", "fit", "test", "predictions", "stats", "ship"];
    // The data to test are those to train on here: one artifact for both.
    assert!(all.iter().all(|name| ran(&summary).contains(name)), "{summary}");
    let data = step(&summary, "train_data")["outputs"]["data"].as_str().expect("a folder");
    let partitions = fs::read_dir(data).expect("a folder").flatten();
    let names = partitions.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.ends_with(".parquet")).count(), 4);
    assert_eq!(step(&summary, "fit")["outputs"]["workers"], 4);
    assert_eq!(step(&summary, "test")["outputs"]["records"], 2000);
    let stats = step(&summary, "stats")["outputs"]["stats"].as_str().expect("a file");
    let stats = fs::read_to_string(stats).expect("statistics");
    let lines: Vec<&str> = stats.lines().collect();
    assert_eq!(lines[0], "workers,train_s,comm_s,test_s");
    assert_eq!((lines.len(), lines[1].split(',').count()), (2, 4), "{stats}");
    assert_eq!(ran(&place.ok(&args).json()), [""; 0]);
    let full = repository("model_zoo/flow/mnist_full.yaml").display().to_string();
    // Nothing is asked of the address that it would download from.
    for source in [&[][..], &["--set", "source=../mnist/data"][..]] {
        let plan = place.ok(&[&["pipeline", "plan", &full, "--json"][..], source].concat());
        assert_eq!(plan.json()["steps"][0]["why"], "it has not run yet", "{source:?}");
    }
}

const FETCHED: &str = "\
steps:
  iris:  {fetch: iris, from: raw}
  parts: {split: '${iris.train}', shares: [0.75, 0.25], to: csv}
  lines: {run: 'wc -l < ${in} > ${out}', in: '${iris.test}', out: lines.txt}
";

#[test]
fn a_table_that_was_fetched_is_split_by_the_name_that_it_has() {
    let place = Workplace::new();
    let species = |at: usize| ["setosa", "versicolor", "virginica"][at % 3];
    let flower = |at: usize| format!("5.{},3.5,1.4,0.2,Iris-{}\n", at % 10, species(at));
    fs::create_dir(place.path().join("raw")).expect("made");
    place.write("raw/iris.data", &(0..60).map(flower).collect::<String>());
    place.write("p.yaml", FETCHED);
    let summary = place.ok(&["pipeline", "run", "p.yaml", "--json"]).json();
    assert_eq!(summary["state"], "completed", "{summary}");
    let lines = |name: &str, output: &str| {
        let file = step(&summary, name)["outputs"][output].as_str().expect("a file");
        fs::read_to_string(file).expect("there").lines().count()
    };
    // A fifth is kept to be tried on; each file has a heading.
    assert_eq!((lines("iris", "train"), lines("iris", "test")), (49, 13));
    assert_eq!((lines("parts", "train"), lines("parts", "validation")), (37, 13));
    assert_eq!(ran(&place.ok(&["pipeline", "run", "p.yaml", "--json"]).json()), [""; 0]);
}

const CUT_OFF: &str = "\
steps:
  fit: {train: x.yaml}
  test: {evaluate: '${fit}'}
";

const TRAINING: &str = "\
entrypoint: points
data: {training: points.csv, validation: points.csv}
hyperparameters: {global_batch_size: 8}
searcher: {metric: loss, max_length: {batches: 6000}}
min_checkpoint_period: {batches: 50}
reproducibility: {experiment_seed: 7}
";

#[test]
fn a_training_that_is_cut_off_within_a_pipeline_goes_on_and_ends_with_the_same_bits() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(400));
    place.write("x.yaml", TRAINING);
    place.write("p.yaml", CUT_OFF);
    let whole = place.ok(&["pipeline", "run", "p.yaml", "--out", "whole", "--json"]).json();
    let expected = &step(&whole, "fit")["outputs"]["weights_hash"];
    assert!(expected.is_string(), "{whole}");

    for (out, signal, code) in [("asked", Signal::INT, Some(130)), ("killed", Signal::KILL, None)] {
        let args = ["pipeline", "run", "p.yaml", "--out", out, "--json"];
        let mut child = place.command(&args).spawn().expect("started");
        while checkpoints(&place.path().join(out)) == 0 {
            assert_eq!(
                child.try_wait().expect("a child"),
                None,
                "it ended before its first checkpoint"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        send(&child, signal);
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), code, "{}", String::from_utf8_lossy(&ended.stderr));
        if code.is_some() {
            let line = String::from_utf8_lossy(&ended.stdout).into_owned();
            let summary: Value = serde_json::from_str(line.trim()).expect("one object");
            assert_eq!(summary["state"], "interrupted");
        }
        let again = place.ok(&args).json();
        assert_eq!((ran(&again), &again["state"]), (vec!["fit", "test"], &json!("completed")));
        assert_eq!(&step(&again, "fit")["outputs"]["weights_hash"], expected, "{out}");
        let log = fs::read_to_string(place.path().join(out).join("logs/fit.log")).expect("a log");
        assert!(log.contains("checkpoint"), "it did not go on: {log}");
    }
}

/// A run knows its folder by the one path that has neither links nor `..`.
#[test]
fn a_training_is_found_whatever_the_folder_is_called() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(100));
    place.write("x.yaml", &TRAINING.replace("batches: 6000", "batches: 20"));
    place.write("p.yaml", CUT_OFF);
    fs::create_dir(place.path().join("inner")).expect("made");
    std::os::unix::fs::symlink(place.path(), place.path().join("link")).expect("a link");
    let both = vec!["fit", "test"];
    let outs = [("inner/../kept", both.clone()), ("link/kept", Vec::new()), ("link/new", both)];
    for (out, expected) in outs {
        let args = ["pipeline", "run", "p.yaml", "--out", out, "--json"];
        assert_eq!(ran(&place.ok(&args).json()), expected, "{out}");
        assert_eq!(ran(&place.ok(&args).json()), [""; 0], "{out}");
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("signalled");
}

/// Checkpoints of a run that is not over.
fn checkpoints(out: &Path) -> usize {
    let below = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).map_or(Vec::new(), |all| all.flatten().map(|e| e.path()).collect())
    };
    let keys = below(&out.join("unfinished")).into_iter();
    let runs = keys.flat_map(|key| below(&key.join("runs")));
    let checkpoints = runs.flat_map(|run| below(&run.join("checkpoints")));
    checkpoints.filter(|checkpoint| checkpoint.join("manifest.json").exists()).count()
}
