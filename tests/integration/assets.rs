//! Statistics and vocabularies belong to the run: a model means the same from its checkpoint and from its export,
//! wherever it is used, and a mistake in it is told before a run is made.

use std::fs;

use tests::people::people_csv;

use crate::support::{Workplace, weights_of};

const EXPERIMENT: &str = "entrypoint: people\n\
     data: {training: people.csv, validation: people.csv}\n\
     hyperparameters: {global_batch_size: 20}\n\
     reproducibility: {experiment_seed: 1}\n\
     searcher: {metric: accuracy, smaller_is_better: false, max_length: {epochs: 2}}\n";

/// An experiment in a folder of its own, with all that it needs beside it.
pub(crate) fn experiment(place: &Workplace) -> String {
    fs::create_dir_all(place.path().join("work/lists")).expect("made");
    place.write("work/people.csv", &people_csv(100));
    place.write("work/lists/cities.txt", "Bern\nChur\nUlm\n");
    let stats = place.ok(&["data", "inspect", "work/people.csv", "--stats", "--json"]).out();
    place.write("work/stats.json", &stats);
    place.write("work/x.yaml", EXPERIMENT).display().to_string()
}

fn predictions(place: &Workplace, model: &str) -> String {
    let data = place.path().join("people.csv").display().to_string();
    place.ok(&["predict", model, "--data", &data, "--out", "predicted.jsonl"]);
    fs::read_to_string(place.path().join("predicted.jsonl")).expect("predicted")
}

#[test]
fn an_export_predicts_the_same_in_an_empty_folder() {
    let place = Workplace::new();
    let summary = place.train(&[&experiment(&place)]);
    let run = summary["dir"].as_str().expect("a folder").to_string();
    place.write("people.csv", &people_csv(30));
    let expected = predictions(&place, &run);
    let evaluated = place.ok(&["evaluate", &run, "--data", "people.csv", "--json"]).json();
    place.ok(&["export", &run, "--out", "exported"]);
    // What is beside the experiment means nothing any more.
    fs::remove_dir_all(place.path().join("work")).expect("removed");
    assert_eq!(predictions(&place, &run), expected);

    let elsewhere = Workplace::new();
    elsewhere.write("people.csv", &people_csv(30));
    let (from, to) = (place.path().join("exported"), elsewhere.path().join("model"));
    fs::rename(&from, &to).or_else(|_| copy(&from, &to)).expect("moved");
    assert_eq!(predictions(&elsewhere, "model"), expected);
    let again = elsewhere.ok(&["evaluate", "model", "--data", "people.csv", "--json"]).json();
    assert_eq!(again["metrics"], evaluated["metrics"]);

    elsewhere.write("model/assets/lists_cities.txt", "Ulm\nChur\nBern\n");
    let error = elsewhere.run(&["evaluate", "model", "--data", "people.csv"]).err();
    assert!(error.contains("lists_cities.txt was changed since"), "{error}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

#[test]
fn several_workers_and_a_resumed_run_read_the_copy_of_the_run() {
    let place = Workplace::new();
    let file = experiment(&place);
    let alone = place.train(&[&file, "--set", "micro_batches=2"]);
    let together = place.train(&[&file, "--workers", "2"]);
    assert_eq!(weights_of(&alone), weights_of(&together));
    let run = alone["dir"].as_str().expect("a folder");
    place.write("work/lists/cities.txt", "Ulm\nChur\nBern\n");
    let resumed = place.train(&["--resume", run, "--set", "searcher.max_length.epochs=3"]);
    assert_eq!(resumed["state"], "completed", "{resumed}");

    let copy = std::path::Path::new(run).join("assets/lists_cities.txt");
    fs::write(copy, "Ulm\nChur\nBern\n").expect("written");
    let error = place.run(&["train", "--resume", run]).err();
    assert!(error.contains("lists_cities.txt was changed since"), "{error}");
}

#[test]
fn what_is_missing_is_made_from_the_training_data() {
    let place = Workplace::new();
    let file = experiment(&place);
    let refused = place.run(&["data", "fit", &file]).err();
    assert!(refused.contains("--force replaces it"), "{refused}");
    for name in ["work/stats.json", "work/lists/cities.txt"] {
        fs::remove_file(place.path().join(name)).expect("removed");
    }
    place.write("work/people.csv", &people_csv(99));
    let fitted = place.train(&[&file, "--set", "data.fit=true"]);
    assert!(!place.path().join("work/stats.json").exists(), "only the run has it");
    place.ok(&["data", "fit", &file]);
    let cities = fs::read_to_string(place.path().join("work/lists/cities.txt")).expect("made");
    assert_eq!(cities, "Bern\nChur\nUlm\nGenf\n");
    assert_eq!(weights_of(&fitted), weights_of(&place.train(&[&file])));
}

#[test]
fn what_every_worker_would_stumble_over_is_told_before_a_run_is_made() {
    let place = Workplace::new();
    let file = experiment(&place);
    let check = |sets: &[&str], expected: &str| {
        for workers in [&[][..], &["--workers", "2"]] {
            let mut args = vec!["train", &file];
            sets.iter().for_each(|set| args.extend(["--set", set]));
            args.extend(workers);
            let ended = place.run(&args);
            assert_eq!(ended.code(), Some(1));
            assert!(ended.err().contains(expected), "{}", ended.err());
            assert!(!ended.err().contains("panicked"), "{}", ended.err());
        }
        assert!(!place.path().join("runs").exists(), "no run was begun: {sets:?}");
    };
    check(&["hyperparameters.inputs=7"], "model people: forward:");
    check(&["hyperparameters.inputs=7"], "out.weight [7, 2]");
    check(&["searcher.metric=accuray"], "validation reports no \"accuray\"");
    check(&["data.training=nowhere.csv"], "nowhere.csv");
    place.write("work/people.csv", "age,city,bought\n30,Bern,perhaps\n");
    check(&[], "\"perhaps\" is none of its classes: no, yes");
    place.write("work/people.csv", "age,city\n30,Bern\n");
    check(&[], "column \"bought\"");
    fs::remove_file(place.path().join("work/stats.json")).expect("removed");
    check(&[], "stats.json, which `age` is read with, is neither in");
    let doctor = place.run(&["doctor", &file]);
    assert!(doctor.out().contains("stats.json"), "{}", doctor.out());
}
