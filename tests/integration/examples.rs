//! The examples that users start from.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use model_zoo::ring_gan::RingGan;
use salamander::prelude::Rng;
use salamander_core::experiment::Experiment;
use salamander_train::checkpoint::{CheckpointStore, Which};
use salamander_train::model::build;
use salamander_train::params;

use crate::support::Workplace;

fn zoo(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo").join(path)
}

/// Two optimizers: the generator must have learned where the ring is.
#[test]
fn the_gan_puts_points_on_the_ring() {
    let place = Workplace::new();
    let summary = place.train(&[&zoo("gan/ring_gan.yaml").display().to_string()]);
    assert!(summary["metrics"]["training"]["generator_loss"].is_number(), "{summary}");
    assert!(summary["metrics"]["training"]["discriminator_loss"].is_number(), "{summary}");

    let folder = Path::new(summary["dir"].as_str().expect("a folder")).join("checkpoints");
    let checkpoint = CheckpointStore::find(&folder, &Which::Latest).expect("a checkpoint");
    let experiment = Experiment::parse(&checkpoint.experiment, &[]).expect("valid");
    let device = Device::flex();
    let fresh: RingGan = build(&experiment, &device.clone().autodiff()).expect("builds");
    let radius = |gan: &RingGan| {
        let points = gan.valid().sample(512, &mut Rng::new(9), &device);
        let points: Vec<f32> = points.into_data().iter::<f32>().collect();
        let radii = points.chunks(2).map(|at| f64::from(at[0].hypot(at[1])));
        let error: f64 = radii.map(|radius| (radius - 2.0).abs()).sum();
        error / 512.0
    };
    let before = radius(&fresh);
    let gan = params::write(fresh, checkpoint.state.model).expect("same shapes");
    let after = radius(&gan);
    assert!(after < 0.5 && after < before / 2.0, "off the ring by {before} before, {after} after");
}

#[test]
fn the_loop_written_by_hand_learns() {
    let place = Workplace::new();
    let (digits, out) = (zoo("mnist/data"), place.path().to_string_lossy());
    let result = model_zoo::own_loop::train(&digits.to_string_lossy(), &out, 1).expect("trains");
    let accuracy = result.validation.metrics.values()["accuracy"];
    assert!(accuracy > 0.85, "{accuracy}");
    let line = &result.ledger.lines()[0];
    assert_eq!((line.applied, line.missing, line.duplicated), (8000, 0, 0));
    assert!(place.path().join("model.safetensors").is_file());
}

/// From generated data to predictions, on files as Criteo has them: those to predict have no label, and their name
/// tells no format.
#[test]
fn a_recommender_predicts_files_without_labels() {
    let place = Workplace::new();
    place.ok(&[
        "data",
        "generate",
        "criteo",
        "--records",
        "640",
        "--values",
        "50",
        "--out",
        "train.txt",
    ]);
    let text = std::fs::read_to_string(place.path().join("train.txt")).expect("read");
    let unlabelled = text.lines().map(|line| &line[2..]).collect::<Vec<_>>().join("\n");
    place.write("test.txt", &unlabelled);
    let experiment = "entrypoint: deepfm\n\
                      data: {training: train.txt, validation: train.txt, format: criteo}\n\
                      hyperparameters: {global_batch_size: 64, dim: 4, hidden: [8]}\n\
                      searcher: {metric: auc, smaller_is_better: false, max_length: {epochs: 10}}\n\
                      reproducibility: {experiment_seed: 1}\n";
    let experiment = place.write("x.yaml", experiment).display().to_string();
    let summary = place.train(&[&experiment]);
    let auc = summary["metrics"]["validation"]["auc"].as_f64().expect("a number");
    // By heart: these are the records that it has learnt from.
    assert!(auc > 0.95, "{summary}");
    let run = summary["dir"].as_str().expect("a folder");
    place.ok(&["predict", run, "--data", "test.txt", "--out", "clicks.jsonl"]);
    let clicks = std::fs::read_to_string(place.path().join("clicks.jsonl")).expect("read");
    let scores: Vec<f64> = clicks
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|line| line["scores"][0].as_f64().expect("a number"))
        .collect();
    assert_eq!(scores.len(), 640);
    assert!(scores.iter().all(|score| (0.0..1.0).contains(score)), "probabilities");
    let labels = text.lines().map(|line| line.starts_with('1'));
    let right = labels.zip(&scores).filter(|(label, score)| (**score > 0.5) == *label).count();
    assert!(right > 600, "{right} of 640 predictions are those of the record in their place");
}

/// Every experiment file of the zoo is valid for its model, and the data that lies beside it is there.
#[test]
fn every_experiment_of_the_zoo_is_healthy() {
    let models = model_zoo::models();
    let files = experiments();
    assert!(files.len() >= 20, "{files:?}");
    for file in files {
        let name = file.display();
        let text = std::fs::read_to_string(&file).expect("an experiment");
        let mut experiment =
            Experiment::parse(&text, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let model = models.find(experiment.model()).unwrap_or_else(|e| panic!("{name}: {e}"));
        model.hparams_in_force(&experiment).unwrap_or_else(|e| panic!("{name}: {e}"));
        experiment.resolve_paths(file.parent().expect("a folder"));
        let data = &experiment.data;
        for path in data.training.0.iter().chain(&data.validation.0) {
            assert!(is_made(&text, path) || Path::new(path).is_file(), "{name}: no {path}");
        }
    }
}

/// The experiment files of the zoo. In `flow` are pipelines, whose steps and `${..}` are settled when they run: tests
/// of pipelines and flows read them.
fn experiments() -> Vec<std::path::PathBuf> {
    let listed = |folder: &Path| -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let folders = listed(&zoo("")).into_iter().filter(|path| path.is_dir());
    let folders = folders.filter(|path| !path.ends_with("flow"));
    let files = folders.flat_map(|folder| listed(&folder));
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files
}

/// Whether data is no part of the repository, and so may be absent: it is fetched, generated or brought into the
/// folder `data` of the root, which git ignores, or made by a command at the head of the file.
fn is_made(experiment: &str, path: &str) -> bool {
    let head = experiment.lines().take_while(|line| line.starts_with('#'));
    let mut commands = head.filter(|line| line.contains("salamander data "));
    path.contains("../../data/") || commands.any(|line| line.contains("--out model_zoo/"))
}
