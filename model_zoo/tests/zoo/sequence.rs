//! The encoder learns: trained for some hundred steps on sequences whose truth is known, it comes near what the truth
//! itself reaches on others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use salamander_core::experiment::Experiment;
use salamander_data::generate::{Reachable, Sequences, World};
use salamander_data::sink;
use salamander_train::device;
use salamander_train::trainer::Setup;

fn write(world: &Sequences, records: std::ops::Range<u64>, path: &Path) -> Reachable {
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

#[test]
fn the_encoder_learns_sequences() {
    let folder = tempfile::tempdir().expect("a folder");
    let (training, validation) = (folder.path().join("train.csv"), folder.path().join("valid.csv"));
    let world = Sequences::new(1);
    write(&world, 0..12_800, &training);
    let reachable = write(&world, 12_800..14_800, &validation);
    let text = format!(
        "entrypoint: sequence_encoder\n\
         data: {{training: \"{}\", validation: \"{}\"}}\n\
         reproducibility: {{experiment_seed: 1}}\n\
         hyperparameters: {{global_batch_size: 64, learning_rate: 0.003, width: 32, layers: 1, heads: 4}}\n\
         checkpoint_policy: none\nsearcher: {{max_length: {{epochs: 1}}}}\n",
        training.display(),
        validation.display()
    );
    let setup = Setup {
        experiment: Experiment::parse(&text, &[]).expect("valid"),
        folder: folder.path().join("run"),
        device: device::select("cpu").expect("a device"),
        stop: Arc::new(AtomicBool::new(false)),
        kept_data: Default::default(),
    };
    let models = model_zoo::models();
    let model = models.find(Some("sequence_encoder")).expect("a model");
    let trained = model.train(setup, None, Vec::new()).expect("trains");
    let auc = trained.progress.validation.expect("validates").values()["auc"];
    let reached = (auc - 0.5) / (reachable.auc() - 0.5);
    println!("AUC {auc:.4} of {:.4} ({:.0} %)", reachable.auc(), 100.0 * reached);
    assert!(reached > 0.6, "it reached {reached:.3} of what the truth does");
    assert!(reached < 1.05, "it is better than the truth: {reached:.3}");
}
