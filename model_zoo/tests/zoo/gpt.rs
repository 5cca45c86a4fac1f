//! The GPT learns: a text that repeats itself is soon guessed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use salamander_core::experiment::Experiment;
use salamander_train::device;
use salamander_train::trainer::Setup;

#[test]
fn the_gpt_learns_a_text_that_repeats_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("passages.jsonl");
    let line = |at: usize| {
        format!("{{\"text\": \"{}\"}}\n", &"to be or not to be, ".repeat(3)[at % 20..40])
    };
    std::fs::write(&file, (0..64).map(line).collect::<String>()).expect("written");
    let text = format!(
        "entrypoint: gpt_bytes\ndata: {{training: \"{0}\", validation: \"{0}\"}}\nmicro_batches: 2\n\
         hyperparameters: {{global_batch_size: 16, learning_rate: 0.01, warmup: 5, width: 32, heads: 2, \
         layers: 1, dropout: 0.0}}\n\
         reproducibility: {{experiment_seed: 1}}\ncheckpoint_policy: none\n\
         searcher: {{max_length: {{batches: 300}}}}\n",
        file.display()
    );
    let setup = Setup {
        experiment: Experiment::parse(&text, &[]).expect("valid"),
        folder: folder.path().join("run"),
        device: device::select("cpu").expect("a device"),
        stop: Arc::new(AtomicBool::new(false)),
    };
    let models = model_zoo::models();
    let model = models.find(Some("gpt_bytes")).expect("a model");
    let trained = model.train(setup, None, Vec::new()).expect("trains");
    let found = trained.progress.validation.expect("validates").values();
    // The first bytes of a passage can only be guessed; always the most frequent one is right one time in five.
    assert!(found["loss"] < 1.0 && found["accuracy"] > 0.5, "{found:?}");
}
