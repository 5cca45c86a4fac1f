//! `salamander export --format onnx`: what onnxruntime makes of a trained model is what `predict` writes.

#[path = "../../../crates/salamander-models/tests/models/onnxruntime.rs"]
mod onnxruntime;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use salamander_data::{Dataset, open};
use serde_json::{Value as Json, json};

use crate::program::{salamander as run, summary};

fn zoo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Trains for a moment; returns the run.
fn train(folder: &Path, experiment: &str, sets: &[&str]) -> String {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = ["train", experiment, "--json"].into_iter().chain(sets).collect();
    let summary = summary(&run(folder, &args).expect("trains"));
    summary["dir"].as_str().expect("a folder").to_string()
}

/// Exports a run and asks onnxruntime; the outputs, and what the file says of itself.
fn onnx(
    folder: &Path,
    run_folder: &str,
    inputs: &Json,
) -> Option<(BTreeMap<String, Vec<f32>>, Json)> {
    run(
        folder,
        &["export", run_folder, "--format", "onnx", "--out", "exported", "--checkpoint", "latest"],
    )
    .expect("exported");
    let script = zoo("../crates/salamander-models/tests/fixtures/run_onnx.py");
    let mut found = onnxruntime::outputs(&script, &folder.join("exported/model.onnx"), inputs)?;
    let said = found["said"].take();
    Some((serde_json::from_value(found["outputs"].take()).expect("outputs"), said))
}

/// What `predict` writes of a file: a list of each record.
fn predicted(folder: &Path, run_folder: &str, data: &str, field: &str) -> Vec<f32> {
    let args =
        ["predict", run_folder, "--data", data, "--out", "p.jsonl", "--checkpoint", "latest"];
    run(folder, &args).expect("predicted");
    let text = fs::read_to_string(folder.join("p.jsonl")).expect("written");
    let row = |line: &str| -> Vec<f32> {
        let line: Json = serde_json::from_str(line).expect("JSON");
        serde_json::from_value(line[field].clone()).unwrap_or_else(|_| panic!("{field}: {line}"))
    };
    text.lines().flat_map(row).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4 * largest, "{what}: {found} and {expected}");
    }
}

#[test]
fn networks_of_digits_are_what_predict_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let valid = zoo("mnist/data/mnist-valid.recordio");
    let dataset =
        Dataset::new(Arc::from(open(std::slice::from_ref(&valid), None).expect("opened")));
    let dataset = dataset.expect("a dataset");
    let mut pixels: Vec<f32> = Vec::new();
    let few: Vec<u64> = (0..40).collect();
    let mut file = salamander_data::sink::create(
        &folder.path().join("few.recordio"),
        salamander_data::Format::RecordIo,
    )
    .expect("a file");
    dataset
        .read(&few, &mut |_, row| {
            pixels.extend(row.bytes("image")?.iter().map(|byte| f32::from(*byte) / 255.0));
            file.write(&row)
        })
        .expect("read");
    file.finish().expect("finished");
    let image = json!({"shape": [40, 1, 28, 28], "type": "float32", "values": pixels});
    for model in ["mlp", "mnist", "conv32", "filters"] {
        let file = zoo(&format!("mnist/{model}.yaml")).display().to_string();
        let short =
            ["searcher.max_steps=", "searcher.max_length={batches: 10}", "data.validation=[]"];
        let run_folder = train(folder.path(), &file, &short);
        let Some((found, said)) = onnx(folder.path(), &run_folder, &json!({ "image": image }))
        else {
            return;
        };
        let probabilities = predicted(folder.path(), &run_folder, "few.recordio", "scores");
        assert_close(&found["probabilities"], &probabilities, model);
        // A model may give logarithms of probabilities, which are logits too, up to a constant.
        if ["mlp", "mnist"].contains(&model) {
            let logits = predicted(folder.path(), &run_folder, "few.recordio", "logits");
            assert_close(&found["logits"], &logits, model);
        }
        assert!(said["preprocessing"].as_str().is_some_and(|said| said.contains("255")), "{said}");
    }
}

