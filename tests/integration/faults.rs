//! Wrong files, wrong fields, no room: the right result or a clear error, and nothing lost.

use std::path::Path;
use std::process::Command;

use crate::support::{Workplace, digits, digits_experiment, may_change_host, points_csv, skip};

/// Trains on 100 points with `rest` added to the experiment; it must fail with this text.
fn check(rest: &str, sets: &[&str], expected: &str) {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(100));
    let text = format!("entrypoint: points\ndata:\n  training: points.csv\n{rest}");
    let file = place.write("x.yaml", &text).display().to_string();
    let mut args = vec!["train", &file];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let ended = place.run(&args);
    assert!(!ended.0.status.success(), "{rest} must fail");
    assert!(ended.err().contains(expected), "for {rest:?}: {}", ended.err());
    assert!(!ended.err().contains("panicked"), "{}", ended.err());
}

#[test]
fn wrong_experiments_are_named() {
    check(
        "stratgy: local\n",
        &[],
        "line 4: unknown field \"stratgy\" (did you mean \"strategy\"?)",
    );
    check(
        "hyperparameters: {learning_rat: 1}\n",
        &[],
        "unknown field \"learning_rat\" in hyperparameters (did you mean \"learning_rate\"?)",
    );
    check("hyperparameters: {learning_rate: -1}\n", &[], "-1 is outside of 0 to any");
    check("searcher: {metric: accuray}\n", &["data.validation=points.csv"], "\"accuray\"");
    check("device: gpu\n", &[], "device \"gpu\" is not known");
    check("device: cuda\n", &[], "cuda is not compiled in");
    check("", &["entrypoint=poinst"], "did you mean \"points\"?");
    check("", &["data.training=missing.csv"], "missing.csv");
    check("", &["data.training=[]"], "data.training: name the files");
    check("start_from: nothing.safetensors\n", &[], "there is no such file");
    check("optimizations: {aggregation_frequency: 0}\n", &[], "must be at least 1");
    check("workers: 4\nstrategy: local\n", &[], "one process");
    check("workers: 2\nstrategy: allreduce\n", &["data.training=missing.csv"], "missing.csv");
    check("hyperparameters: {learning_rate: 1.0e+30}\n", &[], "the loss is not a number at epoch");
}

