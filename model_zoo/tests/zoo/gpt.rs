//! The GPT learns: a text that repeats itself is soon guessed, and gone on with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model_zoo::text::gpt::GptBytes;
use salamander::models::gpt::Sampling;
use salamander::run::{Overrides, Program, Which};
use salamander_core::experiment::Experiment;
use salamander_train::device;
use salamander_train::trainer::Setup;

use crate::program::{salamander, summary};

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
        kept_data: Default::default(),
    };
    let models = model_zoo::models();
    let model = models.find(Some("gpt_bytes")).expect("a model");
    let trained = model.train(setup, None, Vec::new()).expect("trains");
    let found = trained.progress.validation.expect("validates").values();
    // The first bytes of a passage can only be guessed; always the most frequent one is right one time in five.
    assert!(found["loss"] < 1.0 && found["accuracy"] > 0.5, "{found:?}");
}

/// Losses of a few steps in bf16 go down as those in f32 do: tables, attention and the products are computed in it, and
/// the weights stay in f32.
#[test]
fn the_gpt_learns_in_bf16() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = |at: usize| format!("{{\"text\": \"{}\"}}\n", &"abcde".repeat(6)[at % 5..]);
    let lines: String = (0..32).map(line).collect();
    std::fs::write(folder.path().join("passages.jsonl"), lines).expect("written");
    let text = "entrypoint: gpt_bytes\ndata: {training: passages.jsonl, validation: passages.jsonl}\n\
                micro_batches: 2\n\
                hyperparameters: {global_batch_size: 8, learning_rate: 0.01, warmup: 2, width: 16, heads: 2, \
                layers: 1, dropout: 0.0}\n\
                reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 60}}\n";
    std::fs::write(folder.path().join("x.yaml"), text).expect("written");
    let loss = |precision: &str| {
        let set = format!("optimizations.mixed_precision={precision}");
        let args = ["train", "x.yaml", "--json", "--set", &set];
        let summary = summary(&salamander(folder.path(), &args).expect("trains"));
        summary["metrics"]["validation"]["loss"].as_f64().unwrap_or_else(|| panic!("{summary}"))
    };
    let [plain, mixed] = ["f32", "bf16"].map(loss);
    // A byte is one of 256, of which five occur.
    assert!(plain < 1.6 && (mixed - plain).abs() < 0.3, "{plain} in f32, {mixed} in bf16");
}

#[test]
fn a_trained_gpt_goes_on_with_a_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let letters = "abcdefghij".repeat(3);
    let line = |at: usize| format!("{{\"text\": \"{}\"}}\n", &letters[at % 10..]);
    let lines: String = (0..64).map(line).collect();
    std::fs::write(folder.path().join("passages.jsonl"), lines).expect("written");
    let text = "entrypoint: gpt_bytes\n\
                data: {training: passages.jsonl, validation: passages.jsonl}\n\
                hyperparameters: {global_batch_size: 16, learning_rate: 0.01, warmup: 5, width: 32, heads: 2, \
                layers: 1, dropout: 0.0}\n\
                reproducibility: {experiment_seed: 1}\nsearcher: {max_length: {batches: 200}}\n";
    let file = folder.path().join("gpt.yaml");
    std::fs::write(&file, text).expect("written");
    let program = Program::enter(model_zoo::models());
    let draft = program.experiment(&file, &Overrides::default(), folder.path().join("runs"));
    let finished = draft.expect("a draft").start().expect("starts").wait().expect("trains");
    let trained = program.load(finished.run.folder(), &Which::Best, "cpu").expect("loads");
    let gpt = GptBytes::trained(&trained, &folder.path().join("exported")).expect("a GPT");

    let likely = Sampling { temperature: 0.0, top_k: None, count: 12 };
    let found = gpt.go_on("abcde", likely, 1).expect("goes on");
    assert_eq!(found, "abcdefghijabcdefg");
    assert_eq!(gpt.go_on("abcde", likely, 2), Ok(found), "the most likely ones need no luck");
    let drawn = Sampling { temperature: 2.0, ..likely };
    assert_eq!(gpt.go_on("cde", drawn, 7), gpt.go_on("cde", drawn, 7), "by the seed alone");
    assert!(gpt.go_on("", likely, 1).expect_err("nothing to go on with").contains("at least one"));
}
