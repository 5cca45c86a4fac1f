//! Experiment files of the seed documents and of people who mistype.

use super::*;
use crate::loss_scale::LossScale;

fn json(node: &Node) -> serde_json::Value {
    yaml::from_node(node).expect("any value is JSON")
}

/// As it stands in Determined's MNIST tutorial.
const MNIST: &str = "\
description: mnist_pytorch_const
hyperparameters:
    learning_rate: 0.001
    dropout: 0.5
    global_batch_size: 64
    n_filters1: 40
    n_filters2: 40
searcher:
    name: single
    metric: validation_error
    max_steps: 20
    smaller_is_better: true
entrypoint: model_def:MNistTrial
";

/// As it stands in Determined's porting tutorial; the zoo's tests train it.
const IMAGENET: &str = include_str!("imagenet_tutorial.yaml");

#[test]
fn the_oldest_dialect_reads() {
    let experiment = Experiment::parse(MNIST, &[]).expect("valid");
    assert_eq!(experiment.length(), Length::Batches(2000));
    assert_eq!(experiment.global_batch, 64);
    assert_eq!(experiment.metric(), "error");
    assert_eq!(experiment.model(), Some("MNistTrial"));
    assert_eq!(experiment.max_restarts.0, 5);
}

#[test]
fn the_middle_dialect_reads() {
    let experiment = Experiment::parse(IMAGENET, &[]).expect("valid");
    assert_eq!(experiment.length(), Length::Epochs(10));
    assert_eq!(experiment.metric(), "loss");
    assert!(!experiment.searcher.smaller_is_better);
    assert_eq!(experiment.max_restarts.0, 0);
    assert_eq!(experiment.records_per_epoch, 60_000);
    assert_eq!(experiment.hyperparameters.get("weight_decay").map(json), Some(1e-4.into()));
}

#[test]
fn the_newest_dialect_reads() {
    let text = "searcher: {name: single, metric: loss, time_metric: epochs, max_time: 3}";
    let experiment = Experiment::parse(text, &[]).expect("valid");
    assert_eq!(experiment.length(), Length::Epochs(3));
}

fn check(text: &str, sets: &[&str], expected: &str) {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    let error = Experiment::parse(text, &sets).expect_err(expected).to_string();
    assert_eq!(error, expected, "for {text:?} {sets:?}");
}

#[test]
fn mistakes_are_named() {
    check(
        "hyperparamters:\n  a: 1",
        &[],
        "line 1: unknown field \"hyperparamters\" (did you mean \"hyperparameters\"?)",
    );
    check(
        "name: x\nsearcher:\n  max_lenght: {epochs: 1}",
        &[],
        "line 3: unknown field \"max_lenght\" in searcher (did you mean \"max_length\"?)",
    );
    check(
        "searcher: {max_length: {epoch: 1}}",
        &[],
        "line 1: searcher.max_length: \"epoch\" is not known here (did you mean \"epochs\"?)",
    );
    check(
        "strategy: ring",
        &[],
        "line 1: strategy: \"ring\" is not known here (one of: local, allreduce, ps, hybrid)",
    );
    check(
        "searcher:\n  name: grid",
        &[],
        "line 2: searcher.name: grid is a search, and one trial is needed here: write \"single\" \
         (`salamander train` and `preview-search` take searches)",
    );
    check(
        "",
        &["hyperparameters.global_batch_size=0"],
        "--set hyperparameters.global_batch_size=0: hyperparameters.global_batch_size: \
         a batch needs at least one record",
    );
    check("workers: {min: 3, max: 2}", &[], "line 1: workers: needs 1 <= min <= max");
    check(
        "data: {training: 3}",
        &[],
        "line 1: data.training: invalid type: integer `3`, expected a path or a list of paths",
    );
    check(
        "data:\n  columns: {text: review, title: review}",
        &[],
        "line 2: data.columns: a column of the files can have one name only",
    );
}

#[test]
fn the_silence_of_who_writes_is_a_time() {
    check(
        "data:\n  stream: true\n  stream_timeout: 0",
        &[],
        "line 3: data.stream_timeout: write seconds above 0",
    );
}

#[test]
fn types_are_scaled_as_they_need() {
    let scaling = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        Experiment::parse("", &sets).expect("valid").optimizations.scaling()
    };
    let (f16, scale) = ("optimizations.mixed_precision=f16", "optimizations.loss_scale");
    assert_eq!(scaling(&[]), None);
    assert_eq!(scaling(&["optimizations.mixed_precision=bf16"]), None);
    assert_eq!(scaling(&[f16]), Some(LossScale::default()));
    let given = format!("{scale}={{initial: 2}}");
    let expected = Some(LossScale { initial: 2.0, ..LossScale::default() });
    assert_eq!(scaling(&[f16, &given]), expected);
    assert_eq!(scaling(&["optimizations.mixed_precision=O1", &given]), expected);
    check(
        "optimizations: {loss_scale: {initial: 2}}",
        &[],
        "line 1: optimizations.loss_scale: f32 needs none; leave it out, or write \
         optimizations.mixed_precision: f16",
    );
    check(
        "optimizations:\n  mixed_precision: f16\n  loss_scale: {initial: 3}",
        &[],
        "line 3: optimizations.loss_scale: initial: write a power of two from 0.0009765625 to 16777216",
    );
    check(
        "strategy: ps\noptimizations: {mixed_precision: f16}",
        &[],
        "line 2: optimizations.mixed_precision: with strategy ps there is no common step to skip: write \
         bf16 without loss_scale, or use strategy hybrid or allreduce",
    );
}

#[test]
fn what_is_in_force_reads_back() {
    let sets = [
        "workers=2",
        "data.training=[a.csv, s3://b/c.csv]",
        "data.columns={text: review, label: stars}",
        "clip={norm: 1.0}",
        "schedule={warmup: 5}",
    ];
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    let mut experiment = Experiment::parse(MNIST, &sets).expect("valid");
    experiment.resolve_paths(Path::new("/somewhere"));
    assert_eq!(experiment.data.training.0, ["/somewhere/a.csv", "s3://b/c.csv"]);
    let yaml = experiment.to_yaml(&json(&experiment.hyperparameters));
    let again = Experiment::parse(&yaml, &[]).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    assert_eq!(*again, *experiment);
    assert_eq!(json(&again.hyperparameters), json(&experiment.hyperparameters));
}

#[test]
fn the_schema_knows_every_field() {
    let schema = schema();
    let fields = schema["properties"].as_object().expect("an object");
    for field in ["data", "searcher", "hyperparameters", "optimizations", "workers"] {
        assert!(fields.contains_key(field), "{field}");
    }
    assert_eq!(schema["additionalProperties"], false);
}
