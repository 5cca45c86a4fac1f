//! A recommender learns, and with `cargo xtask test --all` every one does (`long::recommenders`): trained for some
//! hundred steps on a world whose truth is known, it comes near what the truth itself reaches on other records of
//! that world.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use salamander_core::experiment::Experiment;
use salamander_data::generate::{Census, Reachable, World};
use salamander_data::sink;
use salamander_train::device;
use salamander_train::trainer::Setup;

const VALIDATED: u64 = 8_000;

/// Writes a range of a world's records in the format of its public file, and says what can be reached on them.
fn write(world: &dyn World, records: std::ops::Range<u64>, path: &Path) -> Reachable {
    let mut file = sink::create(path, world.format()).expect("a file");
    let mut reachable = Reachable::default();
    for record in records {
        let drawn = world.draw(record);
        file.write(&drawn.row(world)).expect("written");
        reachable.observe(&drawn);
    }
    file.finish().expect("written");
    reachable
}

fn experiment(model: &str, world: &dyn World, files: [&PathBuf; 2], rest: &str) -> Experiment {
    let [training, validation] = files.map(|file| file.display());
    let text = format!(
        "entrypoint: {model}\n\
         data: {{training: \"{training}\", validation: \"{validation}\", format: {}}}\n\
         reproducibility: {{experiment_seed: 1}}\n\
         checkpoint_policy: none\n{rest}",
        world.format()
    );
    Experiment::parse(&text, &[]).expect("valid")
}

/// Trains on so many records; of what lies between guessing (an AUC of 0.5) and the truth, the model must reach this
/// share.
pub(crate) fn check(model: &str, world: &dyn World, records: u64, rest: &str, share: f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let (training, validation) = (folder.path().join("train"), folder.path().join("valid"));
    write(world, 0..records, &training);
    let reachable = write(world, records..records + VALIDATED, &validation);
    let setup = Setup {
        experiment: experiment(model, world, [&training, &validation], rest),
        folder: folder.path().join("run"),
        device: device::select("cpu").expect("a device"),
        stop: Arc::new(AtomicBool::new(false)),
        kept_data: Default::default(),
    };
    let models = model_zoo::models();
    let trained = models.find(Some(model)).expect("a model").train(setup, None, Vec::new());
    let validated = trained.expect("trains").progress.validation.expect("validates").values();
    let (auc, log_loss) = (validated["auc"], validated["log_loss"]);
    let reached = (auc - 0.5) / (reachable.auc() - 0.5);
    println!(
        "{model}: AUC {auc:.4} of {:.4} ({:.0} %), log-loss {log_loss:.4} of {:.4}",
        reachable.auc(),
        100.0 * reached,
        reachable.log_loss()
    );
    assert!(reached > share, "{model} reached {reached:.3} of what the truth does, not {share}");
    assert!(reached < 1.05, "{model} is better than the truth: {reached:.3}");
    assert!((log_loss - validated["loss"]).abs() < 1e-6, "the loss is the log-loss");
}

#[test]
fn wide_and_deep_learns_incomes() {
    let hp = "hyperparameters: {global_batch_size: 128}\nsearcher: {max_length: {epochs: 1}}\n";
    check("wide_deep", &Census::new(1), 40_000, hp, 0.9);
}