#[test]
fn pictures_flowers_and_refusals() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    // Flowers, whose classes have names.
    let line = |at: usize| {
        let (name, size) = [("setosa", 1.0), ("versicolor", 4.0), ("virginica", 6.0)][at % 3];
        format!("{},{},{size},{},{name}\n", 5.0 + 0.1 * (at % 7) as f32, 3.0, size / 3.0)
    };
    let head = "sepal_length,sepal_width,petal_length,petal_width,species\n";
    let text = format!("{head}{}", (0..60).map(line).collect::<String>());
    fs::write(folder.join("flowers.csv"), &text).expect("written");
    let lengths: Vec<f32> = text
        .lines()
        .skip(1)
        .flat_map(|line| {
            line.split(',')
                .take(4)
                .map(|cell| cell.parse().expect("a number"))
                .collect::<Vec<f32>>()
        })
        .collect();
    let sets =
        ["data.training=flowers.csv", "data.validation=[]", "searcher.max_length={epochs: 2}"];
    let sets = sets
        .map(|set| set.replace("flowers.csv", &folder.join("flowers.csv").display().to_string()));
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let run_folder = train(folder, &zoo("tabular/iris.yaml").display().to_string(), &sets);
    let inputs = json!({"lengths": {"shape": [60, 4], "type": "float32", "values": lengths}});
    let Some((found, said)) = onnx(folder, &run_folder, &inputs) else { return };
    let logits = predicted(folder, &run_folder, "flowers.csv", "logits");
    assert_close(&found["logits"], &logits, "iris");
    assert_eq!(said["classes"], "[\"setosa\",\"versicolor\",\"virginica\"]");
    let predictions = fs::read_to_string(folder.join("p.jsonl")).expect("written");
    let first: Json =
        serde_json::from_str(predictions.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["label"], first["prediction"], "{first}");

    // Pictures, with running values that training has moved.
    for (skip, records, out) in [("0", "40", "data_batch_1.bin"), ("40", "8", "test_batch.bin")] {
        let args =
            ["data", "generate", "cifar", "--skip", skip, "--records", records, "--out", out];
        run(folder, &args).expect("generated");
    }
    let bytes = fs::read(folder.join("test_batch.bin")).expect("written");
    let pixels = bytes.chunks(3073).flat_map(|record| record[1..].iter());
    let pixels: Vec<f32> = pixels.map(|byte| f32::from(*byte) / 255.0).collect();
    let inputs = json!({"image": {"shape": [8, 3, 32, 32], "type": "float32", "values": pixels}});
    let training = format!("data.training={}", folder.join("data_batch_1.bin").display());
    for model in ["cnn", "mobilenet", "resnet20"] {
        let sets = [
            training.as_str(),
            "data.validation=[]",
            "hyperparameters.global_batch_size=10",
            "searcher.max_length={batches: 3}",
        ];
        let run_folder =
            train(folder, &zoo(&format!("cifar/{model}.yaml")).display().to_string(), &sets);
        let Some((found, _)) = onnx(folder, &run_folder, &inputs) else { return };
        let logits = predicted(folder, &run_folder, "test_batch.bin", "logits");
        assert_close(&found["logits"], &logits, model);
    }

    // What has no export says so.
    let text = "entrypoint: gpt_bytes\ndata: {training: passages.jsonl}\n\
                hyperparameters: {global_batch_size: 2, width: 16, heads: 2, layers: 1}\n\
                searcher: {max_length: {batches: 1}}\n";
    fs::write(folder.join("gpt.yaml"), text).expect("written");
    let passage = "{\"text\": \"to be or not to be\"}\n".repeat(4);
    fs::write(folder.join("passages.jsonl"), passage).expect("written");
    let run_folder = train(folder, "gpt.yaml", &[]);
    let error = run(folder, &["export", &run_folder, "--format", "onnx", "--out", "no"]);
    let error = error.expect_err("no such export");
    let expected =
        "there is no export as onnx: gpt_bytes has no other format than salamander's own";
    assert!(error.contains(expected), "{error}");
}
