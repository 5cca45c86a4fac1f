//! Weights in and out: export, Python, PyTorch.

use std::path::Path;
use std::process::Command;

use crate::support::{Workplace, points_csv, python};

fn trained(place: &Workplace, sets: &[&str]) -> String {
    place.write("points.csv", &points_csv(100));
    let text = "entrypoint: points\ndata: {training: points.csv, validation: points.csv}\n\
                searcher: {max_length: {epochs: 3}}\nreproducibility: {experiment_seed: 1}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let mut args = vec![file.as_str()];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    place.train(&args)["dir"].as_str().expect("a folder").to_string()
}

fn predictions(place: &Workplace, run: &str, out: &str) -> String {
    let data = place.path().join("points.csv").display().to_string();
    place.ok(&["predict", run, "--data", &data, "--out", out, "--checkpoint", "latest"]);
    std::fs::read_to_string(place.path().join(out)).expect("predictions")
}

#[test]
fn an_exported_model_gives_the_same_outputs() {
    let place = Workplace::new();
    let run = trained(&place, &[]);
    place.ok(&["export", &run, "--out", "exported", "--checkpoint", "latest"]);
    let exported = place.path().join("exported").display().to_string();
    assert_eq!(predictions(&place, &run, "a.csv"), predictions(&place, &exported, "b.csv"));
}

#[test]
fn exported_weights_load_in_python_under_their_paths() {
    let Some(python) = python("exported_weights_load_in_python", "safetensors, numpy") else {
        return;
    };
    let place = Workplace::new();
    let run = trained(&place, &[]);
    place.ok(&["export", &run, "--out", "exported", "--checkpoint", "latest"]);
    let script = "\
import sys, csv, numpy
from safetensors.numpy import load_file
w = load_file('exported/model.safetensors')
assert sorted(w) == ['fc1.bias', 'fc1.weight', 'fc2.bias', 'fc2.weight'], sorted(w)
rows = list(csv.DictReader(open('points.csv')))
x = numpy.array([[float(r['x']), float(r['y'])] for r in rows], dtype=numpy.float32)
h = numpy.maximum(x @ w['fc1.weight'] + w['fc1.bias'], 0)
y = h @ w['fc2.weight'] + w['fc2.bias']
ours = numpy.array([[float(r['score_0']), float(r['score_1'])] for r in csv.DictReader(open('a.csv'))])
assert numpy.abs(y - ours).max() < 1e-5, numpy.abs(y - ours).max()
";
    predictions(&place, &run, "a.csv");
    let ended = Command::new(python).arg("-c").arg(script).current_dir(place.path()).output();
    let ended = ended.expect("python starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// `fixtures/points.pt` and `points.safetensors` were written by PyTorch
/// (`benches/peers/points_fixture.py`), and so were the outputs.
#[test]
fn weights_of_pytorch_give_pytorchs_outputs() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let outputs = std::fs::read(fixtures.join("points_outputs.json")).expect("outputs");
    let outputs: Vec<f64> = serde_json::from_slice(&outputs).expect("numbers");
    for file in ["points.pt", "points.safetensors"] {
        let place = Workplace::new();
        let start = format!("start_from={}", fixtures.join(file).display());
        // A learning rate of zero: what comes out is what went in.
        let run = trained(&place, &[&start, "hyperparameters.learning_rate=0"]);
        place.write("points.csv", "x,y\n0.5,-1.0\n-0.25,2.0\n");
        let text = predictions(&place, &run, "out.csv");
        assert!(text.starts_with("record,prediction,label,score_0,score_1,"), "{text}");
        let scores: Vec<f64> = text
            .lines()
            .skip(1)
            .flat_map(|line| line.split(',').skip(3).take(2))
            .map(|score| score.parse().expect("a number"))
            .collect();
        for (ours, torch) in scores.iter().zip(&outputs) {
            assert!((ours - torch).abs() < 1e-6, "{file}: {ours}, not {torch}");
        }
        assert_eq!(scores.len(), outputs.len());
    }
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let place = Workplace::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/points.safetensors");
    place.write("points.csv", &points_csv(10));
    let text = format!(
        "entrypoint: points\ndata: {{training: points.csv}}\nstart_from: {}\n\
         hyperparameters: {{hidden: 5}}\n",
        fixtures.display()
    );
    let file = place.write("x.yaml", &text).display().to_string();
    let ended = place.run(&["train", &file]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("fc1.weight"), "{}", ended.err());
}