#[test]
fn an_experiment_that_is_not_there_is_named() {
    let place = Workplace::new();
    let ended = place.run(&["train", "nothing.yaml"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("nothing.yaml"), "{}", ended.err());
}

#[test]
fn an_empty_dataset_is_refused() {
    let place = Workplace::new();
    place.write("empty.csv", "x,y,side\n");
    let text = "entrypoint: points\ndata: {training: empty.csv}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let ended = place.run(&["train", &file]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("no records in") && ended.err().contains("empty.csv"));
    assert!(!place.path().join("runs").exists(), "no run was begun");
}

#[test]
fn short_batches_count_every_record_once() {
    for (records, batch, steps) in [(5, 64, 2), (65, 64, 4), (64, 64, 2), (7, 3, 6)] {
        let place = Workplace::new();
        place.write("points.csv", &points_csv(records));
        let text = format!(
            "entrypoint: points\ndata: {{training: points.csv}}\n\
             hyperparameters: {{global_batch_size: {batch}}}\n\
             searcher: {{max_length: {{epochs: 2}}}}\n"
        );
        let file = place.write("x.yaml", &text).display().to_string();
        let summary = place.train(&[&file]);
        assert_eq!(summary["steps"], steps, "{records} records, batch {batch}");
        for line in summary["ledger"].as_array().expect("a list") {
            assert_eq!(line["applied"], records);
            assert_eq!(line["missing"], 0);
        }
    }
}

#[test]
fn a_bad_record_fails_the_run_or_is_skipped_and_counted() {
    let place = Workplace::new();
    let text = points_csv(50).replacen("\n", "\nnonsense,0,1\n", 1);
    place.write("points.csv", &text);
    let text = "entrypoint: points\ndata: {training: points.csv}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let ended = place.run(&["train", &file]);
    assert_eq!(ended.code(), Some(1));
    let error = ended.err();
    assert!(error.contains("points.csv") && error.contains("nonsense"), "{error}");
    let summary = place.train(&[&file, "--set", "data.on_bad_record=skip"]);
    let line = &summary["ledger"][0];
    assert_eq!((line["applied"].as_u64(), line["skipped"].as_u64()), (Some(50), Some(1)));
    assert_eq!(line["intact"], true);
}

#[test]
fn a_flipped_bit_in_the_data_is_named() {
    let place = Workplace::new();
    let mut bytes = std::fs::read(digits("mnist-valid.recordio")).expect("the zoo's data");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(place.path().join("broken.recordio"), bytes).expect("written");
    let text = digits_experiment("mnist_mlp", "");
    let file = place.write("x.yaml", &text).display().to_string();
    let ended = place.run(&["train", &file, "--set", "data.training=broken.recordio"]);
    assert_eq!(ended.code(), Some(1));
    let error = ended.err();
    assert!(error.contains("broken.recordio") && error.contains("chunk 2"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(10));
    place.write("file", "in the way");
    let text = "entrypoint: points\ndata: {training: points.csv}\n";
    let file = place.write("x.yaml", text).display().to_string();
    let ended = place.run(&["train", &file, "--out", "file/runs"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("cannot make a run's folder in file/runs"), "{}", ended.err());
}

/// A file system of a few megabytes, gone at the end.
pub(crate) struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    pub(crate) fn mount(at: &Path) -> Option<SmallDisk<'_>> {
        Self::mount_of(at, "1300k")
    }

    pub(crate) fn mount_of<'a>(at: &'a Path, size: &str) -> Option<SmallDisk<'a>> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_the_last_checkpoint() {
    let place = Workplace::new();
    let small = place.path().join("small");
    std::fs::create_dir(&small).expect("a folder");
    if !may_change_host("a_full_disk_ends_the_run") {
        return;
    }
    let Some(_disk) = SmallDisk::mount(&small) else {
        return skip("a_full_disk_ends_the_run", "tmpfs cannot be mounted here (needs root)");
    };
    // Every checkpoint is kept, and each has some 200 KB: the disk is full after a few.
    let rest = "checkpoint_policy: all\nmin_validation_period: {batches: 4}\n\
                searcher: {max_length: {batches: 60}}\n";
    let text = digits_experiment("resilient", rest);
    let file = place.write("x.yaml", &text).display().to_string();
    let ended = place.run(&["train", &file, "--out", "small/runs", "--json"]);
    assert_eq!(ended.code(), Some(74), "{}", ended.err());
    assert!(ended.err().contains("No space left on device"), "{}", ended.err());
    let run = ended.json()["dir"].as_str().expect("a folder").to_string();
    let ledger = place.ok(&["ledger", &run]);
    assert!(ledger.out().contains("intact"), "the last whole checkpoint is there");
}

#[test]
fn a_label_that_is_no_class_ends_a_run_in_words() {
    let place = Workplace::new();
    let good = points_csv(100);
    let mut lines: Vec<&str> = good.lines().collect();
    lines[50] = "0.1,0.2,7";
    place.write("points.csv", &(lines.join("\n") + "\n"));
    let text = "entrypoint: points\ndata: {training: points.csv}\n\
                hyperparameters: {global_batch_size: 10}\nreproducibility: {experiment_seed: 1}\n";
    let file = place.write("x.yaml", text).display().to_string();
    for workers in [&[][..], &["--workers", "2"]] {
        let ended = place.run(&[&["train", &file][..], workers].concat());
        let told = ended.err();
        assert_ne!(ended.code(), Some(0), "{workers:?}: {told}");
        assert!(told.contains("label 7 is not one of 2 classes"), "{workers:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("6 times"), "{workers:?}: {told}");
    }
}
